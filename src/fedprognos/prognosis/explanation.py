"""Why a unit's health is what it is: how much each sensor changed it since the unit's first rows.

All sensors are led together, in a few steps, from where they were at first to where they are, over the whole history
that the model reads. At each step every sensor goes a little ahead of the others; what this changes of the health,
summed over the steps, is the sensor's effect. These are integrated gradients (Sundararajan et al., 2017)
by differences, so any runtime can do it: effects add up to the change of health between the two ends of the path. All
these histories run through the network in batches.

A sensor that seems to be broken comes first, whatever its effect: the value rests on it. The sensor because of which
intervals widen comes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, Rows
from fedprognos.errors import DataError
from fedprognos.features import SETTLED, Recipe, levels
from fedprognos.features.history import rule_of
from fedprognos.prognosis.health import RowTable
from fedprognos.prognosis.health_model import HealthModel
from fedprognos.prognosis.sensor_faults import DOUBT, MOVED, ODD_SENSORS
from fedprognos.prognosis.stream import Stream

FIRST_ROWS = 2 * SETTLED
"""Rows at the beginning whose mean says where a sensor was at first."""
STEPS = 8
"""On the way from the first levels to those of today. More change an effect by about a cycle at most in a life of 200,
and never which three sensors come first (six kept-out engines of FD001, against 100 steps)."""
AHEAD = 0.02
"""Share of the way by which a sensor goes ahead: small, but far above the rounding of the network."""
MOST_ROWS = 20_000
"""Rows of a life that can be explained; a longer one would take many seconds."""
MOST_NUMBERS = 8_000_000
"""Numbers of histories that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What one sensor did to a unit's health.

    Parameters
    ----------
    effect
        Change of health through it, in the measure of health: below zero where it made the unit look worse.
    moved
        How far its level has moved since the first rows, in deviations of the training machines.
    since
        Position from which on it has been more than :data:`MOVED` deviations from where it was; None where it is not,
        and for cyclic units.
    broken
        It seems to be broken; see :mod:`fedprognos.prognosis.sensor_faults`.
    odd
        It leaves what the other sensors say so far that intervals widen.
    """

    sensor: str
    effect: float
    moved: float
    since: float | None
    broken: bool
    odd: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a health is what it is.

    Parameters
    ----------
    position
        Of the health.
    since
        Position of the first row that is known.
    total
        Change of health through all sensors together.
    causes
        All sensors: broken ones first, then the odd one, then those with the largest effect.
    """

    unit: str
    position: float
    since: float
    total: float
    causes: tuple[Cause, ...]

    @property
    def unknown_wear(self) -> bool:
        """Whether so many sensors left what training showed that it is the machine, not the sensors."""
        return sum(cause.broken for cause in self.causes) >= ODD_SENSORS

    @property
    def words(self) -> str:
        """The three sensors that matter most, in a line.

        >>> Explanation("pump", 90.0, 1.0, -7.5, (Cause("heat", -7.1, 2.2, 61.0, False),)).words
        'heat -7.1 (since 61)'
        """
        parts, doubt = [], "unlike training" if self.unknown_wear else "seems broken"
        for cause in self.causes[:3]:
            since = "" if cause.since is None else f"since {cause.since:g}"
            state = doubt if cause.broken else "not as the other sensors say" if cause.odd else ""
            note = ", ".join(filter(None, (state, since)))
            parts.append(f"{cause.sensor} {cause.effect:+.3g}" + (f" ({note})" if note else ""))
        return ", ".join(parts)


def explain(model: HealthModel, table: RowTable) -> Explanation:
    """Explain a unit's latest health.

    Parameters
    ----------
    table
        Rows of one unit in their order, from its first on, or the latest that are known.

    Raises
    ------
    DataError
        Where there are too few rows for a health.
    """
    recipe = model.recipe
    if len(table) > MOST_ROWS:
        if recipe.life:
            raise DataError(f"{len(table)} rows are too many to explain, {MOST_ROWS} at most", where=table.units[0])
        table = table.part(slice(len(table) - MOST_ROWS, None))
    stream, sensors = Stream(model, 1, trusting=True), len(recipe.sensors)
    life = stream.life_inputs(table) if recipe.life else None
    if life is not None:
        rows, state = life
        positions = list(table.positions)
    else:
        questions = stream.inputs(table)
        if not questions:
            raise DataError("there is no health to explain yet", where=table.units[0] if len(table) else "")
        windows, state = [question.window for question in questions], questions[-1].state
        positions = [question.health.position for question in questions]
    if recipe.life or rule_of(recipe).name == "window":
        if life is None:
            rows = _rows_of(windows, recipe)
            positions = [*table.positions[: len(rows) - len(questions)], *positions]
        first = np.broadcast_to(rows[:FIRST_ROWS, :sensors].mean(axis=0), rows[:, :sensors].shape)
        moved, since = _moves(rows[:, :sensors].astype(np.float64), first[0], positions)
    else:  # cycles: the latest is compared with the first
        rows, first = windows[-1], windows[0][:, :sensors]
        moved, since = (rows[:, :sensors] - first).mean(axis=0).astype(np.float64), [None] * sensors
    total, effects = _effects(model, rows, first)
    broken = (state.sensors.latched > 0) | (state.sensors.blank > model.limits.still)
    oddest, share = model.limits.oddest_sensor(state.sensors)
    odd = (np.arange(sensors) == oddest) & (share > DOUBT)
    order = sorted(range(sensors), key=lambda k: (not broken[k], not odd[k], -abs(effects[k])))
    causes = (
        Cause(recipe.sensors[k], float(effects[k]), float(moved[k]), since[k], bool(broken[k]), bool(odd[k]))
        for k in order
    )
    return Explanation(table.units[-1], positions[-1], positions[0], total, tuple(causes))


