"""The official layout of the NASA batteries: one MATLAB file a battery."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from scipy.io.matlab import MatReadError

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.fleet.readers._nasa_battery_cycles import Discharge, Inventory

_NAME = re.compile(r"^(B\d{4})\.mat$")
AGAIN = "run: fedprognos data get nasa-battery --force"
_SAMPLES = ("Time", "Voltage_measured", "Temperature_measured", "Current_measured")


def battery_files(folder: Path) -> dict[str, Path]:
    """Battery id and file, at any depth; of two copies (the archive holds some twice) the first by path counts."""
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("B*.mat")):
        match = _NAME.match(path.name)
        if match:
            files.setdefault(match[1], path)
    return files


def inventory(files: dict[str, Path]) -> tuple[Inventory, ...]:
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
    try:
        content = scipy.io.loadmat(path, squeeze_me=True, struct_as_record=False, variable_names=[battery])
    except (ValueError, OSError, NotImplementedError, TypeError, EOFError, KeyError, MatReadError) as error:
        raise DataError(f"not a readable MATLAB file: {error}", where=str(path), hint="download it again") from None
    if battery not in content:
        raise DataError(f"holds no variable '{battery}'", where=str(path), hint="the file may have been renamed")
    cycles = [
        c for c in _records(content[battery], "cycle", path) if str(getattr(c, "type", "")).strip() == "discharge"
    ]
    return [_discharge(cycle, number, path) for number, cycle in enumerate(cycles, start=1)]


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
