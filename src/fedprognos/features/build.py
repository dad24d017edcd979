"""From a fleet and a recipe to windows: sliding over series, one sequence a cycle over cyclic units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import RecipeError
from fedprognos.features.labels import health_labels
from fedprognos.features.recipe import Recipe
from fedprognos.features.windows import WindowSet
from fedprognos.fleet import Fleet, Unit

Points = Literal["all", "last"]


@dataclass(frozen=True, eq=False)
class _UnitWindows:
    """One unit's rows and windows, before the units are put together."""

    rows: NDArray[np.float32]
    starts: IntArray
    labels: FloatArray
    position: FloatArray
    padded: bool = False
    stretched: int = 0
    short_cycles: int = 0


def build_windows(
    recipe: Recipe, fleet: Fleet, *, points: Points = "all", stride: int | None = None, labelled: bool = True
) -> WindowSet:
    """Windows of every unit.

    Parameters
    ----------
    points
        All windows, or each unit's last one only.
    stride
        Steps between windows, counted back from a unit's last row; the recipe's by default.
    labelled
        Leave out units whose health is not known (training, testing); with False they are kept with
        labels NaN (prediction).

    Raises
    ------
    RecipeError
        Where the columns do not fit, or no window is left.
    """
    where = recipe.describe(fleet)
    columns = recipe.check(fleet.schema, where)
    made: list[_UnitWindows] = []
    ids: list[str] = []
    excluded: list[str] = []
    unlabelled: list[str] = []
    unseen_rows: dict[str, int] = {}
    for unit in fleet:
        labels = health_labels(unit, recipe.relative)
        if labels is None and labelled:
            unlabelled.append(unit.id)
            continue
        if labels is None:
            labels = np.full(len(unit.positions), np.nan)
        scaled, unseen = recipe.scale_unit(unit, columns, where)
        if unseen:
            unseen_rows[unit.id] = unseen
        if recipe.cycle:
            one = _cycles(recipe, unit, scaled, labels)
        else:
            one = _sliding(recipe, unit, scaled, labels, stride or recipe.stride)
        if one is None:
            excluded.append(unit.id)
            continue
        if points == "last":
            one = replace(one, starts=one.starts[-1:], labels=one.labels[-1:], position=one.position[-1:])
        made.append(one)
        ids.append(unit.id)
    if not made:
        raise _nothing_left(recipe, fleet, where, excluded)
    offsets = np.cumsum([0, *(len(one.rows) for one in made)])
    return WindowSet(
        features=np.concatenate([one.rows for one in made]),
        starts=np.concatenate([one.starts + offset for one, offset in zip(made, offsets, strict=False)]),
        length=recipe.window,
        labels=np.concatenate([one.labels for one in made]),
        unit=np.repeat(np.arange(len(made)), [len(one.starts) for one in made]),
        position=np.concatenate([one.position for one in made]),
        unit_ids=tuple(ids),
        excluded=tuple(excluded),
        padded=tuple(i for i, one in zip(ids, made, strict=True) if one.padded),
        unlabelled=tuple(unlabelled),
        stretched=sum(one.stretched for one in made),
        short_cycles=sum(one.short_cycles for one in made),
        unseen_rows=unseen_rows,
    )


def check_usable(recipe: Recipe, fleet: Fleet, where: str) -> None:
    """Refuse a fleet that no window could be cut from, without cutting any."""
    labelled = [unit for unit in fleet if health_labels(unit, recipe.relative) is not None]
    if not any(recipe.short == "pad" or recipe.cycle == "grid" or _longest(unit) >= recipe.window for unit in labelled):
        raise _nothing_left(recipe, fleet, where, [unit.id for unit in labelled])


def _longest(unit: Unit) -> int:
    """Rows of the longest history a unit has: of its longest cycle, or of its life."""
    return unit.rows if unit.cycles is None else int(np.diff(unit.cycles).max())


def _nothing_left(recipe: Recipe, fleet: Fleet, where: str, excluded: list[str]) -> RecipeError:
    if not excluded:
        return RecipeError(
            f"no unit has a known {recipe.target}",
            where=where,
            hint="give a target column, or units that ran to failure (failed = 1)",
        )
    longest = max(_longest(unit) for unit in fleet)
    return RecipeError(
        f"the window of {recipe.window} is longer than every unit (longest: {longest} rows)",
        where=where,
        hint=f"set recipe.window to at most {longest}, or recipe.short = 'pad'",
    )


def _sliding(
    recipe: Recipe, unit: Unit, scaled: NDArray[np.float32], labels: FloatArray, stride: int
) -> _UnitWindows | None:
    missing = recipe.window - len(scaled)
    if missing > 0 and recipe.short == "exclude":
        return None
    if missing > 0:
        scaled = np.concatenate([np.repeat(scaled[:1], missing, axis=0), scaled])
        last = np.array([unit.rows - 1])
    else:
        # Counted back from the last row, so that the end of life is always among the windows.
        last = np.arange(unit.rows - 1, recipe.window - 2, -stride)[::-1]
    return _UnitWindows(
        rows=scaled,
        starts=(last + max(missing, 0) - recipe.window + 1).astype(np.int64),
        labels=labels[last],
        position=unit.positions[last],
        padded=missing > 0,
    )


def _cycles(recipe: Recipe, unit: Unit, scaled: NDArray[np.float32], labels: FloatArray) -> _UnitWindows | None:
    if unit.cycles is None or unit.cycle_numbers is None:
        raise RecipeError("the unit has no cycles", where=f"unit {unit.id}", hint="the recipe is for cyclic data")
    lengths = np.diff(unit.cycles)
    position = unit.positions
    if recipe.cycle == "grid":
        grid = np.linspace(0.0, float(recipe.grid_end_in_s or 0.0), recipe.window)
        rows = np.empty((len(lengths), recipe.window, scaled.shape[1]), dtype=np.float32)
        stretched = 0
        for k in range(len(lengths)):
            rows_of_cycle = unit.cycle(k)
            time = unit.time[rows_of_cycle]
            stretched += int(time[-1] < grid[-1])
            for c in range(scaled.shape[1]):
                rows[k, :, c] = np.interp(grid, time, scaled[rows_of_cycle, c])
        starts = np.arange(len(lengths)) * recipe.window
        return _UnitWindows(rows.reshape(-1, scaled.shape[1]), starts, labels, position, stretched=stretched)
    long_enough = lengths >= recipe.window
    if not long_enough.all():
        if recipe.short == "exclude" and not long_enough.any():
            return None
        if recipe.short == "pad":
            return _padded_cycles(recipe, unit, scaled, labels, position)
    starts = unit.cycles[:-1][long_enough]
    short = int(np.count_nonzero(~long_enough))
    return _UnitWindows(scaled, starts.astype(np.int64), labels[long_enough], position[long_enough], short_cycles=short)


def _padded_cycles(
    recipe: Recipe, unit: Unit, scaled: NDArray[np.float32], labels: FloatArray, position: FloatArray
) -> _UnitWindows:
    rows = np.empty((len(labels), recipe.window, scaled.shape[1]), dtype=np.float32)
    for k in range(len(labels)):
        cycle = scaled[unit.cycle(k)][: recipe.window]
        missing = recipe.window - len(cycle)
        rows[k, :missing], rows[k, missing:] = cycle[0], cycle
    starts = np.arange(len(labels)) * recipe.window
    return _UnitWindows(rows.reshape(-1, scaled.shape[1]), starts, labels, position, padded=True)
