"""A real service at its limits: huge bodies, more units than it watches, a full disk."""

from __future__ import annotations

import json
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from services import process, rows_of, served, small_bundle

from fedprognos.prognosis import Predictor, Row
from fedprognos.service import DurableStream, http_server
from fedprognos.service.fleet_service import CHECKED_IN_S
from small_fleets import series_fleet

FLEET = series_fleet([400, 300])
BUNDLE = small_bundle(FLEET)
MEGABYTE = b"x" * 1_000_000


def peak_in_MB(process_id: int) -> float:
    text = Path(f"/proc/{process_id}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def pieces(announced: bool) -> Iterator[bytes]:
    """A request of 200 MB."""
    size = b"Content-Length: 200000000" if announced else b"Transfer-Encoding: chunked"
    yield b"POST /v1/rows HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + size + b"\r\n\r\n"
    for _ in range(200):
        yield MEGABYTE if announced else b"%x\r\n%s\r\n" % (len(MEGABYTE), MEGABYTE)


@pytest.mark.long
def test_huge_bodies_and_ever_new_units_are_refused_in_bounded_memory(tmp_path: Path) -> None:
    bundle = BUNDLE.save(tmp_path / "bundle")
    row = rows_of(FLEET["engines-0"], FLEET)[0]
    with process(bundle, tmp_path / "state", "--max-units", "50") as (address, child):
        before = peak_in_MB(child.pid)
        for announced in (True, False):
            sent = 0
            with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 20) as client:
                try:
                    for piece in pieces(announced):
                        client.sendall(piece)
                        sent += 1
                except OSError:
                    pass  # the service hung up, having answered
                assert b" 413 " in client.recv(200).splitlines()[0]
            assert sent < 30, "it was read on"  # what the kernel held, and 5 MB where nothing was announced
        assert peak_in_MB(child.pid) - before < 30

        first = json.dumps([{**row, "unit": f"u{k}"} for k in range(50)]).encode()
        kind = {"content-type": "application/json"}
        assert httpx.post(f"{address}/v1/rows", content=first, headers=kind).json()["accepted"] == 50
        with httpx.Client(base_url=address, timeout=60) as client:
            for part in range(20):
                if part == 3:
                    before = peak_in_MB(child.pid)
                body = json.dumps([{**row, "unit": f"new {part} {k}"} for k in range(2000)]).encode()
                answer = client.post("/v1/rows", content=body, headers=kind)
                assert answer.status_code == 422
                assert "50 units are watched already; forget one" in answer.json()["results"][0]["reason"]
            assert client.get("/v1/fleet").json()["units"] == 50
        assert peak_in_MB(child.pid) - before < 30


@pytest.mark.soak
def test_thousands_of_silent_connections_silence_nobody(tmp_path: Path) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(allowed, 8192), allowed))
    silent: list[socket.socket] = []
    with process(BUNDLE.save(tmp_path / "bundle"), tmp_path / "state") as (address, _):
        port = int(address.rpartition(":")[2])
        try:
            for k in range(2100):
                client = socket.create_connection(("127.0.0.1", port), 20)
                if k % 2:
                    client.sendall(b"POST /v1/rows HTTP/1.1\r\nHost: 127.0.0.1\r\n")
                silent.append(client)
                if k % 300 == 0:
                    assert httpx.get(f"{address}/healthz", timeout=5).status_code == 200
            row = rows_of(FLEET["engines-0"], FLEET)[0]
            assert httpx.post(f"{address}/v1/rows", json=row, timeout=5).json()["accepted"] == 1
        finally:
            for client in silent:
                client.close()


def test_a_request_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADERS_IN_S", 0.4)
    monkeypatch.setattr(http_server, "BODY_IN_S", 0.8)
    head = b"POST /v1/rows HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with served(BUNDLE, tmp_path) as address:
        for beginning in (b"", head, head + b"Content-Length: 1000\r\n\r\n{"):
            with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 20) as client:
                client.sendall(beginning)
                started, closed = time.monotonic(), False
                while time.monotonic() - started < 5 and not closed:
                    try:
                        client.sendall(b"x")  # a byte now and then buys no time
                        client.settimeout(0.1)
                        closed = client.recv(100) == b""
                    except TimeoutError:
                        continue
                    except OSError:
                        closed = True
                assert closed, beginning
        with httpx.Client(base_url=address) as client:  # a connection that is used stays
            for _ in range(3):
                assert client.get("/healthz").status_code == 200
                time.sleep(0.5)


@pytest.mark.soak
def test_a_full_disk_is_said_and_nothing_accepted_is_lost(tmp_path: Path) -> None:
    bundle = BUNDLE.save(tmp_path / "bundle")
    state = tmp_path / "state"
    accepted: dict[str, int] = {}

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, 900_000))

    with process(bundle, state, preexec_fn=full) as (address, child), httpx.Client(base_url=address) as client:
        refusals = 0
        for unit in FLEET:
            for row in rows_of(unit, FLEET):
                answer = client.post("/v1/rows", json=row)
                if answer.status_code == 200:
                    assert not refusals, "a later row was taken while an earlier one of its unit is missing"
                    accepted[unit.id] = accepted.get(unit.id, 0) + 1
                    continue
                assert answer.status_code == 503 and answer.headers["retry-after"]
                assert "nothing of this batch was stored" in answer.json()["detail"]
                refusals += 1
                if refusals == 3:
                    break
            if refusals:
                break
        assert refusals == 3 and accepted["engines-0"] > 20
        time.sleep(CHECKED_IN_S)  # until then the answer is the one from before the disk was full
        assert client.get("/readyz").status_code == 503
        assert client.get("/v1/units/engines-0").json()["position"] == accepted["engines-0"]
        child.send_signal(signal.SIGKILL)
        child.wait(20)

    own = DurableStream(Predictor.load(bundle), state)  # the disk has room again
    offline = BUNDLE.predict(FLEET, last=False)["engines-0"]
    n = accepted["engines-0"]
    assert own.history("engines-0")[0][-1].position == n
    rest = own.take([Row(**row) for row in rows_of(FLEET["engines-0"], FLEET)[n:]]).updates
    assert [o.health.value for o in rest if o.health] == pytest.approx(offline[n - 9 :].tolist(), abs=1e-5)
    own.close()
