"""What a client sends of its fleet so that a recipe can be made: moments and sizes, never rows.

Moments of fewer than `min_count` rows are withheld: a moment of one row is a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.errors import ConfigError, DataError, RecipeError
from fedprognos.features import conditions
from fedprognos.features.counted_rows import CountedRows, labelled_only
from fedprognos.features.history import histories
from fedprognos.features.history.at_levels import at_levels, bounds_of, looked_at
from fedprognos.features.moments import Moments, merge_all
from fedprognos.features.recipe import Recipe
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.features.sensor_ranges import (
    LevelScaling,
    SensorRanges,
    fleet_ranges,
    level_moments,
    merged_ranges,
)
from fedprognos.features.windows import health_labels
from fedprognos.fleet import Fleet, Schema


class SurveyTerms(BaseModel):
    """What a client is asked about its fleet.

    Parameters
    ----------
    sensors, drop
        Which sensors: all by default, without some.
    conditions
        Decimals to which operating settings are rounded to make an operating condition.
    cap
        Labels above it count as it.
    relative
        Labels as a share of each unit's rated capacity.
    levels, level_points, grid_end_in_s
        The sensor at whose levels cycles are read, how many there are, and how much of a cycle is looked at.
    min_count, min_units
        Moments of fewer rows, or of rows of fewer units, are not wanted; the client has floors of its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sensors: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    conditions: dict[str, Annotated[int, Field(ge=-6, le=9)]] = {}
    cap: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    relative: bool = False
    levels: str | None = None
    level_points: Annotated[int, Field(ge=2, le=10_000)] = 19
    grid_end_in_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    min_count: Annotated[int, Field(ge=1)] = 20
    min_units: Annotated[int, Field(ge=1)] = 1


def survey_terms(options: RecipeOptions) -> SurveyTerms:
    """What clients are asked so that these options can become a recipe."""
    return SurveyTerms(
        sensors=options.sensors,
        drop=options.drop,
        conditions=dict(options.conditions),
        cap=options.cap,
        relative=options.label == "relative",
        levels=options.levels,
        level_points=options.level_points,
        grid_end_in_s=options.grid_end_in_s if options.levels is not None else None,
        min_count=options.min_count,
    )


@dataclass(frozen=True, eq=False)
class Survey:
    """One client's contribution to the recipe.

    Parameters
    ----------
    cells
        Moments of [sensors | settings] in each operating condition.
    withheld
        Conditions met in fewer than `min_count` rows, whose moments stay at home.
    labels
        Moments of the capped labels.
    shortest, shortest_in_s
        Rows and duration of the shortest cycle of a cyclic fleet, 0 otherwise; the duration rounded down to
        two digits, because as it stands it would be a time of the data.
    level_high, level_low
        Between which levels every cycle can be read, rounded inwards to three digits for the same reason; the moments
        are then those at levels between these, with times in the place of the sensor.
    usual
        How still the sensors stay and how far they go, measured by these moments and rounded outwards.
    """

    schema: Schema
    cells: Mapping[conditions.Key, Moments]
    withheld: int
    labels: Moments
    shortest: int = 0
    shortest_in_s: float = 0.0
    level_high: float = 0.0
    level_low: float = 0.0
    usual: SensorRanges | None = None


