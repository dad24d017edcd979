"""What goes wrong in plants, done to real processes on loopback."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from deployments import PATIENCE_IN_S, SITES, Deployment, deployment
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from fedprognos.deployment import keys
from fedprognos.deployment.flower.superlink import PROGRAM, acquire
from fedprognos.deployment.processes import listening
from fedprognos.federation.client_folder import ClientFolder

pytestmark = pytest.mark.soak
TWO_WILL_DO = "federation.min_clients=2"
SLOW = "train.epochs=150"
TRAINING = "training: round"


def test_a_site_killed_in_training_comes_back_and_the_run_ends_well(tmp_path: Path) -> None:
    with deployment(tmp_path) as federation:
        _start(federation, SITES, grace_in_s=PATIENCE_IN_S)
        expected = federation.in_process(SLOW) / "bundle" / "weights.safetensors"
        federation.submit(SLOW, TWO_WILL_DO)
        federation.wait(lambda: TRAINING in federation.said("plant-b"))
        federation.kill("plant-b")
        federation.wait(lambda: not [c for c in federation.left_over() if "plant-b" in c])
        federation.start_site("plant-b")
        _ends_well(federation)
        assert "left out" not in federation.said("coordinator")  # asked again, it answered in time
        assert (federation.results / "bundle" / "weights.safetensors").read_bytes() == expected.read_bytes()


def test_where_all_are_needed_a_site_that_is_away_for_long_is_waited_for(tmp_path: Path) -> None:
    with deployment(tmp_path) as federation:
        _start(federation, SITES)
        expected = federation.in_process(SLOW) / "bundle" / "weights.safetensors"
        federation.submit(SLOW)
        federation.wait(lambda: TRAINING in federation.said("plant-b"))
        federation.kill("plant-b")
        federation.wait(lambda: "plant-b is not connected; waiting for it" in federation.said("coordinator"))
        federation.start_site("plant-b")
        _ends_well(federation)
        assert (federation.results / "bundle" / "weights.safetensors").read_bytes() == expected.read_bytes()


def test_a_site_killed_in_training_for_good_is_left_out_and_the_run_ends_well(tmp_path: Path) -> None:
    with deployment(tmp_path) as federation:
        _start(federation, SITES)
        federation.submit(SLOW, TWO_WILL_DO)
        federation.wait(lambda: TRAINING in federation.said("plant-b"))
        federation.kill("plant-b")
        _ends_well(federation)
        left_out = [line for line in federation.said("coordinator").splitlines() if "left out plant-b" in line]
        assert left_out
        assert all("absent" in line for line in left_out)


def test_a_run_starts_without_a_site_that_never_comes(tmp_path: Path) -> None:
    with deployment(tmp_path) as federation:
        _start(federation, SITES[:2])
        done = federation.run(TWO_WILL_DO)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "waiting for plant-c" in done.stdout
        assert list(json.loads((federation.results / "contract-done.json").read_text())["members"]) == list(SITES[:2])


def test_a_coordinator_killed_and_started_again_ends_with_the_weights_of_an_undisturbed_run(tmp_path: Path) -> None:
    changes = ("federation.methods=['fedavg']", "federation.fedavg.rounds=4", "federation.fedavg.epochs=1")
    with deployment(tmp_path) as federation:
        _start(federation, SITES)
        expected = federation.in_process(*changes) / "bundle" / "weights.safetensors"
        federation.submit(*changes)
        federation.wait(lambda: "round 2" in federation.said("coordinator"))
        federation.kill("coordinator")
        federation.start_coordinator()
        _ends_well(federation)
        for name in SITES:  # a question of the old run was lost on its way to them; they must not wait for it
            federation.processes[name].terminate()
            assert federation.processes[name].wait(PATIENCE_IN_S) == 130
        assert (federation.results / "bundle" / "weights.safetensors").read_bytes() == expected.read_bytes()


def test_strangers_are_refused_and_do_no_harm(tmp_path: Path) -> None:
    """Unregistered key, foreign authority, plain text, the control port, a guessed secret, an oversized request."""
    with deployment(tmp_path) as federation:
        _start(federation, SITES[:2])
        keys.make_site_keys(federation.site["plant-c"])  # a key that nobody registered
        federation.start_site("plant-c")
        federation.processes["plant-c"].wait(PATIENCE_IN_S)
        assert federation.processes["plant-c"].returncode == 10, federation.said("plant-c")
        assert "does not know this site's key" in federation.said("plant-c")

        notes = shutil.ignore_patterns("*.log", "running.*", "flower")
        shutil.copytree(federation.site["plant-b"], tmp_path / "foreign", ignore=notes)
        keys.make_authority(tmp_path / "foreign")
        process = federation.start("foreign", *_site_command(tmp_path / "foreign", tmp_path / "plant-b.csv"))
        federation.wait(lambda: listening("127.0.0.1", federation.port))
        federation.wait(lambda: process.poll() is not None)
        assert "not from this federation's authority" in federation.said("foreign")

        with socket.create_connection(("127.0.0.1", federation.port), timeout=60) as plain:
            plain.sendall(b"POST /v1/fleet/activate-node HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            plain.settimeout(60)
            assert b"200" not in _received(plain)
        for path in ("/v1/control/list-nodes", "/v1/control/start-run", "/docs", "/openapi.json"):
            assert _status(federation, path) == 403, path
        (tmp_path / "guess").write_text("guess")
        address, authority = f"localhost:{federation.port}", (federation.coordinator / "ca.crt").read_bytes()
        with pytest.raises(httpx.HTTPStatusError) as refused:
            acquire(address, tmp_path / "guess", authority, 1)
        assert refused.value.response.status_code in (401, 403)
        assert _status(federation, "/v1/runtime/push-object", size=300 << 20) == 413

        done = federation.run(TWO_WILL_DO)
        assert done.returncode == 0, done.stdout + done.stderr
        assert list(json.loads((federation.results / "contract-done.json").read_text())["members"]) == list(SITES[:2])


def test_other_columns_and_too_long_a_window_are_refused_with_the_reason(tmp_path: Path) -> None:
    with deployment(tmp_path) as federation:
        file = tmp_path / "plant-c.csv"
        head, *rows = file.read_text().splitlines()
        file.write_text("\n".join([head.replace("fan_speed_in_rpm", "fan_speed_in_hz"), *rows]) + "\n")
        _start(federation, SITES)
        done = federation.run(TWO_WILL_DO)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "plant-c is refused" in done.stdout
        assert "fan_speed_in_hz" in federation.said("plant-c")
        assert "REFUSED" in federation.said("plant-c")
        shutil.rmtree(federation.results)
        refused = federation.run("recipe.window=5000", "recipe.short='exclude'")
        assert refused.returncode == 9
        assert "longer than every unit" in federation.said("plant-a")


@pytest.fixture(scope="module")
def two_honest_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Sites that wait for a third one, started once for all that it does."""
    with deployment(tmp_path_factory.mktemp("hostile")) as federation:
        _start(federation, SITES[:2])
        yield federation