def by_unit(tables: Sequence[RowTable]) -> dict[str, RowTable]:
    """The rows of each unit, in the order they came."""
    places: dict[str, list[tuple[RowTable, int]]] = {}
    for table in tables:
        for k, unit in enumerate(table.units):
            places.setdefault(unit, []).append((table, k))
    return {
        unit: RowTable(
            [unit] * len(rows),
            [table.positions[k] for table, k in rows],
            [table.cycles[k] for table, k in rows],
            [table.ends[k] for table, k in rows],
            np.stack([table.sensors[k] for table, k in rows]),
            np.stack([table.settings[k] for table, k in rows]),
        )
        for unit, rows in places.items()
    }


def _rows_of(windows: list[Rows], recipe: Recipe) -> Rows:
    """The rows (T, columns) of a series behind all its windows, as scaled, without channels made from them."""
    latest = np.stack([window[-1, : recipe.columns] for window in windows])
    before = windows[0][:-1, : recipe.columns]
    return latest if recipe.short == "pad" else np.concatenate([before, latest])  # a padded window repeats its row


def _moves(rows: FloatArray, first: Rows, positions: Sequence[float]) -> tuple[FloatArray, list[float | None]]:
    """How far levels are from where they were at first (sensors,), and since when they have been away for good."""
    smooth = levels(rows)
    if not len(smooth):
        return rows[-1] - first, [None] * rows.shape[1]
    since: list[float | None] = []
    for near in (np.abs(smooth - first) <= MOVED).T:
        begin = int(np.max(np.flatnonzero(near), initial=-1)) + 1
        since.append(positions[SETTLED - 1 + begin] if begin < len(near) else None)
    return smooth[-1] - first, since


def _effects(model: HealthModel, rows: Rows, first: Rows) -> tuple[float, FloatArray]:
    """Change of health through all sensors together, and through each (sensors,).

    Parameters
    ----------
    rows : (T, columns)
    first : (T, sensors)
        Where sensors were at first.
    """
    sensors = first.shape[1]
    middles = np.repeat(((np.arange(STEPS) + 0.5) / STEPS)[:, None], sensors, axis=1)
    ahead = middles[:, None] + AHEAD * np.eye(sensors)  # (STEPS, sensors, sensors)
    shares = np.concatenate([np.ones((1, sensors)), np.zeros((1, sensors)), middles, ahead.reshape(-1, sensors)])
    size = max(1, MOST_NUMBERS // (len(rows) * model.recipe.channels))
    outputs = [_outputs(model, rows, first, shares[a : a + size]) for a in range(0, len(shares), size)]
    healths = np.concatenate(outputs) * model.recipe.label_std  # not clipped at the cap, which would hide effects
    changes = healths[STEPS + 2 :].reshape(STEPS, sensors) - healths[2 : STEPS + 2, None]
    return float(healths[0] - healths[1]), changes.sum(axis=0) / (AHEAD * STEPS)


def _outputs(model: HealthModel, rows: Rows, first: Rows, shares: FloatArray) -> FloatArray:
    """Standardised outputs (B,) after histories whose sensors have gone shares (B, sensors) of their way."""
    recipe, sensors = model.recipe, first.shape[1]
    histories = np.repeat(rows[None], len(shares), axis=0)
    histories[:, :, :sensors] = first + shares[:, None].astype(np.float32) * (rows[:, :sensors] - first)
    if rows.shape[1] < recipe.channels:
        histories = np.stack([recipe.extended(history) for history in histories])
    if not recipe.life:
        padding = np.repeat(histories[:, :1], max(recipe.window - len(rows), 0), axis=1)
        histories = np.concatenate([padding, histories[:, -recipe.window :]], axis=1)
    return model.outputs(histories)
