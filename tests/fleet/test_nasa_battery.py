"""The `.mat` files here are built with scipy's savemat in the structure of NASA's files, which are not at hand."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.io

from fedprognos.errors import DataError, DataNotFoundError
from fedprognos.fleet.discharge import cutoff_from_data, end_of_life, samples_before_cutoff
from fedprognos.fleet.readers.nasa_battery import CUTOFF_IN_V, inventory, read_nasa_batteries
from refusals import refuses, warns

SAMPLES = 12


def curve(number: int, lowest: float = 2.45) -> dict[str, np.ndarray]:
    time = np.arange(SAMPLES) * 9.0
    return {
        "Voltage_measured": np.linspace(4.2, lowest, SAMPLES) - 0.001 * number,
        "Current_measured": np.full(SAMPLES, -2.0),
        "Temperature_measured": 24 + 0.1 * time + number,
        "Current_load": np.full(SAMPLES, 2.0),
        "Voltage_load": np.zeros(SAMPLES),
        "Time": time,
    }


def write_csv_layout(folder: Path, batteries: dict[str, list[object]], leave_out: tuple[str, ...] = ()) -> None:
    """One charge before each discharge, as in the real list; `leave_out` are listed but have no file."""
    (folder / "data").mkdir(parents=True)
    rows = []
    for battery, capacities in batteries.items():
        for number, capacity in enumerate(capacities):
            rows.append(("charge", 24, battery, f"{len(rows) + 1:05d}.csv", ""))
            name = f"{len(rows) + 1:05d}.csv"
            rows.append(("discharge", 24, battery, name, capacity))
            if name not in leave_out:
                pd.DataFrame(curve(number)).to_csv(folder / "data" / name, index=False)
    columns = ["type", "ambient_temperature", "battery_id", "filename", "Capacity"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "metadata.csv", index=False)


def struct_array(records: list[dict[str, Any]]) -> np.ndarray:
    fields = list(records[0])
    array = np.empty((1, len(records)), dtype=[(f, object) for f in fields])
    for k, record in enumerate(records):
        array[0, k] = tuple(record[f] for f in fields)
    return array


def write_mat(path: Path, capacities: list[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    when = np.array([[2008.0, 4, 2, 15, 25, 41.593]])
    records: list[dict[str, Any]] = []
    for number, capacity in enumerate(capacities):
        series = {name: values[None, :] for name, values in curve(number).items()}
        charge = {"Voltage_measured": np.ones((1, 4)), "Time": np.arange(4.0)[None, :]}
        records.append({"type": "charge", "ambient_temperature": 24, "time": when, "data": charge})
        data = {**series, "Capacity": capacity}
        records.append({"type": "discharge", "ambient_temperature": 24, "time": when, "data": data})
        records.append({"type": "impedance", "ambient_temperature": 24, "time": when, "data": {"Re": 0.04}})
    scipy.io.savemat(path, {path.stem: {"cycle": struct_array(records)}})


@pytest.mark.needs_data("nasa-battery")
def test_published_facts_of_the_trio_come_out(battery_folder: Path) -> None:
    fleet = read_nasa_batteries(battery_folder, ["B0006", "B0007", "B0018"])
    assert [len(u.positions) for u in fleet] == [168, 168, 132]
    lives = [end_of_life(u) for u in fleet]
    assert [(u.lifespan, u.failed) for u in lives] == [(121, True), (168, False), (122, True)]
    assert [u.attributes["cutoff_in_V"] for u in fleet] == [2.5, 2.2, 2.5]
    assert min(int(samples_before_cutoff(u).min()) for u in fleet) == 171
    assert int(np.argmin(samples_before_cutoff(fleet["B0006"]))) + 1 == 43
    guessed = [cutoff_from_data(u.sensors[:, 0], u.cycles) for u in fleet]
    assert guessed == [2.5, 2.2, 2.5]


def test_both_layouts_give_the_same_unit(tmp_path: Path) -> None:
    capacities: list[object] = [1.9, 1.35, 1.5, 1.3]
    write_csv_layout(tmp_path / "csv", {"B0006": capacities})
    write_mat(tmp_path / "mat" / "1. BatteryAgingARC-FY08Q4" / "B0006.mat", capacities)
    one = read_nasa_batteries(tmp_path / "csv")["B0006"]
    other = read_nasa_batteries(tmp_path / "mat")["B0006"]
    for unit in (one, other):
        assert unit.target.tolist() == capacities
        assert unit.cycle_numbers.tolist() == [1, 2, 3, 4]
        assert unit.cycles.tolist() == [0, 12, 24, 36, 48]
        assert unit.failed
        assert unit.attributes == {
            "ambient_temperature_in_C": 24.0,
            "cutoff_in_V": 2.5,
            "rated_capacity_in_Ah": 2.0,
            "cycles_skipped": 0.0,
        }
    assert np.array_equal(one.sensors, other.sensors)
    assert np.array_equal(one.time, other.time)
    assert np.allclose(one.sensors[:SAMPLES, 1], curve(0)["Temperature_measured"])


def test_life_ends_with_the_last_cycle_above_the_threshold(tmp_path: Path) -> None:
    write_csv_layout(tmp_path, {"B0006": [1.9, 1.35, 1.5, 1.3], "B0007": [1.9, 1.8]})
    fleet = read_nasa_batteries(tmp_path)
    assert (end_of_life(fleet["B0006"]).lifespan, end_of_life(fleet["B0006"]).failed) == (3, True)
    assert (end_of_life(fleet["B0007"]).lifespan, end_of_life(fleet["B0007"]).failed) == (2, False)
    assert end_of_life(fleet["B0006"], 1.6).lifespan == 1
    with refuses(DataError, "3", "1.9"):
        end_of_life(fleet["B0006"], 3.0)


def test_listed_files_that_are_not_there_are_counted_and_warned_about(tmp_path: Path) -> None:
    write_csv_layout(tmp_path, {"B0006": [1.9, 1.8, "[]", 1.7], "B0005": [1.9]}, leave_out=("00004.csv", "00010.csv"))
    with warns("B0006", 2, 4, 1):
        fleet = read_nasa_batteries(tmp_path)
    assert fleet.ids == ("B0006",)
    assert fleet["B0006"].cycle_numbers.tolist() == [1, 4]
    assert fleet["B0006"].attributes["cycles_skipped"] == 2
    assert [(e.battery, e.listed, e.present, e.without_capacity) for e in inventory(tmp_path)] == [
        ("B0005", 1, 0, 0),
        ("B0006", 4, 3, 1),
    ]
    with refuses(DataNotFoundError, "B0005", "B0006"):
        read_nasa_batteries(tmp_path, ["B0005"])


def test_empty_capacity_in_a_mat_file_is_left_out(tmp_path: Path) -> None:
    write_mat(tmp_path / "B0099.mat", [1.9, np.empty((0, 0)), 1.7])
    with warns(1, 3):
        unit = read_nasa_batteries(tmp_path)["B0099"]
    assert unit.cycle_numbers.tolist() == [1, 3]
    assert "B0099" not in CUTOFF_IN_V
    assert unit.attributes["cutoff_in_V"] == 2.5  # guessed: the curves end just below


def test_batteries_come_in_the_order_asked_for_and_others_are_not_read(tmp_path: Path) -> None:
    for battery in ("B0005", "B0006", "B0018"):
        write_mat(tmp_path / f"{battery}.mat", [1.9, 1.8])
    (tmp_path / "B0007.mat").write_bytes(b"damaged")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_nasa_batteries(tmp_path, ["B0018", "B0005"]).ids == ("B0018", "B0005")
    with refuses(DataError, "B0007.mat", "MATLAB"):
        read_nasa_batteries(tmp_path)
    with refuses(DataError):
        read_nasa_batteries(tmp_path, [])


def test_a_mat_file_of_something_else_is_refused(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "B0006.mat", {"other": 1})
    with refuses(DataError, "'B0006'"):
        read_nasa_batteries(tmp_path)
    scipy.io.savemat(tmp_path / "B0006.mat", {"B0006": {"cycles": 1}})
    with refuses(DataError, "'cycle'"):
        read_nasa_batteries(tmp_path)


def test_missing_folder_files_and_columns_are_named(tmp_path: Path) -> None:
    with refuses(DataNotFoundError, "nowhere"):
        read_nasa_batteries(tmp_path / "nowhere")
    with refuses(DataNotFoundError, "metadata.csv"):
        read_nasa_batteries(tmp_path)
    write_csv_layout(tmp_path, {"B0006": [1.9, 1.8]})
    cycle = tmp_path / "data" / "00002.csv"
    text = cycle.read_text()
    cycle.write_text(text.replace("Voltage_measured", "Voltage"))
    with refuses(DataError, "00002.csv", "'Voltage_measured'"):
        read_nasa_batteries(tmp_path)
    cycle.write_text(text.replace("-2.0", "two", 1))
    with refuses(DataError, "line 2", "'two'", "Current_measured"):
        read_nasa_batteries(tmp_path)
    cycle.write_text(text.replace("-2.0", "9" * 400, 1).replace("-2.0", "two", 1))
    with refuses(DataError, "line 2", "999", "Current_measured"):
        read_nasa_batteries(tmp_path)
    cycle.write_text("")
    with refuses(DataError, "00002.csv"):
        read_nasa_batteries(tmp_path)
    cycle.write_text(text.replace("\n", "\n,,,,,\n", 1).replace(",,,,,", "nan,1,1,1,1,-5"))
    with refuses(DataError, "voltage_in_V"):
        read_nasa_batteries(tmp_path)
