"""Processes: one a folder, stopped when told to, and why one ended is said in words."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedprognos.deployment.processes import Child, ProcessError, alone, bounded_memory, running, stop_running
from refusals import refuses


def test_a_folder_is_held_by_one_process_and_old_notes_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "running.lock").write_text("1")
    assert running(tmp_path) is None
    with alone(tmp_path):
        assert running(tmp_path) == os.getpid()
        with refuses(ProcessError, tmp_path, "deploy stop"), alone(tmp_path):
            pass
        assert running(tmp_path) == os.getpid()
    assert running(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_stopping_waits_for_the_end_and_tidies_up_after_one_that_was_killed(tmp_path: Path) -> None:
    assert not stop_running(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; "
        "from fedprognos.deployment.processes import alone, terminate_as_interrupt\n"
        "try:\n"
        "    terminate_as_interrupt()\n"
        "    with alone(Path(sys.argv[1])):\n"
        "        time.sleep(60)\n"
        "finally:\n"
        "    time.sleep(1.5)\n"  # the folder is given up, the process is not at its end
    )
    for sign in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.DEVNULL)
        while running(tmp_path) is None:
            time.sleep(0.05)
        (tmp_path / "status.json").write_text("{}")
        if sign == signal.SIGKILL:
            process.kill()
            process.wait()
        assert stop_running(tmp_path) == (sign == signal.SIGTERM)
        assert process.wait(0.5) is not None
        assert list(tmp_path.iterdir()) == []


def child(folder: Path, code: str) -> Child:
    made = Child("helper", [sys.executable, "-c", code], folder, {"WORD": "luck"})
    made.process.wait(30)
    return made


def test_why_a_process_ended_is_told_in_words(tmp_path: Path) -> None:
    with refuses(ProcessError, "helper", 3, "ERROR: out of luck"):
        code = r"import os, sys; print('\x1b[91mERROR\x1b[0m: out of', os.environ['WORD']); sys.exit(3)"
        child(tmp_path, code).check()


def test_a_child_ends_with_everything_below_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, flush=True); time.sleep(60)"
    )
    made = Child("helper", [sys.executable, "-c", code], tmp_path, {})
    made.wait_until(lambda: bool(made.log.read_text().strip()))
    below = int(made.log.read_text())
    made.stop()
    with refuses(ProcessError, "helper", -15):
        made.check()
    for _ in range(100):
        stat = Path(f"/proc/{below}/stat")
        if not stat.exists() or stat.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the process below is still there")


def test_memory_beyond_the_bound_is_an_error_of_whoever_asks_for_it() -> None:
    with bounded_memory(1 << 30):
        assert len(bytearray(1 << 20)) == 1 << 20
        with pytest.raises(MemoryError):
            bytearray(8 << 30)
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
