"""A fleet as one .npz file without pickle: how worker processes get their clients."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.files import replacing
from fedprognos.fleet.unit import Fleet, Schema, Unit

ROWS = ("time", "sensors", "settings")
OPTIONAL = ("target", "cycles", "cycle_numbers")


def save_fleet(path: Path, fleet: Fleet) -> None:
    """Write a fleet; :func:`load_fleet` gives it back bit for bit."""
    units = []
    arrays = {name: np.concatenate([getattr(u, name) for u in fleet]) for name in ROWS}
    for k, unit in enumerate(fleet):
        head = {"id": unit.id, "rows": unit.rows, "failed": unit.failed, "rul_at_end": unit.rul_at_end}
        units.append({**head, "attributes": dict(unit.attributes)})
        for name in OPTIONAL:
            if (value := getattr(unit, name)) is not None:
                arrays[f"{name}.{k}"] = value
    text = json.dumps(
        {
            "name": fleet.name,
            "source": fleet.source,
            "notes": fleet.notes,
            "schema": asdict(fleet.schema),
            "units": units,
        }
    )
    arrays["header"] = np.frombuffer(text.encode(), dtype=np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load_fleet(path: Path) -> Fleet:
    """Read what :func:`save_fleet` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        header = json.loads(arrays["header"].tobytes())
        rows = {name: arrays[name] for name in ROWS}
        units, start = [], 0
        for k, unit in enumerate(header["units"]):
            stop = start + unit.pop("rows")
            more = {name: arrays[f"{name}.{k}"] for name in OPTIONAL if f"{name}.{k}" in arrays.files}
            units.append(Unit(**unit, **more, **{name: rows[name][start:stop] for name in ROWS}))
            start = stop
    schema: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in header["schema"].items()}
    return Fleet(header["name"], Schema(**schema), tuple(units), header["source"], tuple(header["notes"]))
