"""From a fleet and a recipe to windows of all units."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import RecipeError
from fedprognos.features.history import UnitCuts, rule_of
from fedprognos.features.labels import health_labels
from fedprognos.features.recipe import Recipe
from fedprognos.features.windows import WindowSet
from fedprognos.fleet import Fleet, Unit

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
    used: list[tuple[Unit, UnitCuts]] = []
    labels: list[FloatArray] = []
    too_short = False
    for unit in fleet:
        known = health_labels(unit, recipe.relative)
        if known is None and labelled:
            continue
        scaled, unseen = recipe.scale_unit(unit, columns, where)
        cuts = rule.cut(recipe, unit, recipe.extended(scaled), unseen, stride or recipe.stride)
        if cuts is None:
            too_short = True
            continue
        if points == "last":
            cuts = replace(cuts, starts=cuts.starts[-1:], points=cuts.points[-1:], odd=cuts.odd[-1:])
        used.append((unit, cuts))
        labels.append(np.full(len(cuts.points), np.nan) if known is None else known[cuts.points])
    if not used:
        raise _nothing_left(recipe, fleet, where, too_short)
    offsets = np.cumsum([0, *(len(cuts.rows) for _, cuts in used)])
    return WindowSet(
        features=np.concatenate([cuts.rows for _, cuts in used]),
        starts=np.concatenate([cuts.starts + offset for (_, cuts), offset in zip(used, offsets, strict=False)]),
        length=recipe.window,
        labels=np.concatenate(labels),
        unit=np.repeat(np.arange(len(used)), [len(cuts.starts) for _, cuts in used]),
        position=np.concatenate([unit.positions[cuts.points] for unit, cuts in used]),
        odd=np.concatenate([cuts.odd for _, cuts in used]),
        unit_ids=tuple(unit.id for unit, _ in used),
        lives=offsets if recipe.life else None,
    )


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
