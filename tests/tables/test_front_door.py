"""`fedprognos init` as a new user meets it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_init import fleet_of, owners, pumps
from test_owners_and_cells import cells
from test_proposal import engine_table, save
from typer.testing import CliRunner, Result

from fedprognos.cli import app
from fedprognos.errors import ConfigError, DataError, DataNotFoundError
from fedprognos.experiment import config, scenarios
from fedprognos.fleet import Fleet
from fedprognos.fleet.from_tables import read_table
from fedprognos.prognosis.table_prediction import ModelInputs
from fedprognos.tables.loaded_rows import load_rows
from fedprognos.tables.proposal import propose
from refusals import refuses


def init(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["init", *map(str, arguments)])


def test_init_writes_a_file_and_names_the_next_command(tmp_path: Path) -> None:
    result = init(save(engine_table(), tmp_path / "fleet.csv"))
    assert (tmp_path / "fleet.toml").is_file()
    assert f"fedprognos run {tmp_path / 'fleet.toml'}" in result.stdout
    assert "machine_id (12 units" in result.stdout


@pytest.mark.parametrize("names", [("Triebwerk", "Umlauf"), ("Nr", "Lauf"), ("机器", "周期"), ("c1", "c2")])
def test_machines_and_times_are_found_by_what_they_hold(tmp_path: Path, names: tuple[str, str]) -> None:
    frame = pumps().assign(machine=lambda f: f["machine"].str[1:].astype(int) + 1)
    path = save(frame.rename(columns=dict(zip(("machine", "cycle"), names, strict=True))), tmp_path / "p.csv")
    proposal = propose(path)
    assert (proposal.columns.unit, proposal.columns.time, proposal.units) == (*names, 8)
    assert proposal.columns.sensors == ("heat", "noise")


def test_numbers_of_machines_may_end_in_zeros(tmp_path: Path) -> None:
    frame = pumps().assign(machine=lambda f: f["machine"].str[1:].astype(float) + 1)
    _, clients = fleet_of(save(frame, tmp_path / "p.csv"))
    assert owners(clients) == ["north", "south", "west"]
    assert {unit.id for fleet in clients.values() for unit in fleet} <= {str(k) for k in range(1, 9)}


def test_machines_of_the_same_name_in_every_sheet(tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "p.xlsx") as book:
        for k, plant in enumerate(("Nord", "Ost", "Sued", "West")):
            rows = pumps().drop(columns="plant").loc[lambda f, k=k: f["machine"].isin([f"p{2 * k}", f"p{2 * k + 1}"])]
            names = {f"p{2 * k}": "K1", f"p{2 * k + 1}": "K2"}
            rows.replace({"machine": names}).to_excel(book, index=False, sheet_name=plant)
    proposal = propose(tmp_path / "p.xlsx")
    assert (proposal.units, proposal.columns.new_life, proposal.sites) == (8, None, ("Nord", "Ost", "Sued", "West"))
    assert init(tmp_path / "p.xlsx", "--yes").exit_code == 0
    _, clients = fleet_of(tmp_path / "p.xlsx")
    assert owners(clients) == ["Nord", "Ost", "Sued", "West"]


def test_columns_may_be_named(tmp_path: Path) -> None:
    frame = pumps().assign(batch=lambda f: np.where(f["machine"] < "p4", "A", "B"))
    path = save(frame, tmp_path / "p.csv")
    options = ["--unit", "machine", "--time", "cycle", "--site", "batch", "--sensor", "heat"]
    assert init(path, "--yes", *options).exit_code == 0
    data = config.load(tmp_path / "p.toml")[1].data
    assert (data.unit, data.time, data.site, data.sensors) == ("machine", "cycle", "batch", ("heat",))  # type: ignore[attr-defined]
    with refuses(DataError, "'machin'", "'machine'"):
        propose(path, {"unit": "machin"})


def test_nothing_is_written_that_run_refuses(tmp_path: Path) -> None:
    frame = pumps().assign(failed=0)
    path = save(frame, tmp_path / "p.csv")
    result = init(path, "--yes")
    assert result.exit_code == DataError.exit_code or isinstance(result.exception, DataError)
    assert not (tmp_path / "p.toml").exists()


def test_a_missing_file_is_named_as_it_was_given(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError) as caught:
        ModelInputs(("heat",), (), False, "hours", ("hold",)).open(tmp_path / "none.csv")
    assert str(tmp_path / "none.csv") in str(caught.value)
    assert "experiment" not in str(caught.value)


def test_a_folder_of_public_data_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "train_FD001.txt").write_text("1 1 0.0\n")
    result = init(tmp_path, "--yes")
    assert isinstance(result.exception, DataError)
    for name in ("cmapss", "fedprognos run", str(tmp_path)):
        assert name in str(result.exception)


def test_a_fleet_prints_short_and_becomes_a_frame_again() -> None:
    frame = pumps()
    fleet = Fleet.from_frame(frame, unit="machine", time="cycle", site="plant")
    assert len(str(fleet).splitlines()) <= 8
    again = Fleet.from_frame(fleet.to_frame(), unit="unit", time="cycle", site="site", sensors=["heat", "noise"])
    assert again.ids == fleet.ids
    assert all(np.array_equal(unit.sensors, again[unit.id].sensors) for unit in fleet)


def test_a_table_is_no_experiment(tmp_path: Path) -> None:
    path = save(pumps(), tmp_path / "p.csv")
    with refuses(ConfigError, f"fedprognos init {path}"):
        config.load(path)


@pytest.mark.parametrize("owner", [None, "plant"])
def test_init_refuses_what_leaves_nothing_to_test_on(tmp_path: Path, owner: str | None) -> None:
    """One machine alone, and owners of one machine each."""
    machines = ["p0"] if owner is None else ["p0", "p1", "p2"]
    path = save(pumps().loc[lambda f: f["machine"].isin(machines)], tmp_path / "p.csv")
    result = init(path, "--yes")
    assert isinstance(result.exception, DataError), result.output
    assert not path.with_suffix(".toml").exists()
    if owner is not None:
        assert init(path, "--yes", "--site", "-").exit_code == 0


def test_owners_without_a_failure_are_named_in_a_note(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    frame = pumps().assign(failed=lambda f: (f["plant"] != "west").astype(int))
    result = init(save(frame, tmp_path / "p.csv"), "--yes")
    assert result.exit_code == 0
    assert [line for line in result.output.splitlines() if line.startswith("note: ") and "west" in line]
    assert not recwarn.list


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_large_table_is_guessed_from_some_machines_and_checked_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Owner and stray text that no machine of the sample has are there all the same; a counter of rows is left out."""
    monkeypatch.setattr("fedprognos.tables.loaded_rows.MOST_ROWS", 600)
    monkeypatch.setattr("fedprognos.tables.loaded_rows._FIRST_ROWS", 250)
    parts = [pumps().assign(machine=lambda f, k=k: f["machine"] + f"-{k}") for k in range(10)]
    frame = pd.concat(parts, ignore_index=True).reset_index(names="row")
    path = tmp_path / f"p{suffix}"
    write = frame.to_csv if suffix == ".csv" else frame.to_parquet
    write(path, index=False)
    taken = {unit for rows in [load_rows(path)] for unit in rows.frame["machine"]}
    assert 5 < len(taken) < 60
    other = next(name for name in frame["machine"] if name not in taken)
    frame.loc[frame["machine"] == other, "plant"] = "harbour"
    if suffix == ".csv":
        frame["heat"] = frame["heat"].astype(object)
        frame.loc[frame.index[frame["machine"] == other][5], "heat"] = "err"
    write(path, index=False)
    result = init(path, "--yes")
    assert result.exit_code == 0, result.output
    data = config.load(tmp_path / "p.toml")[1].data
    assert (data.unit, data.time, data.sensors) == ("machine", "cycle", ("heat", "noise"))  # type: ignore[attr-defined]
    assert data.blanks == (("err",) if suffix == ".csv" else ())  # type: ignore[attr-defined]
    assert (tmp_path / "p.toml").read_text().startswith(f"# 80 units, {len(frame)} rows.")
    _, experiment, folder = config.load(tmp_path / "p.toml")
    assert "harbour" in next(iter(scenarios(experiment, None, folder).values())).clients


