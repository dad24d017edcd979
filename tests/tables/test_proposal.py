from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedprognos.errors import DataError, OutputError
from fedprognos.experiment import config
from fedprognos.fleet.from_tables import read_table
from fedprognos.tables.experiment_file import default_path, experiment_toml, write_experiment
from fedprognos.tables.proposal import propose
from refusals import refuses


def engine_table(named: bool = True) -> pd.DataFrame:
    """Twelve machines in two plants; `pressure_step` follows from the operating condition."""
    rng = np.random.default_rng(0)
    frames = []
    for k in range(12):
        n = int(rng.integers(150, 250))
        regime = rng.integers(0, 3, n)
        altitude = np.array([0.0, 10.0, 25.0])[regime] + rng.uniform(-0.004, 0.004, n)
        frames.append(
            pd.DataFrame(
                {
                    "machine_id": f"m{k:02d}",
                    "cycle": np.arange(1, n + 1),
                    "setting_a" if named else "a": altitude,
                    "setting_b" if named else "b": np.array([0.0, 0.25, 0.84])[rng.integers(0, 3, n)]
                    + rng.uniform(-0.001, 0.001, n),
                    "vibration": rng.normal(size=n) + np.linspace(0, 1, n),
                    "heat": 20 + 5 * regime + rng.normal(size=n),
                    "pressure_step": np.array([1.5, 2.5, 4.5])[regime],
                    "ambient_pressure_gauge": 101.3,
                    "plant": "north" if k % 2 else "south",
                    "remark": "fine",
                }
            )
        )
    return pd.concat(frames)


def battery_table() -> pd.DataFrame:
    cycles = [
        pd.DataFrame(
            {
                "Battery": f"B{b}",
                "cycle_no": k,
                "time_in_s": np.arange(0.0, 3000 - 20 * k, 10),
                "voltage": np.linspace(4.2, 2.4, len(np.arange(0.0, 3000 - 20 * k, 10))),
                "capacity_in_Ah": 2.0 - 0.01 * k,
            }
        )
        for b in range(3)
        for k in range(1, 21)
    ]
    return pd.concat(cycles)