def survey(fleet: Fleet, terms: SurveyTerms, counted: CountedRows | None = None) -> Survey:
    """Look at a fleet the way the recipe will; with `counted`, at the rows that sums of histories count, too."""
    sensors = chosen_sensors(fleet.schema, terms)
    schema = replace(fleet.schema, sensors=sensors)
    conditions.check_rule(terms.conditions, schema.settings)
    order, cyclic = [fleet.schema.sensors.index(s) for s in sensors], schema.task == "soh"
    levels, relative = (terms.levels, terms.relative) if cyclic else (None, False)
    if counted is not None:
        fleet = labelled_only(fleet, relative)
    if levels is None:
        high, low = 0.0, 0.0
        rows = np.concatenate([np.concatenate([u.sensors[:, order], u.settings], axis=1) for u in fleet])
    else:
        if terms.grid_end_in_s is None or terms.conditions:
            raise ConfigError("recipe.levels needs recipe.grid_end_in_s, and no recipe.conditions")
        rows, high, low = rows_at_levels(fleet, sensors, levels, terms.level_points, terms.grid_end_in_s)
    chosen = np.ones(len(rows), dtype=bool)
    if counted is not None and not cyclic:
        chosen = np.concatenate(counted.rows_of(fleet, terms.conditions))
    labels = _labels(fleet, terms, relative, None if counted is None or cyclic else chosen)
    keys = conditions.keys(rows[:, len(sensors) :], terms.conditions, schema.settings)
    cells, withheld = _cells(fleet, terms, rows, keys, chosen)
    if not cells:
        raise DataError(
            f"{len(rows)} rows in {withheld} operating conditions, too few in each; statistics of {_few(terms)}",
            where=fleet.source or f"fleet {fleet.name}",
            hint="round the settings more coarsely in recipe.conditions, or lower recipe.min_count",
        )
    shortest, shortest_in_s = _shortest_cycle(fleet) if cyclic else (0, 0.0)
    level = None
    if levels is not None:
        values = level_moments(fleet, fleet.schema.sensors.index(levels))
        level = LevelScaling.from_moments(sensors.index(levels), values)
    scaling = {key: (moments.mean[: len(sensors)], moments.std[: len(sensors)]) for key, moments in cells.items()}
    usual = fleet_ranges(fleet, order, scaling, terms.conditions, level)
    return Survey(
        schema, cells, withheld, Moments.from_rows(labels[:, None]), shortest, shortest_in_s, high, low, usual
    )


def _few(terms: SurveyTerms) -> str:
    return f"fewer than {terms.min_count}, or of fewer than {terms.min_units} units, never leave a client"


def _labels(fleet: Fleet, terms: SurveyTerms, relative: bool, chosen: BoolArray | None) -> FloatArray:
    """Labels of all units, of the chosen rows only if there is a choice; capped."""
    where = fleet.source or f"fleet {fleet.name}"
    by_unit = [labels for labels in (health_labels(unit, relative) for unit in fleet) if labels is not None]
    if not by_unit:
        raise DataError(
            f"no unit has a known {fleet.schema.target}",
            where=where,
            hint="give a target column, or units that ran to failure (failed = 1)",
        )
    labels = np.concatenate(by_unit)
    labels = labels if chosen is None else labels[chosen]
    if len(labels) < terms.min_count or len(by_unit) < terms.min_units:
        raise DataError(
            f"only {len(labels)} labelled points; statistics of {_few(terms)}",
            where=where,
            hint="give the client more data, or lower recipe.min_count",
        )
    return labels if terms.cap is None or fleet.schema.task != "rul" else np.minimum(labels, terms.cap)


def _shortest_cycle(fleet: Fleet) -> tuple[int, float]:
    """Rows and duration of the shortest cycle, the duration rounded down."""
    offsets = [(unit, unit.cycles) for unit in fleet if unit.cycles is not None]
    rows = min(int(np.diff(cycles).min()) for _, cycles in offsets)
    in_s = min(unit.time[cycles[1:] - 1].min() for unit, cycles in offsets)
    return rows, digits_down(max(float(in_s), 0.0), 2)


def _cells(
    fleet: Fleet, terms: SurveyTerms, rows: FloatArray, keys: FloatArray, chosen: BoolArray
) -> tuple[dict[conditions.Key, Moments], int]:
    """Moments of the chosen rows in each operating condition, and how many conditions have too few of them."""
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    cells, withheld = {}, 0
    for k, key in enumerate(distinct if keys.shape[1] else distinct[:1]):
        in_condition = chosen & (inverse == k) if keys.shape[1] else chosen
        of_condition = rows[in_condition]
        if len(of_condition) < terms.min_count or _units_among(fleet, in_condition) < terms.min_units:
            withheld += 1
            continue
        cells[tuple(float(v) for v in key)] = Moments.from_rows(of_condition)
    return cells, withheld


def _units_among(fleet: Fleet, chosen: BoolArray) -> int:
    """From how many units some rows come; all, where rows are not those of the file but cycles read at levels."""
    owner = np.repeat(np.arange(len(fleet)), [unit.rows for unit in fleet])
    return len(np.unique(owner[chosen])) if len(owner) == len(chosen) else len(fleet)


