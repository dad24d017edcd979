"""Files that are hostile, half-written or held by somebody else: an error in words, or nothing at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedprognos.errors import ConfigError, FedprognosError, OutputError, printable
from fedprognos.experiment import config
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.files import HeldError, exposure, holder, holding, parse_json, parse_toml, write_private
from refusals import refuses

DEEP = 100_000
HOLD = (
    "import sys, time; from pathlib import Path; from fedprognos.files import holding\n"
    "with holding(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)\n"
)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b'title = "\xff\xfe"', "byte 9"),
        (b"\x00\x01", "TOML"),
        (b"v = " + b"[" * DEEP, "deep"),
        (b".".join([b"a"] * DEEP) + b" = 1", "deep"),
        (b"v = " + b"{a=" * DEEP, "deep"),
    ],
)
def test_toml_that_cannot_be_read_is_an_error_in_words(tmp_path: Path, text: bytes, named: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(text)
    with refuses(ConfigError, path, named):
        config.load(path)


def test_values_that_are_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    assert parse_toml("a.b = [[1]]") == {"a": {"b": [[1]]}}
    with refuses(ValueError):
        parse_json("[" * DEEP)
    with pytest.raises(FedprognosError):
        config.load("demo", (f"data.seed={'[' * DEEP}",))


@pytest.mark.parametrize("text", [r'"\ud800"', r'{"\uDFFF": 1}', '"\ud800"', b'"\xed\xa0\x80"'], ids=ascii)
def test_half_a_character_is_refused(text: str | bytes) -> None:
    with refuses(ValueError):
        parse_json(text)
    assert parse_json(r'["\ud83d\ude00", "\\ud800"]') == ["😀", r"\ud800"]


def test_what_steers_a_terminal_is_taken_out_of_errors_and_texts() -> None:
    hostile = "plant\x1b[2J\x1b[31m-a\x1b]0;owned\x07\x9b5n\r\u202e\x00\ttab\nline"
    shown = printable(hostile)
    assert not any(ord(c) < 32 and c not in "\n\t" for c in shown)
    assert shown.startswith("plant-a")
    assert "owned" not in shown
    assert printable("half \ud800 a character").encode()
    assert str(FedprognosError(hostile, where="x\x1b[H")).startswith("x: plant-a")
    assert printable("Ünïcode 机器 ok") == "Ünïcode 机器 ok"


def test_a_lock_names_its_holder_and_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert holder(lock) == process.pid
        with pytest.raises(HeldError) as held, holding(lock):
            pass
        assert held.value.pid == process.pid
        process.kill()
    assert lock.is_file()  # it was killed, and left its note
    assert holder(lock) is None
    with holding(lock):
        assert holder(lock) == os.getpid()
    assert not lock.exists()


def folder_of(path: Path, experiment: Experiment) -> RunFolder:
    return RunFolder(path, "demo", experiment, "data")


def test_two_runs_into_one_folder_are_kept_apart(tmp_path: Path) -> None:
    _, experiment, _ = config.load("demo")
    first, second = (folder_of(tmp_path / "out", experiment) for _ in range(2))
    with first.alone():
        with (
            refuses(OutputError, f"process {os.getpid()}"),
            second.alone(),
        ):
            pass
        first.clear()
        with pytest.raises(OutputError), second.alone():  # clearing the folder does not let go of it
            pass
    with second.alone():
        pass
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["experiment.json"]


def test_a_secret_that_others_can_read_is_told(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("x" * 20)
    for mode, warned in ((0o600, False), (0o644, True), (0o640, True), (0o604, True)):
        secret.chmod(mode)
        assert bool(exposure(secret)) == warned, oct(mode)
    assert "chmod 600" in exposure(secret)
    assert exposure(tmp_path / "none") == ""


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As on a read-only disk, which a test cannot have."""
    (tmp_path / "file").write_text("no folder")
    with refuses(OutputError, tmp_path / "file" / "secret"):
        write_private(tmp_path / "file" / "secret", b"s")
    with refuses(OutputError, tmp_path / "file" / "lock"), holding(tmp_path / "file" / "lock"):
        pass
