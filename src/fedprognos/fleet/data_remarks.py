"""What a person should look at before training: sensors that stand still, odd first rows, gaps, units with few rows.

Nothing is changed or left out. Each finding is one sentence that names the units.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.fleet.unit import Fleet, Unit

_NAMED = 5
_BARELY = 0.2
"""Share of the median unit's rows below which a unit barely runs."""
_GAP = 5.0
"""A gap is a step in time of more than so many usual ones."""
_STILL_ROWS, _STILL_SHARE = 20, 0.25
"""A sensor stands still if it keeps one value for so many rows and for this share of a unit's rows."""
_LIVELY = 0.5
"""Share of steps at which a sensor changes, in the median unit, for standing still to be odd."""
_ODD = 10.0
"""A first row is odd if it is so many times as far from the next ones as those are from each other."""
_NEXT = 10


def quality_notes(fleet: Fleet) -> list[str]:
    """One sentence for each kind of finding.

    Examples
    --------
    >>> from fedprognos.fleet.unit import Schema
    >>> def pump(name, rows):
    ...     return Unit(name, np.arange(float(rows)), np.sin(np.arange(rows))[:, None], np.empty((rows, 0)))
    >>> quality_notes(Fleet("plant", Schema("rul", ("heat",)), (pump("a", 90), pump("b", 90), pump("c", 9))))
    ["1 of 3 units has less than a fifth of the median unit's rows: c"]
    """
    return [*_still_sensors(fleet), *_odd_beginnings(fleet), *_gaps(fleet), *_short_units(fleet)]


def _still_sensors(fleet: Fleet) -> list[str]:
    changing = np.array([_changes(unit).mean(axis=0) for unit in fleet])  # (units, sensors)
    lively = np.median(changing, axis=0) > _LIVELY
    notes = []
    for c in np.flatnonzero(lively):
        sensor = fleet.schema.sensors[c]
        constant = [unit.id for unit, share in zip(fleet, changing[:, c], strict=True) if share == 0]
        # Only where a sensor changes seldom enough can it stand still for long; the rest need no second look.
        slow = [unit for unit, share in zip(fleet, changing[:, c], strict=True) if 0 < share <= 1 - _STILL_SHARE]
        frozen = [unit.id for unit in slow if _stands_still(unit.sensors[:, c])]
        if constant:
            notes.append(f"'{sensor}' never changes in {_units(constant, fleet)}")
        if frozen:
            notes.append(f"'{sensor}' keeps one value for a quarter of the rows or longer in {_units(frozen, fleet)}")
    return notes


def _changes(unit: Unit) -> BoolArray:
    """Whether each sensor changes from row to row: (T - 1, C)."""
    return np.asarray(unit.sensors[1:] != unit.sensors[:-1], dtype=np.bool_)


def _stands_still(values: FloatArray) -> bool:
    edges = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1, [len(values)]])
    return bool(np.diff(edges).max() >= max(_STILL_ROWS, _STILL_SHARE * len(values)))


def _odd_beginnings(fleet: Fleet) -> list[str]:
    odd = {unit.id: columns for unit in fleet if (columns := _odd_first(unit))}
    if not odd:
        return []
    sensors = sorted({fleet.schema.sensors[c] for columns in odd.values() for c in columns})
    of = "cycle" if fleet.schema.task == "soh" else "row"
    return [f"the first {of} is far from the next ones ({_listed(sensors)}) in {_units(list(odd), fleet)}"]


def _odd_first(unit: Unit) -> list[int]:
    """Sensors whose first row is far from the next ones; for cyclic units the mean of the first cycle."""
    rows = unit.sensors
    if unit.cycles is not None:
        first_cycles = pairwise(unit.cycles[: _NEXT + 2].tolist())
        rows = np.array([unit.sensors[a:b].mean(axis=0) for a, b in first_cycles])
    following = rows[1 : _NEXT + 1]
    if len(following) < _NEXT:
        return []
    middle = np.median(following, axis=0)
    spread = np.abs(following - middle).max(axis=0)
    return np.flatnonzero((spread > 0) & (np.abs(rows[0] - middle) > _ODD * spread)).tolist()


def _gaps(fleet: Fleet) -> list[str]:
    """Steps in time, or in the numbers of cycles, that are much longer than usual."""
    counts = {
        unit.id: int((steps > _GAP * np.median(steps)).sum())
        for unit in fleet
        if (steps := np.diff(unit.positions)).size
    }
    gapped = [name for name, count in counts.items() if count]
    if not gapped:
        return []
    total = sum(counts.values())
    return [f"{total} {'gap' if total == 1 else 'gaps'} of more than five usual time steps in {_units(gapped, fleet)}"]


def _short_units(fleet: Fleet) -> list[str]:
    lengths = np.array([len(unit.positions) for unit in fleet])
    short = [unit.id for unit, n in zip(fleet, lengths, strict=True) if n < _BARELY * np.median(lengths)]
    what = "cycles" if fleet.schema.task == "soh" else "rows"
    if not short:
        return []
    has = "has" if len(short) == 1 else "have"
    return [f"{len(short)} of {len(fleet)} units {has} less than a fifth of the median unit's {what}: {_listed(short)}"]


def _units(names: Sequence[str], fleet: Fleet) -> str:
    return f"{len(names)} of {len(fleet)} units: {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
