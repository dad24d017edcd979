"""NASA's battery files in both layouts people have: one CSV file a cycle beside `metadata.csv`, or `.mat` files.

The public data set is read from them, and so are the files of other cells that people keep in the same layouts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.tables.csv_format import read_exact_csv

METADATA = "metadata.csv"
_LISTED = ("type", "ambient_temperature", "battery_id", "filename", "Capacity")
_SAMPLES = ("Time", "Voltage_measured", "Temperature_measured", "Current_measured")
_NAME = re.compile(r"^(B\d{4})\.mat$")
AGAIN = "run: fedprognos data get nasa-battery --force"


@dataclass(frozen=True, eq=False)
class Discharge:
    """One discharge cycle; `capacity` is NaN where the data does not give it."""

    number: int
    ambient_in_celsius: float
    capacity: float
    time: FloatArray
    voltage: FloatArray
    temperature: FloatArray
    current: FloatArray


@dataclass(frozen=True, eq=False)
class Inventory:
    """One battery as listed and as found.

    Parameters
    ----------
    battery
        Id such as B0006.
    listed
        Discharge cycles the data set names.
    present
        Of those, how many have their samples here.
    without_capacity
        Of those, how many give no capacity.
    read
        Reads the present ones.
    """

    battery: str
    listed: int
    present: int
    without_capacity: int
    read: Callable[[], list[Discharge]]


def csv_inventory(folder: Path) -> tuple[Inventory, ...]:
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
    except (ValueError, OverflowError):  # a text, or a whole number of hundreds of digits
        for column in _SAMPLES:
            numbers = pd.to_numeric(frame[column].astype(str), errors="coerce")
            bad = np.flatnonzero(~np.isfinite(numbers) & frame[column].notna())
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


def find_mat_files(folder: Path) -> dict[str, Path]:
    """Battery id and file, at any depth; of two copies (the archive holds some twice) the first by path counts."""
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("B*.mat")):
        match = _NAME.match(path.name)
        if match:
            files.setdefault(match[1], path)
    return files


def mat_inventory(files: dict[str, Path]) -> tuple[Inventory, ...]:
    """Every battery that has a file; a `.mat` file lists what it holds, so only single cycles can be missing."""
    entries = []
    for battery, path in sorted(files.items()):
        cycles = _discharges(path, battery)
        entries.append(
            Inventory(
                battery=battery,
                listed=len(cycles),
                present=sum(len(c.time) > 0 for c in cycles),
                without_capacity=sum(not np.isfinite(c.capacity) for c in cycles),
                read=partial(list, cycles),
            )
        )
    return tuple(entries)


def _discharges(path: Path, battery: str) -> list[Discharge]:
    from scipy.io import loadmat  # loading it takes a third of a second, and only these files need it
    from scipy.io.matlab import MatReadError

    try:
        content = loadmat(path, squeeze_me=True, struct_as_record=False, variable_names=[battery])
    except (ValueError, OSError, NotImplementedError, TypeError, EOFError, KeyError, MatReadError) as error:
        raise DataError(f"not a readable MATLAB file: {error}", where=str(path), hint="download it again") from None
    if battery not in content:
        raise DataError(f"holds no variable '{battery}'", where=str(path), hint="the file may have been renamed")
    cycles = [
        c for c in _records(content[battery], "cycle", path) if str(getattr(c, "type", "")).strip() == "discharge"
    ]
    return [_discharge(cycle, number, path) for number, cycle in enumerate(cycles, start=1)]


def is_cycle_list(path: Path) -> bool:
    """Whether a file lists cycles whose samples lie in the folder `data` beside it."""
    return path.name == METADATA and (path.parent / "data").is_dir()


def read_cycles(path: Path) -> pd.DataFrame:
    """All discharge cycles of a `.mat` file, or of the cells that a list of cycles names, as rows of samples."""
    if path.suffix.lower() == ".mat":
        return _frame(_discharges(path, path.stem), path)
    cells = [(cell, _frame(cell.read(), path)) for cell in csv_inventory(path.parent) if cell.present]
    if not cells:
        raise DataError("lists no cycle whose file is there", where=str(path), hint="copy the folder data, too")
    return pd.concat([frame.assign(battery=cell.battery) for cell, frame in cells], ignore_index=True)


def _frame(cycles: list[Discharge], path: Path) -> pd.DataFrame:
    if not cycles:
        raise DataError("holds no discharge cycle", where=str(path), hint="is it one of NASA's battery files?")
    parts = [
        pd.DataFrame(
            {
                "cycle": c.number,
                "time_in_s": c.time,
                "voltage_in_V": c.voltage,
                "temperature_in_C": c.temperature,
                "current_in_A": c.current,
                "ambient_in_C": c.ambient_in_celsius,
                "capacity_in_Ah": c.capacity,
            }
        )
        for c in cycles
    ]
    return pd.concat(parts, ignore_index=True)


def _records(struct: Any, field: str, path: Path) -> list[Any]:
    if not hasattr(struct, field):
        raise DataError(f"no field '{field}'", where=str(path), hint="is it one of NASA's battery files?")
    return list(np.atleast_1d(getattr(struct, field)))


def _discharge(cycle: Any, number: int, path: Path) -> Discharge:
    where = f"{path}, discharge cycle {number}"
    data = getattr(cycle, "data", None)
    samples = [_vector(data, name, where) for name in _SAMPLES]
    if len({len(s) for s in samples}) > 1:
        sizes = ", ".join(f"{n}: {len(s)}" for n, s in zip(_SAMPLES, samples, strict=True))
        raise DataError(f"series of different length ({sizes})", where=where, hint=AGAIN)
    capacity = _vector(data, "Capacity", where) if hasattr(data, "Capacity") else np.empty(0)
    ambient = _vector(cycle, "ambient_temperature", where)
    return Discharge(number, float(ambient[0]), float(capacity[0]) if len(capacity) else np.nan, *samples)


def _vector(struct: Any, field: str, where: str) -> FloatArray:
    if not hasattr(struct, field):
        raise DataError(f"no field '{field}'", where=where, hint="is it one of NASA's battery files?")
    try:
        return np.atleast_1d(np.asarray(getattr(struct, field), dtype=np.float64)).ravel()
    except (TypeError, ValueError):
        raise DataError(f"field '{field}' is not numeric", where=where, hint=AGAIN) from None
