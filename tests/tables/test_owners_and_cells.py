"""Owners in odd places, a file for each machine, and cells with a row a cycle: what `init` makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_init import fleet_of, owners, pumps
from test_strange_tables import unchanged

from fedprognos.errors import DataError
from fedprognos.fleet.from_tables import read_table
from fedprognos.tables import Columns
from fedprognos.tables.experiment_file import write_experiment
from fedprognos.tables.proposal import propose
from fedprognos.tables.table_files import open_tables
from refusals import refuses


def test_a_file_or_sheet_for_each_machine_with_its_owner_in_a_column(tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    with pd.ExcelWriter(tmp_path / "p.xlsx") as book:
        for machine, rows in pumps().groupby("machine"):
            own = rows[["cycle", "heat", "noise", "plant"]]
            own.to_csv(tmp_path / "fleet" / f"{machine}.csv", index=False)
            own.to_excel(book, index=False, sheet_name=str(machine))
    for source in (tmp_path / "fleet", tmp_path / "p.xlsx"):
        guess = propose(source)
        assert (guess.columns.unit, guess.columns.site, guess.columns.new_life, guess.units) == (None, "plant", None, 8)
        _, clients = fleet_of(source)
        assert owners(clients) == ["north", "south", "west"]
        unchanged(clients)
        (tmp_path / "experiment.toml").unlink()


@pytest.mark.parametrize("owner", ["plant", "Werksnummer", "grp"])
def test_owners_that_are_numbers_are_proposed_with_the_reason(tmp_path: Path, owner: str) -> None:
    frame = pumps(owner=owner).replace({owner: {"north": 1, "south": 2, "west": 3}})
    frame.to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert experiment.data.site == owner  # type: ignore[attr-defined]
    assert experiment.data.sensors == ("heat", "noise")  # type: ignore[attr-defined]
    assert owners(clients) == ["1", "2", "3"]
    reason = "its numbers are whole and never change within a unit"
    assert (reason in (tmp_path / "experiment.toml").read_text()) == (owner == "grp")


def test_a_rated_value_stays_a_sensor_and_is_named_as_a_possible_owner(tmp_path: Path) -> None:
    pumps().assign(rated_kW=lambda f: np.where(f["machine"] < "p4", 1500, 2200)).drop(columns="plant").to_csv(
        tmp_path / "p.csv", index=False
    )
    guess = propose(tmp_path / "p.csv")
    assert (guess.columns.site, guess.owners) == (None, ("rated_kW",))
    assert guess.columns.sensors == ("heat", "noise", "rated_kW")
    write_experiment(guess, tmp_path / "p.toml")
    comments = [line for line in (tmp_path / "p.toml").read_text().splitlines() if line.startswith("#")]
    assert any("rated_kW" in comment for comment in comments)


def test_owners_that_begin_the_names_of_units(tmp_path: Path) -> None:
    frame = pumps()
    frame["machine"] = frame.pop("plant").str[0].str.upper() + "-" + frame["machine"].str[1:]
    frame.to_csv(tmp_path / "p.csv", index=False)
    _, clients = fleet_of(tmp_path / "p.csv")
    assert '[partition]  # who owns which units\nby = "name"' in (tmp_path / "experiment.toml").read_text()
    assert owners(clients) == ["N", "S", "W"]
    assert all(unit.id.startswith("N-") for unit in clients["N"])


@pytest.mark.parametrize("by", ["plant", "cycle"])
def test_plants_that_all_count_their_machines_from_one(tmp_path: Path, by: str) -> None:
    frame = pumps()
    numbers = frame.groupby("plant")["machine"].transform(lambda names: pd.factorize(names)[0] + 1)
    frame.assign(machine=numbers).sort_values([by, "plant", "machine", "cycle"]).to_csv(tmp_path / "p.csv", index=False)
    guess = propose(tmp_path / "p.csv")
    fleet = read_table(tmp_path / "p.csv", guess.columns)
    lives = frame.groupby(["plant", "machine"])["cycle"].max()
    assert (guess.columns.site, guess.units, len(fleet)) == ("plant", 8, 8)
    rows_of_owners = sorted((str(unit.attributes["site"]), unit.rows) for unit in fleet)
    assert rows_of_owners == sorted((plant, rows) for (plant, _), rows in lives.items())
    assert {"south/1", "south/2", "south/3"} <= set(fleet.ids)


def test_a_machine_that_was_moved_is_not_taken_for_two(tmp_path: Path) -> None:
    frame = pumps()
    frame.loc[(frame["machine"] == "p3") & (frame["cycle"] > 20), "plant"] = "west"
    frame.to_csv(tmp_path / "p.csv", index=False)
    with refuses(DataError, "p3", "north", "west"):
        read_table(tmp_path / "p.csv", Columns(unit="machine", time="cycle", site="plant"))


def test_a_status_is_no_owner(tmp_path: Path) -> None:
    pumps().assign(status=lambda f: np.where(f["machine"] < "p4", "failed", "running")).to_csv(
        tmp_path / "p.csv", index=False
    )
    guess = propose(tmp_path / "p.csv")
    assert (guess.columns.failed, guess.owners) == ("status", ("plant",))


@pytest.mark.parametrize("mark", [" ", "\u00a0", "\u202f", "'", "’"])
def test_spaces_and_apostrophes_between_thousands(tmp_path: Path, mark: str) -> None:
    frame = pumps().assign(heat=lambda f: 1e6 + f["heat"].round(2))
    shown = frame.assign(heat=[f"{v:,.2f}".replace(",", mark).replace(".", ",") for v in frame["heat"]])
    shown.to_csv(tmp_path / "p.csv", index=False, sep=";", decimal=",")
    guess = propose(tmp_path / "p.csv")
    assert guess.columns.sensors == ("heat", "noise")
    assert "between thousands" in guess.note
    fleet = read_table(tmp_path / "p.csv", guess.columns)
    assert fleet["p3"].sensors[:, 0].tolist() == frame.loc[frame["machine"] == "p3", "heat"].tolist()


def cells(health: str = "capacity_Ah", scale: float = 2.0) -> pd.DataFrame:
    """Eight cells of two labs, a row a cycle: what was measured in it, and the capacity after it."""
    rng, frames = np.random.default_rng(0), []
    for k in range(8):
        n = int(rng.integers(40, 60))
        soh = 1 - 0.3 * (np.arange(n) / n) ** 1.2
        frames.append(
            pd.DataFrame(
                {
                    "cell": f"c{k}",
                    "cycle": np.arange(1, n + 1),
                    "lab": "east" if k % 2 else "west",
                    "discharge_s": 3600 * soh + rng.normal(0, 10, n),
                    "resistance": 20 + 30 * (1 - soh) + rng.normal(0, 0.3, n),
                    health: scale * soh,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


@pytest.mark.parametrize(
    ("health", "scale", "measure"), [("capacity_Ah", 2.0, "Ah"), ("SOH [%]", 100.0, "%"), ("soh", 1.0, "soh")]
)
def test_a_row_a_cycle_with_a_capacity_is_a_table_of_health(
    tmp_path: Path, health: str, scale: float, measure: str
) -> None:
    cells(health, scale).to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    data = experiment.data
    assert (data.task, data.time, data.cycle, data.target) == ("soh", "cycle", "cycle", health)  # type: ignore[attr-defined]
    assert (data.sensors, experiment.recipe.cycle) == (("discharge_s", "resistance"), "index")  # type: ignore[attr-defined]
    assert owners(clients) == ["east", "west"]
    assert clients["east"].schema.target_measure == measure
    unit = clients["east"]["c1"]
    assert len(unit.labels()) == unit.rows  # type: ignore[arg-type]


def test_a_capacity_that_does_not_fade_or_stands_alone_is_a_sensor(tmp_path: Path) -> None:
    pumps().assign(capacity=lambda f: f["noise"] + 9).to_csv(tmp_path / "p.csv", index=False)
    assert propose(tmp_path / "p.csv").columns.task == "rul"
    cells()[["cell", "cycle", "capacity_Ah"]].to_csv(tmp_path / "p.csv", index=False)
    guess = propose(tmp_path / "p.csv")
    assert (guess.columns.task, guess.columns.sensors) == ("rul", ("capacity_Ah",))


@pytest.mark.parametrize("index", [["machine"], ["machine", "cycle"], ["when"], None])
def test_the_index_of_a_frame_in_a_parquet_file_is_a_column(tmp_path: Path, index: list[str] | None) -> None:
    pytest.importorskip("pyarrow")
    frame = pumps()
    if index == ["when"]:
        when = pd.Timestamp("2026-01-01") + pd.to_timedelta(frame.pop("cycle"), unit="h")
        frame = frame.set_index(pd.DatetimeIndex(when.to_numpy()))
    elif index is not None:
        frame = frame.set_index(index)
    else:
        frame = frame[frame["cycle"] != 7]  # rows keep their numbers, which say nothing
    frame.to_parquet(tmp_path / "p.parquet")
    guess = propose(tmp_path / "p.parquet")
    assert (guess.columns.unit, guess.columns.sensors) == ("machine", ("heat", "noise"))
    assert guess.columns.time == ("__index_level_0__" if index == ["when"] else "cycle")
    fleet = read_table(tmp_path / "p.parquet", guess.columns)
    assert len(fleet) == 8 and fleet.rows == guess.rows
    assert set(guess.columns.roles) <= set(open_tables(tmp_path / "p.parquet")[0].names)
