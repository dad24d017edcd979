"""A fleet as a folder of plain arrays: how worker processes get their clients. And a digest of a fleet's data."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.files import replacing
from fedprognos.fleet.unit import Fleet, Schema, Unit

ROWS = ("time", "sensors", "settings")
OPTIONAL = ("target", "cycles", "cycle_numbers")


def save_fleet(folder: Path, fleet: Fleet) -> None:
    """Write a fleet; :func:`load_fleet` gives it back bit for bit."""
    units: list[dict[str, Any]] = []
    optional: dict[str, Any] = {}
    for k, unit in enumerate(fleet):
        head = {"id": unit.id, "rows": unit.rows, "failed": unit.failed, "rul_at_end": unit.rul_at_end}
        units.append({**head, "attributes": dict(unit.attributes)})
        optional |= {f"{name}.{k}": value for name in OPTIONAL if (value := getattr(unit, name)) is not None}
    header = {"name": fleet.name, "source": fleet.source, "notes": fleet.notes, "schema": asdict(fleet.schema)}
    with replacing(folder) as temporary:
        temporary.mkdir()
        (temporary / "fleet.json").write_text(json.dumps({**header, "units": units}), encoding="utf-8")
        for name in ROWS:
            np.save(temporary / f"{name}.npy", np.concatenate([getattr(unit, name) for unit in fleet]))
        np.savez(temporary / "optional.npz", **optional)


def load_fleet(folder: Path) -> Fleet:
    """Read what :func:`save_fleet` wrote. Rows are mapped into memory, so that many fleets cost little of it."""
    header = json.loads((folder / "fleet.json").read_text("utf-8"))
    # Copied where they are written to: the file stays as it is.
    rows: dict[str, Any] = {n: np.load(folder / f"{n}.npy", mmap_mode="c", allow_pickle=False) for n in ROWS}
    units, start = [], 0
    with np.load(folder / "optional.npz", allow_pickle=False) as optional:
        for k, unit in enumerate(header["units"]):
            stop = start + unit.pop("rows")
            arrays: dict[str, Any] = {name: np.asarray(rows[name][start:stop]) for name in ROWS}
            arrays |= {name: optional[f"{name}.{k}"] for name in OPTIONAL if f"{name}.{k}" in optional.files}
            units.append(Unit(**unit, **arrays))
            start = stop
    schema: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in header["schema"].items()}
    return Fleet(header["name"], Schema(**schema), tuple(units), header["source"], tuple(header["notes"]))


def fleet_digest(fleet: Fleet, secret: bytes = b"") -> str:
    """Changes with every value of every unit: rows, operating settings, labels, cycles, names, how a life ended.

    Results and agreements about other data must not be taken for those about this.

    Parameters
    ----------
    secret
        With a secret the digest tells nothing to whoever does not have it.
    """
    digest = hmac.new(secret, digestmod=hashlib.sha256)
    for unit in fleet:
        attributes = sorted((k, repr(v)) for k, v in unit.attributes.items())
        digest.update(repr((unit.id, unit.failed, unit.rul_at_end, attributes)).encode())
        for array in (unit.time, unit.sensors, unit.settings, unit.target, unit.cycles, unit.cycle_numbers):
            digest.update(b"-" if array is None else repr((array.dtype.str, array.shape)).encode())
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