def chosen_sensors(schema: Schema, terms: SurveyTerms) -> tuple[str, ...]:
    """Sensors after `recipe.sensors` and `recipe.drop`."""
    for key, names in (("sensors", terms.sensors or ()), ("drop", terms.drop)):
        unknown = [n for n in names if n not in schema.sensors]
        if unknown:
            raise ConfigError(
                f"recipe.{key} names '{unknown[0]}', which is not a sensor",
                hint=f"sensors: {', '.join(schema.sensors)}",
            )
    wanted = terms.sensors or schema.sensors
    kept = tuple(s for s in wanted if s not in terms.drop)
    if not kept:
        raise ConfigError("recipe.drop leaves no sensor", hint="keep one of the sensors at least")
    return kept


def make_recipe(section: RecipeOptions, surveys: Mapping[str, Survey]) -> Recipe:
    """The common recipe from all clients' surveys, merged in the order of their names."""
    names = sorted(surveys)
    if not names:
        raise RecipeError("no client answered the survey")
    several = [surveys[name] for name in names]
    schema = several[0].schema
    cells: dict[conditions.Key, Moments] = {}
    for name, client_survey in zip(names, several, strict=True):
        if client_survey.schema != schema:
            what, hint = (
                f"its columns differ from those of {names[0]}",
                f"{names[0]}: {schema}; {name}: {client_survey.schema}",
            )
            raise RecipeError(what, where=f"client {name}", hint=hint)
        for key, moments in client_survey.cells.items():
            cells[key] = cells[key].merge(moments) if key in cells else moments
    ordered = sorted(cells)
    mean, std = _scaling(ordered, cells, len(schema.sensors), schema)
    labels = merge_all(client_survey.labels for client_survey in several)
    if not labels.std[0] > 0:
        raise RecipeError(
            f"{schema.target} is the same everywhere ({labels.mean[0]:g})",
            hint="there is nothing to learn; is the cap below every label, or the wrong column the target?",
        )
    overall = merge_all(cells[key] for key in ordered)
    feed, settings_at = section.setting_inputs and bool(schema.settings), slice(len(schema.sensors), None)
    relative = schema.task == "soh" and section.label == "relative"
    levels = section.levels if schema.task == "soh" else None
    window, grid_end_in_s = _lengths(section, schema, several)
    return Recipe(
        task=schema.task,
        sensors=schema.sensors,
        settings=schema.settings if feed or section.conditions else (),
        time_measure=schema.time_measure,
        target="soh" if relative else schema.target,
        target_measure="of rated" if relative else schema.target_measure,
        window=window,
        life=section.history == "life" and schema.task != "soh",
        history=section.series if schema.task != "soh" and section.series not in ("window", "life") else None,
        stride=section.stride if schema.task != "soh" else 1,
        short=section.short,
        cycle=section.cycle if schema.task == "soh" else None,
        grid_end_in_s=grid_end_in_s,
        levels=levels,
        level_bounds=None if levels is None else common_levels(levels, [(s.level_high, s.level_low) for s in several]),
        cap=section.cap if schema.task == "rul" else None,
        relative=relative,
        conditions=dict(section.conditions),
        condition_inputs=section.condition_inputs and len(ordered) > 1,
        condition_keys=tuple(ordered),
        mean=mean,
        std=std,
        extra=section.extra if schema.task != "soh" else (),
        setting_mean=tuple(overall.mean[settings_at].tolist()) if feed else (),
        setting_std=tuple(np.where(overall.std > 0, overall.std, 1.0)[settings_at].tolist()) if feed else (),
        label_mean=float(labels.mean[0]),
        label_std=float(labels.std[0]),
        usual=merged_ranges(
            [(client_survey.usual, client_survey.cells) for client_survey in several],
            dict(zip(ordered, zip(mean, std, strict=True), strict=True)),
            None if levels is None else schema.sensors.index(levels),
        ),
        health=schema.health,
        ahead=schema.ahead,
    )


