"""A run folder that was damaged: the same command mends it, or says in words what is wrong; never a traceback."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest

from fedprognos import run
from fedprognos.errors import FedprognosError
from fedprognos.report.run_data import read_run

TINY = (
    "data.units_per_site=4",
    "data.test_units_per_site=2",
    "recipe.stride=10",
    "evaluation.bootstrap=5",
    "federation.methods=['direct']",
    "federation.heads=['exact']",
)
DAMAGES = {
    "missing": lambda whole: None,
    "empty": lambda whole: b"",
    "half": lambda whole: whole[: len(whole) // 2],
    "another": lambda whole: b'{"rows": [{}], "kind": 7}',
    "noise": lambda whole: random.Random(len(whole)).randbytes(200),  # noqa: S311 - damage, not secrets
}
VOUCHED = ("results.json", "bundle/weights.safetensors")
"""What another run of the same command makes again, byte for byte."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run(tmp_path_factory.mktemp("runs") / "whole")


def _run(out: Path) -> Path:
    return run("plants", overrides=TINY, out=out, seeds=1, workers=1).folder  # type: ignore[no-any-return]


@pytest.mark.parametrize("file", ["results.json", "jobs/all~direct~seed0.json", "bundles/all/direct/seed0/bundle.json"])
def test_a_file_cut_in_half_is_written_again_or_the_run_is_refused(finished: Path, tmp_path: Path, file: str) -> None:
    refused = _damaged_and_run_again(finished, tmp_path / "copy", file, "half")
    assert refused == file.startswith("bundles")


def test_a_seed_of_hundreds_of_digits_is_left_out_of_the_report(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    file = min((tmp_path / "copy" / "predictions").glob("*.csv"))
    header, first, *others = file.read_text().splitlines()
    place = header.split(",").index("seed")
    cells = first.split(",")
    file.write_text("\n".join([header, ",".join([*cells[:place], "9" * 400, *cells[place + 1 :]]), *others]))
    before = sum(len(run_data.predictions) for run_data in read_run(finished))
    assert sum(len(run_data.predictions) for run_data in read_run(tmp_path / "copy")) == before - 1


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_mended_by_the_same_command_or_refused_in_words(
    finished: Path, tmp_path: Path, damage: str
) -> None:
    files = [str(path.relative_to(finished)) for path in sorted(finished.rglob("*")) if path.is_file()]
    refused = {file for file in files if _damaged_and_run_again(finished, tmp_path / "copy", file, damage)}
    # What a finished job vouches for is not made again.
    assert all(file == "experiment.json" or file.startswith("bundles/") for file in refused)
    assert {"results.json", "jobs/all~direct~seed0.json"} <= set(files) - refused


def _damaged_and_run_again(finished: Path, copy: Path, file: str, damage: str) -> bool:
    """Damage one file of a copy, read it for a report, and run again: was that refused? If not, nothing is lost."""
    shutil.copytree(finished, copy)
    damaged = DAMAGES[damage]((copy / file).read_bytes())
    (copy / file).unlink()
    if damaged is not None:
        (copy / file).write_bytes(damaged)
    with contextlib.suppress(FedprognosError):
        read_run(copy)
    try:
        _run(copy)
    except FedprognosError:
        return True
    else:
        assert all((copy / name).read_bytes() == (finished / name).read_bytes() for name in VOUCHED), file
        return False
    finally:
        shutil.rmtree(copy)
