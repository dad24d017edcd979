"""Rows as they come from outside: turned into numbers or refused with a reason, and their blanks filled."""

from __future__ import annotations

import math
import numbers
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from fedprognos.features import Recipe
from fedprognos.prognosis.health import Row, RowTable
from fedprognos.prognosis.health_model import HealthModel
from fedprognos.prognosis.unit_state import UnitState
from fedprognos.tables import LARGEST_WHOLE, SECONDS, Policy

LONGEST_NAME = 256
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Control characters, and marks that let one name look like another: they turn a text, break it, or are not seen."""


def dated(recipe: Recipe, row: Row) -> Row:
    """The row with its date as a position: a time since 1970 in the recipe's measure."""
    position: object = row.position
    if not isinstance(position, str) or recipe.cycle is not None or recipe.time_measure not in SECONDS:
        return row
    try:
        moment = datetime.fromisoformat(position)
    except ValueError:
        return row
    seconds = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return replace(row, position=seconds / SECONDS[recipe.time_measure])


def checked(
    recipe: Recipe, row: Row, strict: bool = True, policies: Sequence[Policy] | None = None
) -> tuple[list[float], str]:
    """Sensors and settings of a row in the recipe's order, and why it cannot be used (empty where it can).

    Nothing is taken for granted: the parts of a row may be anything that JSON can hold. A value that is None is blank:
    NaN stands for it, or the row is refused where the column's policy says so.

    Parameters
    ----------
    strict
        Refuse sensors and settings that the model does not know; otherwise they are passed over.
    """
    reason = _name(row.unit) or _place(recipe, row)
    if reason:
        return [], reason
    split = len(recipe.sensors)
    rules = ("refuse",) * (split + len(recipe.settings)) if policies is None else policies
    sensors, reason = _collect("sensor", recipe.sensors, row.sensors, strict, rules[:split])
    if reason:
        return [], reason
    settings, reason = _collect("setting", recipe.settings, row.settings, strict, rules[split:])
    return [*sensors, *settings], reason


def _name(unit: object) -> str:
    """Why a text cannot name a unit. Names stand in addresses, where "." and ".." would never arrive."""
    if not isinstance(unit, str) or not 1 <= len(unit) <= LONGEST_NAME:
        return f"unit must be a text of 1 to {LONGEST_NAME} characters"
    if unit in {".", ".."} or CONTROL.search(unit):
        return "unit must not be '.' or '..' or hold control characters or invisible ones"
    return ""


def _place(recipe: Recipe, row: Row) -> str:
    position = _number(row.position)
    if isinstance(position, str):
        return f"position is {position}"
    if abs(position) > LARGEST_WHOLE:
        return f"position {_shown(row.position)} is too large"
    end: object = row.end
    if not isinstance(end, bool):
        return f"end is {_shown(end)}, not true or false"
    if recipe.cycle is None:
        if row.end:
            return "this model knows no cycles that end"
        return "" if row.cycle is None else "this model takes no cycle; the position is the cycle number"
    if row.cycle is None:
        return "the cycle number is missing"
    cycle: object = row.cycle
    if isinstance(cycle, bool) or not isinstance(cycle, numbers.Integral):
        return f"cycle is {_shown(cycle)}, not a whole number"
    return "" if abs(int(cycle)) <= LARGEST_WHOLE else f"cycle {_shown(cycle)} is too large"


def _collect(
    kind: str, wanted: Sequence[str], given: object, strict: bool, rules: Sequence[str]
) -> tuple[list[float], str]:
    """Numbers of the wanted names, and why there are none."""
    if not isinstance(given, Mapping):
        return [], f"{kind}s must be names with numbers"
    values: list[float] = [value for name in wanted if type(value := given.get(name)) is float]
    if len(values) == len(wanted) == len(given) and math.isfinite(sum(values)):
        return values, ""  # as nearly every row; a sum that overflows is looked at number by number, too
    values.clear()
    for name, rule in zip(wanted, rules, strict=True):
        if name not in given:
            return [], f"{kind} '{name}' is missing"
        blank = rule != "refuse" and given[name] is None
        number = math.nan if blank else _number(given[name])
        if isinstance(number, str):
            return [], f"{kind} '{name}' is {number}"
        values.append(number)
    if strict and len(given) != len(wanted):
        extra = next(name for name in given if name not in wanted)
        return [], f"{kind} {_shown(extra)} is not one of this model's"
    return values, ""


def _number(value: object) -> float | str:
    """A finite float, or what is wrong with the value."""
    if type(value) is not float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return f"{_shown(value)}, not a number"
        try:
            value = float(value)
        except (OverflowError, ValueError):
            return "too large"
    return value if math.isfinite(value) else f"{value}, not a finite number"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


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
