"""The per-cycle layout of the NASA batteries: `metadata.csv` and `data/NNNNN.csv`."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.fleet.exact_csv import read_exact_csv
from fedprognos.fleet.readers._nasa_battery_cycles import Discharge, Inventory

METADATA = "metadata.csv"
_LISTED = ("type", "ambient_temperature", "battery_id", "filename", "Capacity")
_SAMPLES = ("Time", "Voltage_measured", "Temperature_measured", "Current_measured")


def inventory(folder: Path) -> tuple[Inventory, ...]:
    """Every battery that `metadata.csv` names, in its order."""
    path = folder / METADATA
    frame = _read(path, _LISTED, text=True)
    frame = frame[frame["type"].str.strip() == "discharge"]
    capacity = pd.to_numeric(frame["Capacity"], errors="coerce").to_numpy(np.float64)
    ambient = pd.to_numeric(frame["ambient_temperature"], errors="coerce").to_numpy(np.float64)
    if not np.isfinite(ambient).all():
        line = int(frame.index[~np.isfinite(ambient)][0]) + 2
        raise DataError("ambient_temperature is not a number", where=f"{path}, line {line}")
    frame = frame.assign(capacity=capacity, ambient=ambient)
    there = {p.name for p in (folder / "data").glob("*.csv")}
    entries = []
    frame["number"] = frame.groupby("battery_id").cumcount() + 1
    for battery, rows in frame.groupby("battery_id", sort=True):
        here = rows[rows["filename"].isin(there)]
        entries.append(
            Inventory(
                battery=str(battery),
                listed=len(rows),
                present=len(here),
                without_capacity=int((~np.isfinite(here["capacity"])).sum()),
                read=partial(_read_cycles, folder / "data", here),
            )
        )
    return tuple(entries)


def _read_cycles(folder: Path, rows: pd.DataFrame) -> list[Discharge]:
    cycles = []
    for name, number, capacity, ambient in zip(
        rows["filename"], rows["number"], rows["capacity"], rows["ambient"], strict=True
    ):
        samples = _samples(folder / str(name))
        cycles.append(Discharge(int(number), float(ambient), float(capacity), *samples.T))
    return cycles


def _samples(path: Path) -> FloatArray:
    frame = _read(path, _SAMPLES)
    try:
        return frame[list(_SAMPLES)].to_numpy(np.float64)
    except ValueError:
        for column in _SAMPLES:
            numbers = pd.to_numeric(frame[column], errors="coerce")
            bad = np.flatnonzero(numbers.isna() & frame[column].notna())
            if bad.size:
                value = frame[column].iloc[int(bad[0])]
                raise DataError(
                    f"'{value}' in column {column} is not a number", where=f"{path}, line {int(bad[0]) + 2}"
                ) from None
        raise


def _read(path: Path, needed: tuple[str, ...], text: bool = False) -> pd.DataFrame:
    try:
        frame = read_exact_csv(path, dtype=str if text else None)
    except (ValueError, csv.Error) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), hint="copy or download it again") from None
    missing = [c for c in needed if c not in frame.columns]
    if missing:
        raise DataError(f"no column '{missing[0]}'", where=str(path), hint=f"columns here: {', '.join(frame.columns)}")
    return frame