def save(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_csv(path, index=False)
    return path


def test_engine_columns_are_recognised(tmp_path: Path) -> None:
    guess = propose(save(engine_table(), tmp_path / "fleet.csv"))
    columns = guess.columns
    assert (columns.task, columns.unit, columns.time, columns.site) == ("rul", "machine_id", "cycle", "plant")
    assert (columns.target, columns.failed, columns.cycle) == (None, None, None)
    assert guess.conditions == {"setting_a": 0, "setting_b": 2}
    assert columns.sensors == ("vibration", "heat")
    left_out = {"constant": ["ambient_pressure_gauge"], "constant_in_condition": ["pressure_step"], "text": ["remark"]}
    assert guess.left_out == left_out
    assert (guess.units, guess.sites) == (12, ("north", "south"))


def test_settings_are_recognised_by_their_levels(tmp_path: Path) -> None:
    guess = propose(save(engine_table(named=False), tmp_path / "fleet.csv"))
    assert guess.conditions == {"a": 0, "b": 2}


def test_units_are_recognised_without_a_telling_name(tmp_path: Path) -> None:
    frame = engine_table().rename(columns={"machine_id": "x", "plant": "y"})
    columns = propose(save(frame, tmp_path / "fleet.csv")).columns
    assert (columns.unit, columns.time, columns.site) == ("x", "cycle", "y")
    one = frame[frame["x"] == "m03"].drop(columns="x").assign(engine_type="V8")
    columns = propose(save(one, tmp_path / "fleet.csv")).columns
    assert (columns.time, columns.sensors) == ("cycle", ("vibration", "heat"))


def test_battery_columns_are_recognised(tmp_path: Path) -> None:
    guess = propose(save(battery_table(), tmp_path / "cells.csv"))
    columns = guess.columns
    assert (columns.task, columns.unit, columns.time, columns.cycle) == ("soh", "Battery", "time_in_s", "cycle_no")
    assert (columns.target, columns.sensors) == ("capacity_in_Ah", ("voltage",))
    assert (guess.lengths.shortest_cycle, guess.lengths.levels) == (2590, "voltage")


def test_only_the_part_under_load_is_read(tmp_path: Path) -> None:
    """A voltage recovers once the load is off: samples after that say nothing about the capacity."""
    frame = battery_table().reset_index(drop=True)
    frame.loc[frame["voltage"] < 2.7, "voltage"] = 3.3
    guess = propose(save(frame, tmp_path / "cells.csv"))
    under_load = frame[frame["voltage"] < 3.3].groupby(["Battery", "cycle_no"])["time_in_s"].max().min()
    assert (guess.lengths.shortest_cycle, guess.lengths.levels) == (under_load, "voltage")


def test_a_cell_with_few_cycles_keeps_fewer_out_for_the_test(tmp_path: Path) -> None:
    """Twenty are left to train on: sums of fewer never leave a client."""
    more = battery_table().assign(cycle_no=lambda table: table["cycle_no"] + 20)
    frame = pd.concat([battery_table(), more[more["cycle_no"] <= 25]])
    text = experiment_toml(propose(save(frame, tmp_path / "cells.csv")), tmp_path)
    assert config.parse(tomllib.loads(text), "text").data.test_fraction == 0.2  # type: ignore[attr-defined]
    assert 'by = "unit"' in text


def test_cycles_without_common_levels_are_read_on_a_grid(tmp_path: Path) -> None:
    """One cell is far more worn than the others: when its discharges end, theirs have hardly begun."""
    frame = battery_table().reset_index(drop=True)
    frame.loc[frame["Battery"] == "B1", "time_in_s"] /= 10
    guess = propose(save(frame, tmp_path / "cells.csv"))
    assert (guess.lengths.shortest_cycle, guess.lengths.levels) == (259, None)
    rising = battery_table().assign(voltage=lambda table: 6.6 - table["voltage"])
    assert propose(save(rising, tmp_path / "charged.csv")).lengths.levels is None


def test_a_current_that_is_held_constant_is_no_sensor(tmp_path: Path) -> None:
    """It breaks off with the discharge, and a model that learnt from its last digits is off by far then."""
    frame = battery_table().reset_index(drop=True)
    noise = 0.004 * np.sin(np.arange(len(frame)))
    frame["current_in_A"] = np.where(frame["voltage"] > 4.1, 0.0, -2.0 + noise)
    guess = propose(save(frame, tmp_path / "cells.csv"))
    assert (guess.columns.sensors, guess.left_out) == (("voltage",), {"held": ["current_in_A"]})
    frame.loc[frame["Battery"] == "B1", "current_in_A"] *= 2  # another load: that matters
    guess = propose(save(frame, tmp_path / "cells.csv"))
    assert guess.columns.sensors == ("voltage", "current_in_A")
    given = propose(tmp_path / "cells.csv", {"sensors": ["current_in_A"]})
    assert given.columns.sensors == ("current_in_A",)


def test_labels_and_failures_are_recognised(tmp_path: Path) -> None:
    frame = engine_table().reset_index(drop=True)
    frame["RUL"] = frame.groupby("machine_id")["cycle"].transform("max") - frame["cycle"]
    frame["failed"] = (frame["RUL"] == 0).astype(int)
    columns = propose(save(frame, tmp_path / "fleet.csv")).columns
    assert (columns.target, columns.failed) == ("RUL", "failed")


def test_lifespans_are_those_of_machines_that_failed(tmp_path: Path) -> None:
    frame = engine_table().reset_index(drop=True)
    ends = frame.groupby("machine_id")["cycle"].max()
    still = ends.index[: len(ends) // 2]
    cut = frame[(frame["cycle"] <= 8) | ~frame["machine_id"].isin(still)].copy()
    cut["failed"] = (~cut["machine_id"].isin(still)).astype(int)
    guess = propose(save(cut, tmp_path / "fleet.csv"))
    assert guess.columns.failed == "failed"
    assert guess.lengths.median_life == ends.drop(still).median()
    assert guess.lengths.short_life == ends.drop(still).quantile(0.1)
    assert propose(tmp_path / "fleet.csv", {"failed": None}).columns.failed is None


@pytest.mark.parametrize("table", [engine_table, battery_table])
def test_the_experiment_file_is_valid_and_its_data_readable(tmp_path: Path, table) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "data").mkdir()
    guess = propose(save(table(), tmp_path / "data" / "fleet.csv"))
    path = write_experiment(guess, tmp_path / "fleet.toml")
    name, experiment, folder = config.load(path)
    assert (name, experiment.data.kind, experiment.data.path) == ("fleet", "table", "data/fleet.csv")
    assert len(read_table(folder / experiment.data.path, guess.columns)) == guess.units
    assert next(iter(experiment.partition.values())).by == ("column" if guess.sites else "random")
    if guess.columns.task == "soh":  # the linear head sees what the ridge beside it sees
        sections = experiment.dump()
        assert sections["federation"]["direct"]["steps"] == sections["recipe"]["level_points"]


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    text = experiment_toml(propose(save(engine_table(), tmp_path / "fleet.csv")), tmp_path)
    comments = " ".join(line for line in text.splitlines() if line.startswith("# "))
    assert all(column in comments for column in ("ambient_pressure_gauge", "pressure_step", "remark"))
    parsed = tomllib.loads(text)
    assert parsed["data"]["path"] == "fleet.csv"
    assert parsed["recipe"]["conditions"] == {"setting_a": 0, "setting_b": 2}
    assert parsed["recipe"]["history"] == "life"  # cycles begin at 1
    late = engine_table().assign(cycle=lambda frame: frame["cycle"] + 50)
    other = tomllib.loads(experiment_toml(propose(save(late, tmp_path / "late.csv")), tmp_path))
    assert 25 <= other["recipe"]["history"] <= 35
    assert parsed["partition"] == {"by": "column", "column": "site"}


def test_a_sensor_with_a_few_blanks_is_kept_and_a_mostly_blank_one_left_out(tmp_path: Path) -> None:
    frame = engine_table().reset_index(drop=True).assign(never=float("nan"))
    frame.loc[[15, 40], "vibration"] = float("nan")
    guess = propose(save(frame, tmp_path / "fleet.csv"))
    assert guess.columns.sensors == ("vibration", "heat")
    assert guess.gaps == {"vibration": "2 missing, first in line 17"}
    assert guess.left_out["blank"] == ["never (no value at all)"]
    text = experiment_toml(guess, tmp_path)
    assert "# vibration: 2 missing, first in line 17" in text
    assert "never (no value at all)" in text
    assert tomllib.loads(text)["data"]["missing"] == "hold"


def test_odd_column_names_survive(tmp_path: Path) -> None:
    odd = {"setting_a": 'setting "a" [m]', "vibration": "Schwingung µm/s", "remark": "what\nwas = seen"}
    frame = engine_table().rename(columns=odd)
    guess = propose(save(frame.drop(columns="plant"), tmp_path / "fleet.csv"))
    parsed = tomllib.loads(experiment_toml(guess, tmp_path))
    assert parsed["data"]["settings"] == ['setting "a" [m]', "setting_b"]
    assert parsed["recipe"]["conditions"]['setting "a" [m]'] == 0
    assert parsed["data"]["sensors"][0] == "Schwingung µm/s"
    assert parsed["partition"] == {"by": "random", "clients": 3}


def test_an_experiment_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    guess = propose(save(engine_table(), tmp_path / "fleet.csv"))
    path = default_path(guess.path)
    path.write_text("mine")
    with refuses(OutputError, "--force"):
        write_experiment(guess, path)
    assert path.read_text() == "mine"
    write_experiment(guess, path, force=True)
    assert "[data]" in path.read_text()


def test_tables_without_time_or_sensors_are_refused(tmp_path: Path) -> None:
    frame = engine_table().sample(frac=1, random_state=0).rename(columns={"cycle": "x"})
    with refuses(DataError, "fleet.csv", "time"):
        propose(save(frame, tmp_path / "fleet.csv"))
    with refuses(DataError, "fleet.csv", "sensor"):
        propose(save(engine_table()[["machine_id", "cycle"]], tmp_path / "fleet.csv"))
    with refuses(DataError, "none.csv"):
        propose(tmp_path / "none.csv")


@pytest.mark.parametrize("still_run", [False, True])
def test_columns_worked_out_from_the_end_are_no_sensors_and_a_share_of_life_is_no_remaining_life(
    tmp_path: Path, still_run: bool
) -> None:
    frame = engine_table().reset_index(drop=True)
    life = frame.groupby("machine_id")["cycle"].transform("max")
    leaks = {"remaining_percent": (100 * (1 - frame["cycle"] / life)).round(), "used": frame["cycle"] / life}
    leaks |= {"label": (life - frame["cycle"]).clip(upper=90), "age_at_end": life}
    leaks |= {"health": 1 - frame["cycle"] / life, "fails_soon": (life - frame["cycle"] < 30).astype(int)}
    table = frame.assign(**leaks, age_in_h=2.0 * frame["cycle"] + 3)
    if still_run:
        first = table["machine_id"] == table["machine_id"].iloc[0]
        table = table[~first | (frame["cycle"] <= 60)].assign(failed=(~first).astype(int))
    guess = propose(save(table, tmp_path / "fleet.csv"))
    assert (guess.columns.target, set(guess.left_out["answer"])) == (None, set(leaks))
    assert guess.columns.sensors == ("vibration", "heat")
    assert guess.left_out["clock"] == ["age_in_h"]
    assert "used" in (propose(tmp_path / "fleet.csv", {"sensors": ["used"]}).columns.sensors or ())


@pytest.mark.parametrize(
    "names", [("maszyna", "cykl", "zakład"), ("macchina", "cicli", "stabilimento"), ("machine", "uren", "klant")]
)
def test_headers_in_other_languages(tmp_path: Path, names: tuple[str, str, str]) -> None:
    frame = engine_table().rename(columns=dict(zip(("machine_id", "cycle", "plant"), names, strict=True)))
    columns = propose(save(frame, tmp_path / "fleet.csv")).columns
    assert (columns.unit, columns.time, columns.site) == names
    assert columns.time_measure in ("cycles", "hours")


def test_of_two_owners_the_one_of_several_units_is_taken(tmp_path: Path) -> None:
    frame = engine_table().assign(site=lambda f: f["machine_id"] + "-s").rename(columns={"plant": "kunde"})
    guess = propose(save(frame, tmp_path / "fleet.csv"))
    assert (guess.columns.site, guess.sites) == ("kunde", ("north", "south"))


def test_a_counter_of_rows_is_no_counter_of_lives(tmp_path: Path) -> None:
    frame = engine_table().rename(columns={"machine_id": "MACHINE_ID", "cycle": "RUN_NO", "plant": "PLANT"})
    columns = propose(save(frame, tmp_path / "fleet.csv")).columns
    assert (columns.unit, columns.time, columns.site, columns.life) == ("MACHINE_ID", "RUN_NO", "PLANT", None)


def test_who_works_on_a_machine_is_no_part_of_its_name(tmp_path: Path) -> None:
    frame = engine_table()
    frame["operator"] = np.random.default_rng(1).choice(["Ann", "Bob", "Cy"], len(frame))
    guess = propose(save(frame, tmp_path / "fleet.csv"))
    assert (guess.units, guess.columns.site) == (12, "plant")


def test_a_clock_that_runs_on_from_unit_to_unit_says_nothing_of_their_ages(tmp_path: Path) -> None:
    frame = engine_table()
    alone = propose(save(frame, tmp_path / "fleet.csv"))
    frame["cycle"] = np.arange(1, len(frame) + 1)
    running_on = propose(save(frame, tmp_path / "fleet.csv"))
    assert running_on.lengths.median_life == pytest.approx(alone.lengths.median_life, rel=0.02)
    assert not running_on.lengths.from_new


def test_elapsed_times_go_past_a_day(tmp_path: Path) -> None:
    frame = engine_table()
    minutes = 90 * frame["cycle"]
    frame["cycle"] = [f"{m // 60}:{m % 60:02d}:00" for m in minutes]
    guess = propose(save(frame, tmp_path / "fleet.csv"))
    assert (guess.columns.time, guess.columns.time_measure, guess.lengths.from_new) == ("cycle", "hours", True)
    unit = read_table(tmp_path / "fleet.csv", guess.columns)["m00"]
    assert unit.time[:3].tolist() == [1.5, 3.0, 4.5]
    assert unit.time[-1] == 1.5 * unit.rows
    without_format = guess.columns.model_copy(update={"time_format": None})
    assert read_table(tmp_path / "fleet.csv", without_format)["m00"].time.tolist() == unit.time.tolist()


@pytest.mark.parametrize("minutes", [60, 61])
def test_midnight_begins_no_life(tmp_path: Path, minutes: int) -> None:
    frame = engine_table()
    passed = minutes * frame["cycle"]
    frame["cycle"] = [f"{m // 60 % 24:02d}:{m % 60:02d}:00" for m in passed]
    with refuses(DataError, "within every unit"):
        propose(save(frame, tmp_path / "fleet.csv"))


def test_rows_without_a_machine_and_machines_of_several_owners_are_refused(tmp_path: Path) -> None:
    frame = engine_table().reset_index(drop=True)
    other = {"north": "south", "south": "north"}[frame.loc[40, "plant"]]
    blank = frame.assign(machine_id=frame["machine_id"].where(frame.index != 40))
    sold = frame.assign(plant=frame["plant"].where(frame.index < 40, other).where(frame.index < 60, frame["plant"]))
    for table, role in ((blank, "machine_id"), (sold, "plant")):
        columns = propose(save(table, tmp_path / "fleet.csv")).columns
        assert (columns.unit, columns.site) == ("machine_id", "plant")
        with refuses(DataError, "fleet.csv", "line 42", role):
            read_table(tmp_path / "fleet.csv", columns)


@pytest.mark.parametrize(
    ("column", "option"), [("machine_id", "--unit -"), ("plant", "--site -"), ("rul", "--target -"), (None, "--unit")]
)
def test_a_refusal_names_the_option_of_init(tmp_path: Path, column: str | None, option: str) -> None:
    frame = engine_table().reset_index(drop=True)
    frame["rul"] = frame.groupby("machine_id")["cycle"].transform("max") - frame["cycle"]
    if column is None:
        frame = pd.concat([frame[:41], frame[40:]]).assign(temp=np.arange(len(frame) + 1) % 7 + 0.5)
    else:
        frame[column] = frame[column].where(frame.index != 40)
    with refuses(DataError, "fleet.csv", "line 4", f"init {option}"):
        read_table(tmp_path / "fleet.csv", propose(save(frame, tmp_path / "fleet.csv")).columns)


def test_files_of_owners_may_differ_in_their_columns(tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    for plant, part in engine_table().groupby("plant"):
        columns = ["plant", *(["heat"] if plant == "south" else [])]
        save(part.drop(columns=columns), tmp_path / "fleet" / f"{plant}.csv")
    guess = propose(tmp_path / "fleet")
    assert "heat" not in (guess.columns.sensors or ())
    assert guess.left_out["absent"] == ["heat (not in south.csv)"]
    assert len(read_table(tmp_path / "fleet", guess.columns)) == 12


def test_a_sensor_called_after_its_plant_is_no_owner_and_classes_of_life_are_no_label(tmp_path: Path) -> None:
    frame = engine_table().rename(columns={"plant": "owner"})
    left = frame.groupby("machine_id")["cycle"].transform("max") - frame["cycle"]
    frame["RUL_class"] = np.where(left < 30, "red", "green")
    frame = frame.assign(**{"plant 3 pressure": 518.67, "plant 3 speed": 2388})
    columns = propose(save(frame, tmp_path / "fleet.csv")).columns
    assert (columns.site, columns.target) == ("owner", None)


def test_machines_that_every_owner_counts_from_one_are_told_apart(tmp_path: Path) -> None:
    frame = engine_table().sort_values(["plant", "machine_id"], kind="stable").rename(columns={"plant": "whose"})
    frame["machine_id"] = frame.groupby("whose")["machine_id"].transform(lambda names: pd.factorize(names)[0] + 1)
    guess = propose(save(frame, tmp_path / "fleet.csv"))
    assert (guess.units, guess.columns.site, guess.columns.new_life) == (12, "whose", None)


def test_a_clock_that_counts_down_to_the_failure_gives_a_cap(tmp_path: Path) -> None:
    frame = engine_table()
    frame["cycle"] -= frame.groupby("machine_id")["cycle"].transform("max")
    guess = propose(save(frame, tmp_path / "fleet.csv"))
    assert guess.lengths.short_life > 100
