"""Sites whose processors round otherwise take part: nothing compared, named or signed depends on last digits."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "attacks"))

from other_processor import KERNELS, RemoteSite, round_otherwise
from small_run import NAMES, SmallRun

from fedprognos.deployment.coordinator import handshake, site_transport
from fedprognos.deployment.site.approvals import Approvals
from fedprognos.federation.strategies import strategies

METHODS = [name for name, strategy in strategies.items() if not strategy.pooled]
HEADS = ["exact", "mean", "personal", "choice"]
EMULATED = [{**KERNELS, "TORCH_THREADS": "1"}, {"TORCH_THREADS": "3", "OMP_NUM_THREADS": "3"}]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_transport, "CHECK_IN_S", 0.0)
    monkeypatch.setattr(handshake, "ASK_AGAIN_IN_S", 0.0)


def changes(mode: str, *methods: str) -> dict[str, Any]:
    """Every head, and no member that may be left out."""
    federation = {"methods": list(methods), "heads": HEADS, "mode": mode, "min_clients": 3}
    return {"federation": federation, "train": {"epochs": 1, "validation_fraction": 0.3}}


def check(run: SmallRun) -> None:
    """No member failed in any step, each made its personal heads, and each has the model."""
    run.perform()
    for name in NAMES:
        kinds = [line["kind"] for line in run.lines(name)]
        assert "Failure" not in kinds, [line for line in run.lines(name) if line["kind"] == "Failure"]
        assert kinds[-1] == "DeliverReply"
        assert "PersonalReply" in kinds


@contextlib.contextmanager
def with_remote_site(run: SmallRun, name: str, environment: dict[str, str]) -> Iterator[None]:
    """Let one site of a run answer from a process with other kernels."""
    remote = RemoteSite((str(run.folder), name), environment, Approvals(run.place(name)))
    run.sites[name] = remote  # type: ignore[assignment]
    try:
        yield
    finally:
        remote.close()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["checked", "masked"])
def test_a_site_with_other_last_digits_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    round_otherwise(monkeypatch, "b")
    check(SmallRun(tmp_path, changes(mode, "fedavg", "absorb")))


@pytest.mark.long
def test_a_site_with_other_kernels_takes_part(tmp_path: Path) -> None:
    run = SmallRun(tmp_path, changes("checked", "concat"))
    with with_remote_site(run, "b", EMULATED[0]):
        check(run)


@pytest.mark.long
@pytest.mark.parametrize("environment", EMULATED, ids=["other kernels", "more threads"])
@pytest.mark.parametrize("mode", ["checked", "masked"])
@pytest.mark.parametrize("method", METHODS)
def test_every_strategy_with_all_heads_runs_on_mixed_processors(
    tmp_path: Path, method: str, mode: str, environment: dict[str, str]
) -> None:
    if mode == "masked" and not strategies[method].shared:
        pytest.skip("nothing is summed: each model belongs to one site")
    run = SmallRun(tmp_path, changes(mode, method))
    with with_remote_site(run, "b", environment):
        check(run)
