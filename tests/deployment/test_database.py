"""The coordinator's database: whatever happens while it is made, the next start has a whole one."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedprognos.deployment.flower import superlink as database
from fedprognos.deployment.flower.superlink import prepare_database
from fedprognos.errors import OutputError
from refusals import refuses


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("database") / "superlink.db"
    assert prepare_database(path) is None
    assert [p.name for p in path.parent.iterdir()] == ["superlink.db"]
    return path.read_bytes()


@contextlib.contextmanager
def files_of_at_most(size_in_bytes: int) -> Iterator[None]:
    """As on a full disk: what grows beyond is not written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_in_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_whole_database_is_left_alone(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "superlink.db"
    path.write_bytes(whole)
    assert prepare_database(path) is None
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", ["half", "without its version"])
def test_a_damaged_one_is_set_aside_and_made_anew(tmp_path: Path, whole: bytes, damage: str) -> None:
    path = tmp_path / "superlink.db"
    path.write_bytes(whole[: len(whole) // 2] if damage == "half" else whole)
    if damage == "without its version":  # killed before the first note of how far it is
        with contextlib.closing(sqlite3.connect(path)) as half:
            half.execute("DROP TABLE alembic_version")
            half.commit()
    (tmp_path / "superlink.db-wal").write_bytes(b"left over")
    aside = prepare_database(path)
    assert aside is not None
    assert aside.is_file()
    assert database._usable(path)
    assert not (tmp_path / "superlink.db-wal").exists()


def test_a_full_disk_is_said_and_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "superlink.db"
    with files_of_at_most(40_000), refuses(OutputError, "superlink.db"):
        prepare_database(path)
    assert list(tmp_path.iterdir()) == []
    assert prepare_database(path) is None
    assert database._usable(path)


@pytest.mark.soak
def test_a_kill_at_any_moment_does_not_bar_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "superlink.db"
    code = (
        "import sys; from pathlib import Path\n"
        "from fedprognos.deployment.flower.superlink import prepare_database\n"
        "print('ready', flush=True); prepare_database(Path(sys.argv[1])); print('done', flush=True)"
    )
    for k in range(8):
        path.unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.15 * k)
            process.kill()
        prepare_database(path)
        assert database._usable(path)
