"""Windows of a fleet with their labels: cut by a recipe, held as an index, copied only when a batch is gathered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import BoolArray, FloatArray, IntArray, RowStack
from fedprognos.errors import DataError, RecipeError
from fedprognos.features.history import UnitCuts, rule_of
from fedprognos.features.recipe import Recipe
from fedprognos.fleet import RATED, Fleet, Unit


@dataclass(frozen=True, eq=False)
class WindowSet:
    """All windows of a fleet: `features[starts[k] : starts[k] + length]` is window k.

    Parameters
    ----------
    features : (R, C) float32
        Scaled rows of all units, one after another.
    lives : (units + 1,)
        Where the rows of each unit begin, when a point's history is all rows of its unit up to it; None for windows.
    starts, labels, unit, position : (N,)
        First row, uncapped label (NaN where unknown), index into `unit_ids` and cycle number of each window.
    odd : (N,)
        What is odd about each window, as the bits of :mod:`fedprognos.features.history`.
    running : (units,)
        Units that still run, or None where all have failed. Their labels are the time up to their latest row: the true
        ones are larger. Such a label is certain only where it is at least the cap, because it then counts as the cap.
    """

    features: NDArray[np.float32]
    starts: IntArray
    length: int
    labels: FloatArray
    unit: IntArray
    position: FloatArray
    odd: NDArray[np.uint8]
    unit_ids: tuple[str, ...]
    lives: IntArray | None = None
    running: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def channels(self) -> int:
        return int(self.features.shape[1])

    def batch(self, index: IntArray | slice) -> NDArray[np.float32]:
        """Windows as an array (B, length, C)."""
        rows = self.starts[index][:, None] + np.arange(self.length)
        gathered: NDArray[np.float32] = self.features[rows]
        return gathered

    def batches(self, size: int) -> Iterator[NDArray[np.float32]]:
        """All windows in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))

    def select(self, index: IntArray | BoolArray | slice) -> WindowSet:
        """Some of the windows; the rows are shared, not copied."""
        return replace(
            self,
            starts=self.starts[index],
            labels=self.labels[index],
            unit=self.unit[index],
            position=self.position[index],
            odd=self.odd[index],
        )


def joined(first: WindowSet, second: WindowSet) -> WindowSet:
    """The windows of other units beside the first ones; both were made by one recipe."""
    rows, units = len(first.features), len(first.unit_ids)

    def both(name: str, shift: int = 0) -> Any:
        return np.concatenate([getattr(first, name), getattr(second, name) + shift])

    def still_run(windows: WindowSet) -> BoolArray:
        return np.zeros(len(windows.unit_ids), dtype=bool) if windows.running is None else windows.running

    lives = None
    if first.lives is not None and second.lives is not None:
        lives = np.concatenate([first.lives, second.lives[1:] + rows])
    return WindowSet(
        features=both("features"),
        starts=both("starts", rows),
        length=first.length,
        labels=both("labels"),
        unit=both("unit", units),
        position=both("position"),
        odd=np.concatenate([first.odd, second.odd]),
        unit_ids=first.unit_ids + second.unit_ids,
        lives=lives,
        running=np.concatenate([still_run(first), still_run(second)]),
    )


def hold_out(windows: WindowSet, fraction: float, seed: int, task: str) -> tuple[WindowSet, WindowSet | None]:
    """Split into a part to fit and a part to validate on: whole units, or the last windows of each.

    The health of cycles is asked ahead of those that a unit was trained on, so its last windows validate. So do those
    of a single unit. Nothing is held out when `fraction` is 0 or there are too few windows to spare any.
    """
    present, unit = np.unique(windows.unit, return_inverse=True)
    if fraction <= 0 or len(windows) < 2:
        return windows, None
    if task == "soh" or len(present) == 1:
        held = np.zeros(len(windows), dtype=bool)
        for k in range(len(present)):
            places = np.flatnonzero(unit == k)
            kept = min(max(round(len(places) * (1 - fraction)), 1), max(len(places) - 1, 1))
            held[places[np.argsort(windows.position[places], kind="stable")[kept:]]] = True
        return (windows.select(~held), windows.select(held)) if held.any() else (windows, None)
    count = min(max(round(len(present) * fraction), 1), len(present) - 1)
    chosen = np.random.default_rng(seed).permutation(present)[:count]
    held = np.isin(windows.unit, chosen)
    return windows.select(~held), windows.select(held)


