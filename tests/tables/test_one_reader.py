"""Every format and every policy gives the same rows to training and to prediction."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedprognos.fleet import Fleet
from fedprognos.fleet.from_tables import fleet_from_tables
from fedprognos.prognosis.table_prediction import ModelInputs, read_pieces
from fedprognos.tables.columns import TableLayout
from fedprognos.tables.table import Table
from fedprognos.tables.table_files import open_tables, table_from_frame

SENSORS = ("heat", "flow")


def pumps() -> pd.DataFrame:
    """Three pumps, a row an hour, in turn."""
    rng = np.random.default_rng(3)
    hours = np.repeat(np.arange(1, 21), 3)
    return pd.DataFrame(
        {
            "pump": ["a", "b", "007"] * 20,
            "hour": hours,
            "heat": (1000 + hours * 50 + rng.normal(size=60)).round(3),
            "flow": rng.normal(size=60).round(6),
            "load": np.tile([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], 10),
        }
    )


def texts(frame: pd.DataFrame, form: Callable[[float], str]) -> pd.DataFrame:
    return frame.assign(**{c: [form(v) for v in frame[c]] for c in SENSORS})


def with_marks(frame: pd.DataFrame) -> pd.DataFrame:
    """German numbers: 1.234,5."""
    return texts(frame, lambda v: f"{v:,.6f}".translate(str.maketrans(",.", ".,")))


def blanked(frame: pd.DataFrame, cells: dict[int, str]) -> pd.DataFrame:
    frame = frame.astype({"heat": object})
    for row, text in cells.items():
        frame.loc[row, "heat"] = text
    return frame


def dated(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(
        hour=[f"{d:%d.%m.%Y %H:%M}" for d in pd.Timestamp("2024-03-20") + pd.to_timedelta(frame["hour"], "h")]
    )


def repaired(frame: pd.DataFrame) -> pd.DataFrame:
    """Every pump fails at hour 12 and starts again at hour 1."""
    return frame.assign(hour=np.where(frame["hour"] > 12, frame["hour"] - 12, frame["hour"]))


def cycled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(cycle=(frame["hour"] - 1) // 5 + 1, hour=(frame["hour"] - 1) % 5, soh=1.0)


GAPS = {4: "", 7: "", 21: "", 22: "", 58: ""}
POLICIES: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], dict[str, Any]]] = {
    "plain": (lambda f: f, {}),
    "blank texts": (lambda f: blanked(f, {5: "err", 9: "err", 30: "NA"}), {"blanks": ("err",)}),
    "blank numbers": (lambda f: blanked(f, {5: "-999", 9: "-999"}), {"blanks": ("-999",)}),
    "decimal commas": (with_marks, {"decimal": ",", "thousands": "."}),
    "dates": (dated, {"time_measure": "hours"}),
    "lives by time": (repaired, {"new_life": "time"}),
    "lives by column": (lambda f: repaired(f).assign(life=np.where(f["hour"] > 12, 2, 1)), {"life": "life"}),
    "lives by failure": (
        lambda f: f.assign(dead=(f["hour"] == 12).astype(int)),
        {"new_life": "failed", "failed": "dead"},
    ),
    "cycles": (cycled, {"task": "soh", "cycle": "cycle", "target": "soh"}),
    "repeated rows": (lambda f: pd.concat([f, f.iloc[10:14], f.iloc[[59]]], ignore_index=True), {}),
    "hold": (lambda f: blanked(f, GAPS), {"missing": "hold"}),
    "interpolate": (lambda f: blanked(f, GAPS), {"missing": "interpolate"}),
    "mean": (lambda f: blanked(f, GAPS), {"missing": "mean"}),
    "refuse": (lambda f: f, {"missing": "refuse"}),
    "blanks in names": (lambda f: f.rename(columns={"heat": " heat", "pump": "pump "}), {}),
    "numbered units": (lambda f: f.assign(pump=f["pump"].map({"a": 1.0, "b": 2.0, "007": 3.0})), {}),
    "plants that number alike": (lambda f: f.assign(pump=1, plant=f["pump"]), {"site": "plant"}),
    "shuffled": (lambda f: f.sample(frac=1, random_state=0), {"sort": True}),
}


def csv_file(frame: pd.DataFrame, folder: Path) -> list[Table | Path]:
    frame.to_csv(folder / "rows.csv", index=False, sep=";")
    return [folder / "rows.csv"]


def packed(frame: pd.DataFrame, folder: Path) -> list[Table | Path]:
    (folder / "rows.csv.gz").write_bytes(gzip.compress(frame.to_csv(index=False, sep=";").encode()))
    return [folder / "rows.csv.gz"]


def tabs(frame: pd.DataFrame, folder: Path) -> list[Table | Path]:
    frame.to_csv(folder / "rows.tsv", index=False, sep="\t")
    return [folder / "rows.tsv"]


def excel(frame: pd.DataFrame, folder: Path) -> list[Table | Path]:
    frame.to_excel(folder / "rows.xlsx", index=False)
    return [folder / "rows.xlsx"]


def parquet(frame: pd.DataFrame, folder: Path) -> list[Table | Path]:
    mixed = {c: str for c in frame.columns if frame[c].dtype == object}
    frame.astype(mixed).to_parquet(folder / "rows.parquet", index=False)
    return [folder / "rows.parquet"]


def in_memory(frame: pd.DataFrame, folder: Path) -> list[Table | Path]:
    return [table_from_frame(frame, "rows")]


def folder_of_files(frame: pd.DataFrame, folder: Path) -> list[Table | Path]:
    (folder / "rows").mkdir()
    half = len(frame) // 2
    frame[:half].to_csv(folder / "rows" / "1.csv", index=False)
    frame[half:].to_csv(folder / "rows" / "2.csv", index=False)
    return [folder / "rows"]


FORMATS = [csv_file, packed, tabs, excel, parquet, in_memory, folder_of_files]


def opened(source: list[Table | Path], layout: TableLayout) -> list[Table]:
    """Tables anew: each is read once."""
    (only,) = source
    if isinstance(only, Table):
        return [table_from_frame(FRAMES["frame"], "rows", layout)]
    return open_tables(only, layout, layout.text)


FRAMES: dict[str, pd.DataFrame] = {}


def trained_rows(fleet: Fleet) -> dict[str, list[list[float]]]:
    """Sensors and settings of each unit."""
    return {unit.id: np.column_stack([unit.sensors, unit.settings]).tolist() for unit in fleet}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("write", FORMATS, ids=lambda w: w.__name__)
def test_training_and_prediction_read_the_same_rows(
    tmp_path: Path, write: Callable[[pd.DataFrame, Path], list[Table | Path]], policy: str
) -> None:
    change, options = POLICIES[policy]
    numbers_of_text = write in (excel, parquet, in_memory) and policy == "decimal commas"
    if numbers_of_text:
        pytest.skip("only text files have marks in numbers")
    if write is folder_of_files and policy in ("shuffled", "repeated rows", "lives by column"):
        pytest.skip("each file is sorted, and has its rows once, for itself")
    frame = FRAMES["frame"] = change(pumps())
    source = write(frame, tmp_path)
    layout = TableLayout(**{"unit": "pump", "time": "hour", "sensors": SENSORS, "settings": ("load",), **options})
    fleet = fleet_from_tables(opened(source, layout), layout, name="rows")
    inputs = ModelInputs(
        fleet.schema.sensors,
        fleet.schema.settings,
        layout.task == "soh",
        fleet.schema.time_measure,
        layout.policies((*SENSORS, "load")),
        layout,
    )
    tables = opened(source, layout)
    read: dict[str, list[list[float]]] = {}
    times: dict[str, list[float]] = {}
    for rows, _ in read_pieces(inputs.reader(tables), tables, 7):
        for k, unit in enumerate(rows.units):
            read.setdefault(unit, []).append([*rows.sensors[k], *rows.settings[k]])
            times.setdefault(unit, []).append(float(rows.times[k]))
    assert sum(map(len, read.values())) == 60 == fleet.rows
    trained = trained_rows(fleet)
    assert list(read) == list(trained)
    for unit in fleet:
        expected, found = np.array(trained[unit.id]), np.array(read[unit.id])
        known = ~np.isnan(found)  # a stream fills blanks as rows come in
        np.testing.assert_array_equal(found[known], expected[known])
        # Prediction answers in the machine's own clock; training counts each life, and dates, from their beginning.
        goes_on = "time_measure" in options or policy == "lives by failure"
        start = times[unit.id][0] - unit.time[0] if goes_on else 0.0
        assert unit.time.tolist() == pytest.approx([time - start for time in times[unit.id]])
    blanks = sum(int(np.isnan(rows).any(axis=1).sum()) for rows in map(np.array, read.values()))
    expected_blanks = {"blank texts": 3, "blank numbers": 2, "hold": 5, "interpolate": 5, "mean": 5}
    assert blanks == expected_blanks.get(policy, 0)
    if write in (csv_file, packed, tabs):
        heat = pumps().loc[lambda f: f["pump"] == "b", "heat"].tolist()
        present = [row[0] for unit in ("b", "b#2", "2") for row in read.get(unit, [])]
        assert [v for v in present if not np.isnan(v)] == [h for h in heat if h in present]
