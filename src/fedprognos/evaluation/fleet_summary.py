"""What the report shows of a fleet: sizes, lifespans, and a few units to look at.

It holds samples of the data, so it is written where the data is and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import IntArray
from fedprognos.features import Recipe, health_labels
from fedprognos.fleet import MACHINE, START, Fleet, Unit

UNITS_A_CLIENT = 3
CYCLES_A_UNIT = 6
POINTS = 300
"""Most points of a drawn line; longer ones are thinned."""


def fleet_summary(clients: Mapping[str, Fleet], tests: Mapping[str, Fleet], recipe: Recipe) -> dict[str, Any]:
    """Plain values for a file in fleets/: one scenario's clients, test fleets and sample units."""
    schema = next(iter(clients.values())).schema
    drawn = [(name, unit) for name, fleet in sorted(clients.items()) for unit in _spread(fleet)]
    cyclic = schema.task == "soh"
    return {
        "schema": {**asdict(schema), "target": recipe.target, "target_measure": recipe.target_measure},
        "notes": list(dict.fromkeys(note for _, fleet in sorted(clients.items()) for note in fleet.notes)),
        "clients": {name: _facts(fleet) for name, fleet in sorted(clients.items())},
        "tests": {name: _facts(fleet) for name, fleet in sorted(tests.items())},
        "new_to_owner": new_to_owner(clients, tests),
        "series": [] if cyclic else [_series(name, unit, recipe, clients[name]) for name, unit in drawn],
        "cycles": [c for name, fleet in sorted(clients.items()) for c in _cycles(name, _spread(fleet)[0], fleet)],
        "degradation": [
            line
            for part, fleets in (("train", clients), ("test", tests if cyclic else {}))
            for name, fleet in sorted(fleets.items())
            for unit in (fleet if cyclic else _spread(fleet))
            for line in _degradation(name, unit, recipe, part)
        ],
    }


def new_to_owner(clients: Mapping[str, Fleet], tests: Mapping[str, Fleet]) -> dict[str, dict[str, list[str]]]:
    """Test units whose fault, load or other kind no training unit of their owner has: by attribute and owner.

    Attributes are those in words that every unit has, and that are new to some owner but not in every test unit.
    """
    owned = {name: fleet for name, fleet in sorted(tests.items()) if name in clients}
    units = [unit for fleets in (clients, owned) for fleet in fleets.values() for unit in fleet]
    shared = set.intersection(*(set(unit.attributes) for unit in units)) - {MACHINE, START} if owned else set()
    new_units = {}
    for name in sorted(shared):
        if all(isinstance(unit.attributes[name], str) for unit in units):
            trained_on = {client: {unit.attributes[name] for unit in clients[client]} for client in owned}
            new = {c: [u.id for u in fleet if u.attributes[name] not in trained_on[c]] for c, fleet in owned.items()}
            if 0 < sum(map(len, new.values())) < sum(map(len, owned.values())):
                new_units[name] = new
    return new_units


def _facts(fleet: Fleet) -> dict[str, Any]:
    return {
        "units": len(fleet),
        "rows": fleet.rows,
        "failed": sum(unit.failed for unit in fleet),
        "lifespans": [unit.lifespan for unit in fleet],
    }


def _spread(fleet: Fleet) -> list[Unit]:
    """A short-lived, a middling and a long-lived unit."""
    ordered = sorted(fleet.units, key=lambda unit: (unit.lifespan, unit.id))
    return [ordered[k] for k in sorted(set(_thin(len(ordered), UNITS_A_CLIENT).tolist()))]


def _thin(length: int, most: int) -> IntArray:
    return np.linspace(0, length - 1, min(length, most)).round().astype(np.int64)


def _series(client: str, unit: Unit, recipe: Recipe, fleet: Fleet) -> dict[str, Any]:
    """A unit's sensors as the network sees them: scaled within each operating condition."""
    columns = recipe.check(fleet.schema, fleet.name)
    scaled, _ = recipe.scale(unit.sensors[:, columns[0]], unit.settings[:, columns[1]])
    kept = _thin(unit.rows, POINTS)
    return {
        "client": client,
        "unit": unit.id,
        "position": unit.time[kept].tolist(),
        "channels": {name: _rounded(scaled[kept, c]) for c, name in enumerate(recipe.sensors)},
    }


def _cycles(client: str, unit: Unit, fleet: Fleet) -> list[dict[str, Any]]:
    if unit.cycle_numbers is None:
        return []
    lines = []
    for k in _thin(len(unit.cycle_numbers), CYCLES_A_UNIT):
        rows = unit.cycle(int(k))
        kept = _thin(rows.stop - rows.start, POINTS) + rows.start
        channels = {name: _rounded(unit.sensors[kept, c]) for c, name in enumerate(fleet.schema.sensors)}
        number = int(unit.cycle_numbers[k])
        time = _rounded(unit.time[kept])
        lines.append({"client": client, "unit": unit.id, "cycle": number, "time": time, "channels": channels})
    return lines


def _degradation(client: str, unit: Unit, recipe: Recipe, part: str) -> list[dict[str, Any]]:
    labels = health_labels(unit, recipe.relative)
    if labels is None:
        return []
    kept = _thin(len(labels), POINTS)
    value = _rounded(recipe.capped(labels)[kept])
    return [
        {"client": client, "unit": unit.id, "part": part, "position": unit.positions[kept].tolist(), "value": value}
    ]


def _rounded(values: NDArray[np.floating[Any]]) -> list[float]:
    """Four significant digits are enough for a picture."""
    return [float(f"{v:.4g}") for v in values.tolist()]