def health_labels(unit: Unit, relative: bool) -> FloatArray | None:
    """Uncapped labels of every point of a unit, None where unknown.

    Parameters
    ----------
    relative
        Divide by the unit's rated capacity (state of health): cells of different size become comparable.

    Examples
    --------
    >>> import numpy as np
    >>> cell = Unit("b", np.arange(4.0), np.ones((4, 1)), np.empty((4, 0)), target=np.array([1.8, 1.5]),
    ...             cycles=np.array([0, 2, 4]), cycle_numbers=np.array([1, 2]), attributes={RATED: 2.0})
    >>> health_labels(cell, relative=True)
    array([0.9 , 0.75])
    """
    labels = unit.labels()
    if labels is None or not relative:
        return labels
    rated = unit.attributes.get(RATED)
    if not isinstance(rated, int | float) or not rated > 0:
        raise DataError(
            "its rated capacity is not known, so its state of health is not either",
            where=f"unit {unit.id}",
            hint="give data.rated_capacity_in_Ah, or set recipe.label = 'absolute'",
        )
    return labels / rated


Points = Literal["all", "last"]


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
    where, rule = recipe.describe(fleet), rule_of(recipe)
    columns = recipe.check(fleet.schema, where)
    rows, row_counts = RowStack(np.float32), [0]
    used: list[tuple[Unit, UnitCuts]] = []
    labels: list[FloatArray] = []
    too_short = False
    for unit in fleet:
        unit_labels = health_labels(unit, recipe.relative)
        if unit_labels is None and labelled:
            continue
        scaled, unseen = recipe.scale_unit(unit, columns, where)
        cuts = rule.cut(recipe, unit, recipe.extended(scaled), unseen, stride or recipe.stride)
        if cuts is None:
            too_short = True
            continue
        if points == "last":
            cuts = replace(cuts, starts=cuts.starts[-1:], points=cuts.points[-1:], odd=cuts.odd[-1:])
        rows.add(cuts.rows)
        row_counts.append(len(cuts.rows))
        used.append((unit, replace(cuts, rows=cuts.rows[:0].copy())))
        labels.append(np.full(len(cuts.points), np.nan) if unit_labels is None else unit_labels[cuts.points])
    if not used:
        raise _nothing_left(recipe, fleet, where, too_short)
    offsets = np.cumsum(row_counts)
    return WindowSet(
        features=rows.whole(),
        starts=np.concatenate([cuts.starts + offset for (_, cuts), offset in zip(used, offsets, strict=False)]),
        length=recipe.window,
        labels=np.concatenate(labels),
        unit=np.repeat(np.arange(len(used)), [len(cuts.starts) for _, cuts in used]),
        position=np.concatenate([unit.positions[cuts.points] for unit, cuts in used]),
        odd=np.concatenate([cuts.odd for _, cuts in used]),
        unit_ids=tuple(unit.id for unit, _ in used),
        lives=offsets if recipe.life else None,
    )


def running_windows(recipe: Recipe, fleet: Fleet) -> WindowSet | None:
    """Windows of the units that still run, as far as their capped labels are certain; None where there are none.

    With whole lives every unit and row stays: rows at least the cap before the latest are certain, more or fewer where
    training shows the life slower or faster, and first rows show what a unit read when it was new.
    """
    if recipe.cap is None or recipe.task != "rul":
        return None
    units = [
        replace(unit, rul_at_end=0.0)  # the time to the latest row stands in for the label, which is at least that
        for unit in fleet
        if unit.labels() is None and not unit.is_cyclic
    ]
    if not units:
        return None
    try:
        windows = build_windows(recipe, fleet.select(units))
    except RecipeError:  # none is as long as a window
        return None
    if not recipe.life:
        windows = windows.select(windows.labels >= recipe.cap)
    return replace(windows, running=np.ones(len(windows.unit_ids), dtype=bool)) if len(windows) else None


def check_usable(recipe: Recipe, fleet: Fleet, where: str) -> None:
    """Refuse a fleet that no window could be cut from, without cutting any."""
    labelled = [unit for unit in fleet if health_labels(unit, recipe.relative) is not None]
    if not any(rule_of(recipe).fits(recipe, unit) for unit in labelled):
        raise _nothing_left(recipe, fleet, where, bool(labelled))


def _longest(unit: Unit) -> int:
    """Rows of the longest history a unit has: of its longest cycle, or of its life."""
    return unit.rows if unit.cycles is None else int(np.diff(unit.cycles).max())


def _nothing_left(recipe: Recipe, fleet: Fleet, where: str, too_short: bool) -> RecipeError:
    if not too_short:
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