def test_cells_with_few_cycles_share_a_client(tmp_path: Path) -> None:
    frame = cells().loc[lambda f: f["cycle"] <= 20].drop(columns="lab")
    assert init(save(frame, tmp_path / "p.csv"), "--yes").exit_code == 0
    experiment = config.load(tmp_path / "p.toml")[1]
    (rule,) = experiment.partition.values()
    assert (experiment.data.task, rule.by, rule.clients) == ("soh", "random", 4)  # type: ignore[attr-defined]
    assert init(save(cells().drop(columns="lab"), tmp_path / "p.csv"), "--yes", "--force").exit_code == 0
    (rule,) = config.load(tmp_path / "p.toml")[1].partition.values()
    assert rule.by == "unit"


def test_a_misspelt_time_measure_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    save(pumps(), tmp_path / "p.csv")
    assert init(tmp_path / "p.csv", "--yes").exit_code == 0
    with refuses(ConfigError, "plannt", "'landings'", code="config"):
        config.load(tmp_path / "p.toml", ["data.time_measure=plannt"])
    _, experiment, _ = config.load(tmp_path / "p.toml", ["data.time_measure=hours"])
    assert experiment.data.time_measure == "hours"  # type: ignore[attr-defined]


@pytest.mark.parametrize("stray", ["unknown", "", "12 cycles"])
def test_a_remaining_life_in_words_is_neither_target_nor_sensor(tmp_path: Path, stray: str) -> None:
    frame = pumps()
    left = frame.groupby("machine")["cycle"].transform("max") - frame["cycle"]
    path = save(frame.assign(RUL=left.astype(str).where(frame.index % 40 != 7, stray)), tmp_path / "p.csv")
    with refuses(DataError, "RUL", "line 9"):
        read_table(path, propose(path).columns)
    proposal = propose(path, {"target": None})
    assert proposal.columns.target is None
    assert "RUL" not in (proposal.columns.sensors or ())
    assert "RUL" in (*proposal.left_out.get("answer", ()), *proposal.left_out.get("text", ()))
