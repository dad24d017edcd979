"""Rows of many units at once, where units are series: the same healths as row by row, as columns.

A unit whose clock or rows are odd here is left to :class:`fedprognos.prognosis.stream.Stream`, which looks at its rows
one by one. Tests hold both ways to be equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedprognos.arrays import BoolArray, FloatArray, IntArray, Rows
from fedprognos.features.history import UNSEEN, rule_of
from fedprognos.prognosis.health import AT_CAP, STATES, HealthTable, RowTable, machine_and_life
from fedprognos.prognosis.health_model import BATCH, HALF_A_STEP, HealthModel
from fedprognos.prognosis.row_clock import JUMP
from fedprognos.prognosis.row_steps import Steps
from fedprognos.prognosis.sensor_faults import (
    DISTRUSTED,
    DRIFT,
    MID_LIFE,
    MISSING,
    OUT_OF_RANGE,
    STUCK,
    UNKNOWN_WEAR,
    unknown_wear,
)
from fedprognos.prognosis.sensor_traces import SensorTrace, SensorWalk
from fedprognos.prognosis.unit_state import FLAGS, WORN, UnitState
from fedprognos.tables import name_of_life

FLAG_ORDER = (*FLAGS.values(), MID_LIFE, OUT_OF_RANGE, DRIFT, STUCK, MISSING, UNKNOWN_WEAR, AT_CAP, WORN)
"""Flags in the order in which a health has them."""
BITS = {flag: 1 << k for k, flag in enumerate(FLAG_ORDER)}
"""Those of :data:`FLAGS` are the bits of what is odd about a window."""


class Reading(NamedTuple):
    """What the network said at each row, in the order of steps.

    Parameters
    ----------
    outputs : (N,)
        Standardised; NaN where it was not asked.
    distances : (N,)
        How far its features are from those of training.
    odd : (N,)
        Bits of what is odd about what it looked at.
    progress
        Rows at which it was not asked: how many rows their units have by then.
    """

    outputs: FloatArray
    distances: FloatArray
    odd: IntArray
    progress: dict[int, float]


@dataclass(frozen=True, eq=False)
class SeriesRows:
    """Rows of some units, scaled.

    Parameters
    ----------
    table
        The rows.
    names : (U,)
        Of the units, in the order in which they appear.
    unit : (N,)
        Numbers of the units among them.
    given : (N, sensors + settings)
        Sensors and settings.
    scaled : (N, columns)
        Not a number where a sensor is blank.
    unseen : (N,)
        Which rows are in a condition that training did not have.
    """

    table: RowTable
    names: list[str]
    unit: IntArray
    given: FloatArray
    scaled: Rows
    unseen: BoolArray

    @staticmethod
    def from_table(table: RowTable, model: HealthModel) -> SeriesRows:
        """The rows of a table."""
        unit, names = pd.factorize(np.asarray(table.units, dtype=object))
        with np.errstate(all="ignore"):
            scaled, unseen = model.recipe.scale(table.sensors, table.settings)
        given = np.concatenate([table.sensors, table.settings], axis=1)
        return SeriesRows(table, names.tolist(), unit, given, scaled, unseen)

    def of_units(self, chosen: BoolArray) -> tuple[SeriesRows, IntArray]:
        """The rows of some units (U,), and which rows of these they are."""
        if chosen.all():
            return self, np.arange(len(self.unit))
        rows = np.flatnonzero(chosen[self.unit])
        number = np.cumsum(chosen) - 1
        names = [name for name, kept in zip(self.names, chosen.tolist(), strict=True) if kept]
        part = self.table.take(rows.tolist())
        return SeriesRows(
            part, names, number[self.unit[rows]], self.given[rows], self.scaled[rows], self.unseen[rows]
        ), rows

    def plain_units(self, states: Mapping[str, UnitState], trusting: bool) -> BoolArray:
        """Units (U,) with rows that are all usable and follow each other without doubt: no repeats, no jumps."""
        count, width = len(self.names), self.table.sensors.shape[1]
        blank = np.isnan(self.given)
        finite = np.isfinite(self.scaled)
        finite[:, :width] |= blank[:, :width]
        usable = np.asarray(finite.all(axis=1) & ~blank[:, width:].any(axis=1))
        plain: BoolArray = np.bincount(self.unit[~usable], minlength=count) == 0
        first, last = self.bounds()
        before = [states.get(name) for name in self.names]
        if not trusting:
            clocks = [None if state is None else state.clock for state in before]
            order = np.argsort(self.unit, kind="stable")
            begins = np.searchsorted(self.unit[order], np.arange(count))
            steps = np.diff(np.asarray(self.table.positions)[order], prepend=math.nan)
            since = np.array([math.nan if clock is None else clock.last for clock in clocks])
            steps[begins] = np.asarray(self.table.positions)[first] - since
            least, most = np.fmin.reduceat(steps, begins), np.fmax.reduceat(steps, begins)
            usual = np.array(
                [min(clock.steps, default=math.inf) if clock is not None else math.inf for clock in clocks]
            )
            with np.errstate(invalid="ignore"):
                plain &= np.isnan(least) | ((least > 0) & (most <= JUMP * np.minimum(least, usual)))
        numbers = {name: k for k, name in enumerate(self.names)}
        for k, (name, state) in enumerate(zip(self.names, before, strict=True)):
            earlier = numbers.get(life_before(name)) if state is None else None
            if earlier is not None and last[earlier] > first[k]:
                plain[earlier] = plain[k] = False
            elif earlier is not None:
                plain[k] &= plain[earlier]
        return plain

    def bounds(self) -> tuple[IntArray, IntArray]:
        """First and last row of every unit: (U,) each."""
        rows = np.arange(len(self.unit))
        first, last = np.empty(len(self.names), dtype=np.int64), np.empty(len(self.names), dtype=np.int64)
        first[self.unit[::-1]], last[self.unit] = rows[::-1], rows
        return first, last

    def blanks(self) -> list[int]:
        """Blank cells of each column."""
        counts: list[int] = np.isnan(self.given).sum(axis=0).tolist()
        return counts

    def start(self, model: HealthModel, states: Mapping[str, UnitState]) -> list[UnitState]:
        """The memory of each unit (U,), begun where there is none."""
        states_before = [states.get(name) for name in self.names]
        last = self.bounds()[1]
        numbers = {name: k for k, name in enumerate(self.names)}
        memories = []
        for name, known in zip(self.names, states_before, strict=True):
            state = known or model.start()
            if known is None:
                before = life_before(name)
                if before in numbers:
                    state.clock.origin = float(self.table.positions[last[numbers[before]]])
                elif before in states and not math.isnan(states[before].clock.last):
                    state.clock.origin = states[before].clock.last
            memories.append(state)
        return memories

    def healths(
        self, model: HealthModel, states: Sequence[UnitState], coverage: float, *, every: bool, trusting: bool
    ) -> HealthTable:
        """Health at every row, or at the last one of each unit; the states (U,) go on with them.

        Raises
        ------
        UnsoundRowError
            Where a row cannot be used; nothing has changed then.
        """
        recipe, steps = model.recipe, Steps.from_units(self.unit)
        ranked = [states[k] for k in steps.units.tolist()]
        watch = ranked[0].worn  # a model has one for every unit, or for none
        as_given = np.empty(0) if watch is None else self.scaled[steps.order, watch.column]
        latest, given, inputs, trace = self._traced(model, ranked, steps)
        positions = np.asarray(self.table.positions, dtype=np.float64)[steps.order]
        self._advance(ranked, steps, positions, trusting)
        for state, values in zip(ranked, latest, strict=True):
            state.latest_values = values
        worn = np.zeros(len(inputs), dtype=bool)
        if watch is not None:
            possible = np.where(inputs[:, watch.column] == as_given, given[:, watch.column], math.nan)
            ends = [state.worn for state in ranked]
            for k, (rank, value) in enumerate(zip(steps.rank.tolist(), possible.tolist(), strict=True)):
                if (end := ends[rank]) is not None:
                    end.push(value)
                    worn[k] = end.worn
        if recipe.extra:
            inputs = np.stack([ranked[rank].channels.extend(row) for rank, row in zip(steps.rank, inputs, strict=True)])
        unseen = self.unseen[steps.order]
        if recipe.life:
            reading = Reading(*model.carry_on(inputs, steps, ranked), np.where(unseen, UNSEEN, 0), {})
            novel = _novel(ranked, steps, reading.distances, worn, model.novelty_limit)
        else:
            reading = _read_windows(model, steps, ranked, inputs, positions, unseen)
            novel = (reading.distances > model.novelty_limit) & ~worn
        last = self.bounds()[1]
        shown = np.arange(len(self.unit)) if every else np.sort(last)  # rows of the table
        place = np.argsort(steps.order)
        table = HealthTable(
            self.names,
            self.unit[shown],
            positions[place[shown]],
            *_judged(model, steps, ranked, place[shown], reading, trace, novel, worn, coverage),
        )
        for k, health in enumerate(table.healths(np.searchsorted(shown, last).tolist())):
            states[k].health, states[k].pending = health, None
        return table

    def inputs(self, model: HealthModel, states: Sequence[UnitState]) -> Rows:
        """What the network may see of each row (N, columns), in the order of steps; the sensors' states go on.

        Raises
        ------
        UnsoundRowError
            Where a row cannot be used; nothing has changed then.
        """
        steps = Steps.from_units(self.unit)
        return self._traced(model, [states[k] for k in steps.units.tolist()], steps)[2]

    def _traced(
        self, model: HealthModel, ranked: Sequence[UnitState], steps: Steps
    ) -> tuple[FloatArray, FloatArray, Rows, SensorTrace]:
        """Latest values (U, columns), given values and what the network may see of rows, and what was found there."""
        given, inputs = self.given[steps.order], self.scaled[steps.order]
        latest = np.stack([state.latest_values for state in ranked])
        held = np.array([policy != "mean" for policy in model.policies[: len(model.recipe.sensors)]])
        watches = [state.sensors for state in ranked]
        trace = SensorWalk(watches, latest, model.limits, model.recipe, steps, given, inputs, held).trace()
        return latest, given, inputs, trace

    def _advance(self, ranked: Sequence[UnitState], steps: Steps, positions: FloatArray, trusting: bool) -> None:
        """Set clocks and counts to the last rows."""
        order = np.argsort(steps.rank, kind="stable")
        for state, own in zip(ranked, np.split(positions[order], np.cumsum(np.bincount(steps.rank))[:-1]), strict=True):
            state.clock.follow(own, trusting)
            if state.recipe.life:
                state.history.count_rows(len(own))


def _read_windows(
    model: HealthModel,
    steps: Steps,
    ranked: Sequence[UnitState],
    inputs: Rows,
    positions: FloatArray,
    unseen: BoolArray,
) -> Reading:
    """Outputs at the window that each row (N, channels) completes."""
    outputs, distances = np.full(len(inputs), math.nan), np.zeros(len(inputs))
    odd = np.zeros(len(inputs), dtype=np.int64)
    progress: dict[int, float] = {}
    rank, place, new_condition = steps.rank.tolist(), positions.tolist(), unseen.tolist()
    for begin in range(0, len(inputs), BATCH):
        asked, windows = list[int](), list[Rows]()
        for k in range(begin, min(begin + BATCH, len(inputs))):
            history = ranked[rank[k]].history
            cuts = history.push(inputs[k], place[k], unseen=new_condition[k])
            for cut in cuts:
                if cut.window is not None:
                    asked.append(k)
                    windows.append(cut.window)
                    odd[k] = cut.odd
            if not cuts:
                progress[k] = history.progress[0]
        if asked:
            outputs[asked], distances[asked] = model.looked_at(np.stack(windows))
    return Reading(outputs, distances, odd, progress)


def life_before(unit: str) -> str:
    """The unit that is the life before one of a repaired machine; empty for a first life."""
    machine, life = machine_and_life(unit)
    return name_of_life(machine, str(life - 1)) if life > 1 else ""


def _novel(
    ranked: Sequence[UnitState], steps: Steps, distances: FloatArray, worn: BoolArray, limit: float
) -> BoolArray:
    """At which rows (N,) the unit wears in an unknown way."""
    novel = np.zeros(len(distances), dtype=bool)
    odd = np.array([state.novelty.latched or state.novelty.rows > 0 for state in ranked])
    odd[steps.rank[distances > limit]] = True
    for k in np.flatnonzero(odd[steps.rank] & ~worn).tolist():
        novel[k] = ranked[steps.rank[k]].novelty.push(distances[k], limit)
    return novel


def _judged(
    model: HealthModel,
    steps: Steps,
    ranked: Sequence[UnitState],
    at: IntArray,
    reading: Reading,
    trace: SensorTrace,
    novel: BoolArray,
    worn: BoolArray,
    coverage: float,
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray, IntArray, list[tuple[str, ...]], dict[int, str]]:
    """Value, bounds, state, flags and reasons of some rows, given by their places `at` in the order of steps.

    What :meth:`HealthModel.healths` and :meth:`UnitState.doubts` find for one row.
    """
    recipe = model.recipe
    value = recipe.decode(reading.outputs[at])
    low, high = model.bounds(value, coverage)
    rank, stretch, novel, worn = steps.rank[at], trace.stretch[at], novel[at], worn[at]
    widened = stretch != 1
    for bound in (low, high):
        bound[widened] = np.maximum(value + stretch * (bound - value), 0.0)[widened]
    bits = reading.odd[at]
    mid_life = [state.mid_life for state in ranked]
    bits[np.array([bool(text) for text in mid_life])[rank]] |= BITS[MID_LIFE]
    asked = ~np.isin(at, list(reading.progress)) if reading.progress else np.ones(len(at), dtype=bool)
    odd = trace.suspect[at] | (bits & BITS[MID_LIFE] > 0) | novel | worn | ~np.isfinite(value)
    in_doubt = np.flatnonzero(odd & asked)
    reasons: dict[int, str] = {}
    for k, place, unit in zip(in_doubt.tolist(), at[in_doubt].tolist(), rank[in_doubt].tolist(), strict=True):
        if worn[k]:
            end = ranked[unit].worn
            reasons[k] = "" if end is None else end.words(recipe.sensors)
            continue
        flags, text = model.limits.faults(trace.at(place)) if trace.suspect[place] else ((), "")
        for flag in flags:
            bits[k] |= BITS[flag]
        unknown = ""
        if novel[k] and UNKNOWN_WEAR not in flags:
            bits[k] |= BITS[UNKNOWN_WEAR]
            unknown = unknown_wear(recipe.sensors, trace.level[place])
        overflow = "" if math.isfinite(value[k]) else "inputs overflow after scaling"
        if reason := "; ".join(filter(None, (overflow, mid_life[unit], text, unknown))):
            reasons[k] = reason
    if recipe.cap is not None:
        top = recipe.cap - HALF_A_STEP
        bits[value > top] |= BITS[AT_CAP]
        high[(value > top) | (high > top)] = math.nan
    bits[worn] = BITS[WORN]
    value[worn] = 0.0
    bits[~asked], value[~asked] = 0, math.nan
    unbounded = (bits & sum(BITS[flag] for flag in (*DISTRUSTED, WORN))) > 0
    low[unbounded] = high[unbounded] = math.nan
    finite = np.isfinite(value)
    low[~finite] = high[~finite] = value[~finite] = math.nan
    distinct, flags_of_row = np.unique(bits, return_inverse=True)
    combinations = [tuple(flag for flag in FLAG_ORDER if BITS[flag] & number) for number in distinct.tolist()]
    state = np.where(finite, STATES.index("ok"), STATES.index("cannot-say"))
    if reading.progress:
        state[~asked] = STATES.index("warming-up")
        needed = f"of {ranked[0].history.progress[1]:g} {rule_of(recipe).counted}"
        for k in np.flatnonzero(~asked).tolist():
            reasons[k] = f"{reading.progress[int(at[k])]:g} {needed}"
    return value, low, high, state, flags_of_row.reshape(-1), combinations, reasons
