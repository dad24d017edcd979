"""What machines do to a run: a disk that is full, and clocks that are a day off."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_run import SmallRun

from fedprognos.errors import FedprognosError

DAY_IN_S = 86400.0


@contextlib.contextmanager
def full_disk(room_in_bytes: int) -> Iterator[None]:
    """No file may grow beyond a size: what a full disk does, for sites and coordinator alike."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_in_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    run = SmallRun(tmp_path_factory.mktemp("undisturbed"))
    run.perform()
    return run.weights()


@pytest.mark.parametrize("room_in_bytes", [1, 1000])
def test_a_run_on_a_full_disk_ends_in_words_and_goes_on_once_there_is_room(
    tmp_path: Path, undisturbed: bytes, room_in_bytes: int
) -> None:
    run = SmallRun(tmp_path)
    with full_disk(room_in_bytes), pytest.raises((FedprognosError, OSError)):
        run.perform()
    again = SmallRun(tmp_path)  # coordinator and sites are started again
    again.perform()
    assert again.weights() == undisturbed


@pytest.mark.parametrize("ahead_in_s", [-DAY_IN_S, DAY_IN_S])
def test_clocks_that_are_a_day_off_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: bytes, ahead_in_s: float
) -> None:
    right, run = time.time, SmallRun(tmp_path)
    asked: list[str] = []

    def before(site: str, header: object, data: bytes) -> None:
        """Every second message finds another clock."""
        asked.append(site)
        off = ahead_in_s * (len(asked) % 2)
        monkeypatch.setattr(time, "time", lambda: right() + off)

    run.mailbox.before = before  # type: ignore[assignment]
    run.perform()
    assert len(asked) > 2
    assert run.weights() == undisturbed