def recipe_for(options: RecipeOptions, fleets: Mapping[str, Fleet]) -> Recipe:
    """The recipe of fleets that are all in one place: each surveyed, the surveys merged."""
    terms = survey_terms(options)
    return make_recipe(options, {name: survey(fleet, terms) for name, fleet in fleets.items()})


def _scaling(
    keys: list[conditions.Key], cells: Mapping[conditions.Key, Moments], width: int, schema: Schema
) -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]:
    """Mean and deviation a condition; a sensor constant in one condition takes its average deviation there."""
    mean = np.stack([cells[key].mean[:width] for key in keys])
    std = np.stack([cells[key].std[:width] for key in keys])
    counts = np.array([cells[key].n for key in keys], dtype=np.float64)
    within: FloatArray = np.sqrt((counts[:, None] * np.square(std)).sum(axis=0) / counts.sum())
    constant = [schema.sensors[i] for i in np.flatnonzero(within == 0)]
    if constant:
        listed = ", ".join(f'"{name}"' for name in constant)
        raise RecipeError(
            f"sensor {', '.join(constant)} never changes"
            + (" within any operating condition" if len(keys) > 1 else ""),
            hint=f"it carries no information; set recipe.drop = [{listed}]",
        )
    std = np.where(std > 0, std, within)
    return tuple(map(tuple, mean.tolist())), tuple(map(tuple, std.tolist()))


def _lengths(section: RecipeOptions, schema: Schema, surveys: list[Survey]) -> tuple[int, float | None]:
    if schema.task == "soh" and isinstance(section.history, str):
        what = f'recipe.history = "{section.history}" is for series; a cycle is read as a whole'
        raise ConfigError(what, hint="leave it out")
    name = section.cycle if schema.task == "soh" else section.series
    return histories[name].lengths(section, min(s.shortest for s in surveys), min(s.shortest_in_s for s in surveys))


def rows_at_levels(
    fleet: Fleet, sensors: tuple[str, ...], level: str, points: int, end: float
) -> tuple[FloatArray, float, float]:
    """Every cycle at levels between the fleet's own bounds (cycles x points, sensors | settings), and the bounds.

    Common bounds are not known yet; those of one client are near enough for a scaling. The bounds are rounded to three
    digits, because as they stand each is a value of the data.
    """
    if level not in sensors:
        raise ConfigError(f"recipe.levels is '{level}', which is not a sensor", hint=f"sensors: {', '.join(sensors)}")
    order = [fleet.schema.sensors.index(s) for s in sensors]
    column = sensors.index(level)
    early, late = bounds_of(fleet, order[column], end)
    high, low = digits_down(early, 3), -digits_down(-late, 3)
    if not high > low:
        raise DataError(
            f"{level} does not fall in the first {end:g} s of every cycle",
            where=fleet.source or f"fleet {fleet.name}",
            hint="set recipe.grid_end_in_s later, or recipe.levels to a sensor that falls during a cycle",
        )
    levels, parts = np.linspace(high, low, points), []
    for unit in fleet:
        rows = np.concatenate([unit.sensors[:, order], unit.settings], axis=1).astype(np.float32)
        for k in range(len(unit.positions)):
            rows_of_cycle = unit.cycle(k)
            when, then = at_levels(levels, column, end, *looked_at(end, unit.time[rows_of_cycle], rows[rows_of_cycle]))
            then[:, column] = when
            parts.append(then.astype(np.float64))
    return np.concatenate(parts), high, low


def common_levels(sensor: str, bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Between which levels every client's cycles can be read, from the high and low bounds of each."""
    high, low = min(high for high, _ in bounds), max(low for _, low in bounds)
    if not high > low:
        raise RecipeError(
            f"the clients' cycles share no levels of {sensor}: from {high:g} down to {low:g}",
            hint="they work at different levels; read them on a grid in time instead (recipe.cycle = 'grid')",
        )
    return high, low


def digits_down(value: float, digits: int) -> float:
    """Round down to `digits` significant digits.

    >>> digits_down(2397.4, 2), digits_down(0.0123, 2), digits_down(-3.491, 3)
    (2300.0, 0.012, -3.5)
    """
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return float(f"{math.floor(value / step) * step:.{digits}g}")