@pytest.mark.parametrize("how", ["nan", "shape", "header", "huge", "full"])
def test_a_site_that_answers_nonsense_or_has_no_disk_left_is_left_out_of_the_round(
    two_honest_sites: Deployment, how: str
) -> None:
    federation = two_honest_sites
    federation.start_hostile("plant-c", how)
    federation.wait_for_sites("plant-c")
    limit = ("federation.timeout_in_s=150",) if how == "huge" else ()  # an answer that never arrives
    done = federation.run(TWO_WILL_DO, *limit, name=how)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out plant-c" in done.stdout
    if how == "full":  # the site is alive and says that it cannot answer
        assert not [line for line in done.stdout.splitlines() if "left out plant-c" in line and "timeout" in line]
        assert federation.processes["plant-c"].poll() is None
    for name in SITES[:2]:
        ledger = ClientFolder(federation.coordinator / "runs" / how / "sites" / "all" / name).ledger()
        assert [line.kind for line in ledger].count("FitReply") == 1
    federation.kill("plant-c")
    federation.wait(lambda: not federation.online("plant-c"))


def test_a_gigabyte_of_zeros_is_refused_without_being_held(tmp_path: Path) -> None:
    chunk, limit_in_mb = bytes(1 << 20), 64
    with deployment(tmp_path) as federation:
        federation.start_coordinator()
        federation.wait((federation.coordinator / "status.json").is_file)
        [superlink] = [
            p for p in psutil.process_iter() if {PROGRAM, str(federation.coordinator / "server.crt")} <= set(_words(p))
        ]
        before = peak = superlink.memory_info().rss

        def gigabyte() -> Iterator[bytes]:
            nonlocal peak
            for _ in range(1024):
                peak = max(peak, superlink.memory_info().rss)
                yield chunk

        context = ssl.create_default_context(cafile=str(federation.coordinator / "ca.crt"))
        address, kind = (
            f"https://localhost:{federation.port}/v1/runtime/push-object",
            {"content-type": PROTOBUF_MEDIA_TYPE},
        )
        cut_off = contextlib.suppress(httpx.WriteError, httpx.ReadError)
        with httpx.Client(verify=context, timeout=60) as client, cut_off:
            assert client.post(address, headers=kind, content=gigabyte()).status_code == 413
        assert _status(federation, "/v1/runtime/push-object", size=1 << 30) == 413
        assert peak - before < 3 * (limit_in_mb << 20)


def test_an_interrupt_in_mid_training_leaves_nothing_behind(tmp_path: Path) -> None:
    with deployment(tmp_path) as federation:
        _start(federation, SITES)
        federation.submit(SLOW)
        federation.wait(lambda: TRAINING in federation.said("plant-a"))
        for name in ("plant-a", "coordinator", "plant-b", "plant-c"):
            federation.processes[name].send_signal(signal.SIGINT)
        for name, process in federation.processes.items():
            # Python ends itself by the signal where it came in the middle of an `exec` (a module just being imported,
            # say), even if the interrupt was handled: to a shell both are 130. What was said shows that it was.
            assert process.wait(PATIENCE_IN_S) in (130, -signal.SIGINT)
            assert "start it again to continue" in federation.said(name) or "left the federation" in federation.said(
                name
            )
        assert federation.left_over() == []
        assert not listening("127.0.0.1", federation.port)


def _start(federation: Deployment, sites: tuple[str, ...], grace_in_s: float = 2.0) -> None:
    federation.start_coordinator(grace_in_s)
    for name in sites:
        federation.start_site(name)
    federation.wait_for_sites(*sites)


def _ends_well(federation: Deployment) -> None:
    state = federation.results / "state.json"
    federation.wait(state.is_file)
    assert json.loads(state.read_text()) == {"state": "done"}, federation.said("coordinator")


def _site_command(folder: Path, data: Path) -> list[str]:
    from deployments import FEDPROGNOS

    return [*FEDPROGNOS, "deploy", "site", str(folder), "--data", str(data)]


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:
        return b""


def _status(federation: Deployment, path: str, size: int = 0) -> int:
    context = ssl.create_default_context(cafile=str(federation.coordinator / "ca.crt"))
    request = urllib.request.Request(f"https://localhost:{federation.port}{path}", data=b"", method="POST")
    if size:
        request.add_header("Content-Length", str(size))
    for _ in range(3):
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as response:  # noqa: S310
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            time.sleep(1.0)
    raise AssertionError(path)
