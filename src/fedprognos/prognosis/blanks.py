"""Blank values of rows as they come: the unit's latest value stands in, or the mean of the operating condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from fedprognos.prognosis.health import RowTable
from fedprognos.prognosis.health_model import HealthModel
from fedprognos.prognosis.unit_state import UnitState


def batches(table: RowTable, most: int) -> Iterator[slice]:
    """The rows, at most so many at a time; a row with a blank never comes with earlier ones of its unit.

    What is known of the unit by then may stand in for the blank.
    """
    blank = table.blank_rows
    if not blank.any():
        yield from (slice(a, a + most) for a in range(0, len(table), most))
        return
    begin, seen = 0, set[str]()
    for k, unit in enumerate(table.units):
        if k - begin == most or (blank[k] and unit in seen):
            yield slice(begin, k)
            begin = k
            seen.clear()
        seen.add(unit)
    yield slice(begin, len(table))


def without_blanks(
    table: RowTable, model: HealthModel, states: Mapping[str, UnitState], filled: Counter[str]
) -> RowTable:
    """The same rows with something in place of what is blank; a setting that was never known stays blank.

    Parameters
    ----------
    filled
        Counts what was filled, by column.
    """
    rows = np.flatnonzero(table.blank_rows).tolist()
    if not rows:
        return table
    names, width = (*model.recipe.sensors, *model.recipe.settings), len(model.recipe.sensors)
    values = np.concatenate([table.sensors, table.settings], axis=1)
    held = np.array([policy != "mean" for policy in model.policies])
    for k in rows:
        blank = np.isnan(values[k])
        filled.update(names[c] for c in np.flatnonzero(blank))
        state = states.get(table.units[k])
        if state is not None:
            values[k] = np.where(blank & held, state.held(table.cycles[k]), values[k])
        left = np.isnan(values[k])
        if left[:width].any() and not left[width:].any():
            means = model.recipe.means(values[k : k + 1, width:])[0]
            values[k, :width] = np.where(left[:width], means, values[k, :width])
    return replace(table, sensors=values[:, :width], settings=values[:, width:])
