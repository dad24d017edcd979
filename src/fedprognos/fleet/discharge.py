"""Rules about discharge cycles of any battery: where its life ends and how much of a cycle is usable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import DataError
from fedprognos.fleet.unit import Fleet, Schema, Unit

VOLTAGE = "voltage_in_V"
RATED = "rated_capacity_in_Ah"
BATTERY_SCHEMA = Schema(
    task="soh",
    sensors=(VOLTAGE, "temperature_in_C", "current_in_A"),
    time="time_in_s",
    time_measure="s",
    target="capacity",
    target_measure="Ah",
)
END_OF_LIFE_SHARE = 0.7
"""A battery is worn out below this share of its rated capacity."""


def end_of_life(unit: Unit, threshold: float | None = None) -> Unit:
    """The unit up to its LAST cycle with at least the threshold capacity.

    Capacity recovers for a while after rests, so the first cycle below the threshold is not the end.

    Parameters
    ----------
    unit
        Cyclic unit with a capacity target.
    threshold
        In the target's unit; None means 70 % of `attributes["rated_capacity_in_Ah"]`.

    Returns
    -------
    Unit
        Cut there; `failed` is False where the history ends before the capacity stays below the threshold.

    Examples
    --------
    >>> import numpy as np
    >>> u = Unit("b", np.arange(8.), np.ones((8, 1)), np.empty((8, 0)), target=np.array([2., 1.3, 1.5, 1.2]),
    ...          cycles=np.array([0, 2, 4, 6, 8]), cycle_numbers=np.arange(1, 5))
    >>> end = end_of_life(u, 1.4)
    >>> end.lifespan, end.failed
    (3.0, True)
    """
    where = f"unit {unit.id}"
    if unit.target is None or not unit.is_cyclic:
        raise DataError("end of life needs a cyclic unit with a capacity for each cycle", where=where)
    if threshold is None:
        threshold = default_threshold(unit)
    alive = np.flatnonzero(unit.target >= threshold)
    if not alive.size:
        raise DataError(
            f"no cycle reaches {threshold:g}; the highest capacity is {unit.target.max():.4g}",
            where=where,
            hint="lower the threshold or leave the unit out",
        )
    stop = int(alive[-1]) + 1
    return replace(unit.select_cycles(0, stop), failed=stop < len(unit.target))


def default_threshold(unit: Unit) -> float:
    """70 % of the rated capacity."""
    rated = unit.attributes.get(RATED)
    if rated is None:
        raise DataError(
            "rated capacity unknown", where=f"unit {unit.id}", hint="give the end-of-life threshold as a number"
        )
    return END_OF_LIFE_SHARE * float(rated)


def samples_before_cutoff(unit: Unit, voltage_column: int = 0) -> IntArray:
    """Samples of each cycle before the voltage first reaches the unit's own cut-off.

    Parameters
    ----------
    unit
        Cyclic unit; without `attributes["cutoff_in_V"]` every sample counts.
    voltage_column
        Where the voltage stands among the sensors (readers of batteries put it first).

    Returns
    -------
    (K,) integers

    Examples
    --------
    >>> import numpy as np
    >>> v = np.array([[4.], [3.], [2.5], [2.9], [4.], [2.4]])
    >>> u = Unit("b", np.array([0., 1, 2, 3, 0, 1]), v, np.empty((6, 0)), cycles=np.array([0, 4, 6]),
    ...          cycle_numbers=np.array([1, 2]), attributes={"cutoff_in_V": 2.5})
    >>> samples_before_cutoff(u)
    array([2, 1])
    """
    if unit.cycles is None:
        raise DataError("not a cyclic unit", where=f"unit {unit.id}")
    lengths = np.diff(unit.cycles).astype(np.int64)
    cutoff = unit.attributes.get("cutoff_in_V")
    if cutoff is None:
        return lengths
    reached = np.flatnonzero(unit.sensors[:, voltage_column] <= float(cutoff))
    following = np.searchsorted(reached, unit.cycles[:-1])
    first = np.append(reached, unit.rows)[following]
    return np.minimum(first - unit.cycles[:-1], lengths)


def cutoff_from_data(voltage: FloatArray, cycles: IntArray) -> float:
    """Cut-off guessed from where discharges end: the lowest voltage of nearly every cycle lies just below it.

    >>> cutoff_from_data(np.array([4.1, 2.47, 3.0, 4.1, 2.43]), np.array([0, 3, 5]))
    2.5
    """
    lowest = np.minimum.reduceat(voltage, cycles[:-1])
    return float(np.ceil(np.quantile(lowest, 0.9) * 10 - 1e-9) / 10)


def cut_at_cutoff(fleet: Fleet) -> Fleet:
    """The fleet with every cycle ended where its voltage first reaches the cut-off; what follows is rest."""
    column = fleet.schema.sensors.index(VOLTAGE)
    return fleet.select([_cut_unit(unit, column) for unit in fleet])


def _cut_unit(unit: Unit, voltage_column: int) -> Unit:
    usable = samples_before_cutoff(unit, voltage_column)
    if unit.cycles is None or not usable.all():
        raise DataError("a cycle begins at or below the cut-off", where=f"unit {unit.id}", hint="leave the cycle out")
    starts = np.repeat(unit.cycles[:-1], usable)
    offsets = np.concatenate([[0], np.cumsum(usable)])
    rows = starts + np.arange(offsets[-1]) - np.repeat(offsets[:-1], usable)
    return replace(unit, time=unit.time[rows], sensors=unit.sensors[rows], settings=unit.settings[rows], cycles=offsets)
