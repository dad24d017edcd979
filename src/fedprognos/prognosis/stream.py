"""Health as rows come in: one update a row or cycle, equal to the offline numbers."""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import IntArray, Rows
from fedprognos.features.history import Cut, rule_of
from fedprognos.prognosis import stream_snapshot
from fedprognos.prognosis.health import Health, HealthTable, Row, RowTable, Update, Verdict
from fedprognos.prognosis.health_model import BATCH, HealthModel
from fedprognos.prognosis.incoming_rows import batches, checked, dated, without_blanks
from fedprognos.prognosis.sensor_traces import UnsoundRowError
from fedprognos.prognosis.series_rows import SeriesRows, life_before
from fedprognos.prognosis.unit_state import Question, UnitState

BLOCK = 131_072
"""Rows taken side by side."""
LEAST_BLOCK = 12
"""Fewer are faster one by one."""


@dataclass(frozen=True, eq=False)
class Block:
    """Rows that were taken side by side.

    Parameters
    ----------
    rows : (N,)
        Which rows of the table.
    healths
        At these rows, or at the last one of each unit.
    left
        The other rows, still to be taken.
    latest
        The last of these rows of each unit.
    """

    rows: IntArray
    healths: HealthTable
    left: list[int]
    latest: dict[str, int]


def in_order(refused: Mapping[int, Update], others: Iterable[Update]) -> list[Update]:
    """What became of all rows: those that were refused have their numbers, the others follow one another."""
    rest = iter(others)
    if not refused:
        return list(rest)
    return [*(refused[k] if k in refused else next(rest) for k in range(max(refused) + 1)), *rest]


class Stream:
    """Units under watch.

    Parameters
    ----------
    model
        From windows to health, such as a :class:`fedprognos.prognosis.Predictor`.
    max_units
        Units remembered.
    when_full
        What to do with a further one: "forget" the unit that was silent longest, or "refuse" the row.
    coverage
        Of the intervals.
    strict
        Refuse rows with sensors or settings that the model does not know; False passes over them.
    trusting
        Take rows as they come without judging their clocks: those of a fleet are known to be in order.

    Examples
    --------
    >>> from fedprognos.features import Recipe
    >>> recipe = Recipe(task="rul", sensors=("heat",), window=2, mean=((0.0,),), std=((1.0,),), label_mean=50.0)
    >>> stream = Stream(HealthModel(recipe, lambda windows: windows.mean(axis=(1, 2))))
    >>> stream.feed("pump", 1, {"heat": 1.0}).health.reason
    '1 of 2 rows'
    >>> stream.feed("pump", 2, {"heat": 3.0}).health.value
    52.0
    >>> stream.feed("pump", 3, {"heat": "hot"}).reason
    "sensor 'heat' is 'hot', not a number"
    """

    def __init__(
        self,
        model: HealthModel,
        max_units: int = 50_000,
        *,
        when_full: Literal["forget", "refuse"] = "forget",
        coverage: float = 0.9,
        strict: bool = True,
        trusting: bool = False,
    ) -> None:
        self.model = model
        self.max_units = max_units
        self.when_full = when_full
        self.coverage = coverage
        self.strict = strict
        self.trusting = trusting
        self.counts: Counter[Verdict] = Counter()
        self.filled: Counter[str] = Counter()
        self.evicted = 0
        self._states: OrderedDict[str, UnitState] = OrderedDict()
        self._lock = threading.RLock()

    # --- rows in -----------------------------------------------------------------------------

    def feed(
        self,
        unit: str,
        position: float,
        sensors: Mapping[str, float | None],
        settings: Mapping[str, float | None] | None = None,
        *,
        cycle: int | None = None,
        end: bool = False,
    ) -> Update:
        """Take one row; see :class:`Row` for what its parts are."""
        return self.feed_many([Row(unit, position, sensors, settings or {}, cycle, end)])[0]

    def feed_many(self, rows: Sequence[Row]) -> list[Update]:
        """Take rows of any units in the order given; the network looks at all new windows in one pass."""
        table, refused = self.read(rows)
        return in_order(refused, self.feed_table(table))

    def read(self, rows: Sequence[Row]) -> tuple[RowTable, dict[int, Update]]:
        """Rows as columns, without those that are refused as they are, which are given by their numbers."""
        recipe = self.model.recipe
        refused: dict[int, Update] = {}
        good: list[Row] = []
        values: list[list[float]] = []
        for k, given in enumerate(rows):
            row = dated(recipe, given)
            numbers, reason = checked(recipe, row, self.strict, self.model.policies)
            if reason:
                refused[k] = Update(row.unit, row.position, row.cycle, Verdict.REFUSED, reason)
            else:
                good.append(row)
                values.append(numbers)
        with self._lock:
            self.counts[Verdict.REFUSED] += len(refused)
        split = len(recipe.sensors)
        columns = np.array(values, dtype=np.float64).reshape(len(good), split + len(recipe.settings))
        table = RowTable(
            [row.unit for row in good],
            [float(row.position) for row in good],
            [row.cycle for row in good],
            [row.end for row in good],
            columns[:, :split],
            columns[:, split:],
        )
        return table, refused

    def feed_table(self, table: RowTable, *, every: bool = True) -> list[Update]:
        """Take many rows; what became of each, in order.

        Parameters
        ----------
        every
            Give all healths. False only remembers the rows, and :meth:`health` tells where each unit stands.
        """
        taken: list[Update] = []
        for part in self._blocks(table):
            block, updates = self._take_block(part, every)
            if block is not None:
                by_row = dict(zip(block.left, updates, strict=True))
                healths = iter(block.healths.healths() if every else ())
                for k in block.rows.tolist():
                    shown = [next(healths)] if every else []
                    place = part.units[k], part.positions[k], part.cycles[k]
                    by_row[k] = Update(*place, Verdict.ACCEPTED, "", shown)
                updates = [by_row[k] for k in range(len(part))]
            taken += updates
        return taken

    def feed_columns(self, table: RowTable, *, every: bool = True) -> tuple[HealthTable, tuple[int, str] | None]:
        """:meth:`feed_table` for many rows: their healths as columns, and the first row that was not taken, and why."""
        tables, places, refusals, begin = list[HealthTable](), list[IntArray](), list[tuple[int, str]](), 0
        for part in self._blocks(table):
            block, updates = self._take_block(part, every)
            left = list(range(len(part))) if block is None else block.left
            if block is not None and every:
                tables.append(block.healths)
                places.append(begin + block.rows)
            if left and every:
                tables.append(HealthTable.from_healths([h for update in updates for h in update.healths]))
                places.append(np.repeat(begin + np.array(left), [len(update.healths) for update in updates]))
            refusals += [(begin + k, u.reason) for k, u in zip(left, updates, strict=True) if not u.accepted][:1]
            begin += len(part)
        healths_of_rows = HealthTable.joined(tables, places) if tables else HealthTable.from_healths([])
        return healths_of_rows, min(refusals, default=None)

    def _blocks(self, table: RowTable) -> Iterator[RowTable]:
        return (table.part(slice(a, a + BLOCK)) for a in range(0, len(table), BLOCK))

    def _take_block(self, table: RowTable, every: bool) -> tuple[Block | None, list[Update]]:
        """What was taken side by side, and what became of the rows that were not."""
        with self._lock:
            block = self._take_series(table, every)
            if block is None:
                return None, self._take(table, every)
            left = table.take(block.left)
            updates = self._take(left, every)
            heard = block.latest | {
                u.unit: k for u, k in zip(updates, block.left, strict=True) if u.verdict is not Verdict.REFUSED
            }
            for unit in sorted(heard, key=heard.__getitem__):
                self._states.move_to_end(unit)
            return block, updates

    def _take_series(self, table: RowTable, every: bool) -> Block | None:
        """Take rows of series side by side; None where they have to be taken one by one.

        A window that only has to be remembered waits for :meth:`healths`, so those rows are taken one by one, too.
        """
        recipe = self.model.recipe
        if recipe.cycle is not None or len(table) < LEAST_BLOCK or not (recipe.life or every):
            return None
        rows = SeriesRows.from_table(table, self.model)
        new = sum(name not in self._states for name in rows.names)
        if len(self._states) + new > self.max_units:
            return None
        plain, chosen = rows.of_units(rows.plain_units(self._states, self.trusting))
        if not plain.names:
            return None
        states = plain.start(self.model, self._states)
        try:
            healths = plain.healths(self.model, states, self.coverage, every=every, trusting=self.trusting)
        except UnsoundRowError:
            return None
        for name, count in zip((*self.model.recipe.sensors, *self.model.recipe.settings), plain.blanks(), strict=True):
            if count:
                self.filled[name] += count
        self._states.update(zip(plain.names, states, strict=True))
        self.counts[Verdict.ACCEPTED] += len(chosen)
        left = np.setdiff1d(np.arange(len(table)), chosen, assume_unique=True).tolist()
        latest = dict(zip(plain.names, chosen[plain.bounds()[1]].tolist(), strict=True))
        return Block(chosen, healths, left, latest)

    def _take(self, table: RowTable, every: bool) -> list[Update]:
        """Take rows one by one; the network looks at some of them together."""
        return [update for some in batches(table, BATCH) for update in self._take_batch(table.part(some), every)]

    def _take_batch(self, table: RowTable, every: bool) -> list[Update]:
        updates, questions, places = self._remember(table, every)
        answers = self.model.healths(questions, self.coverage)
        for question, (update, place), health in zip(questions, places, answers, strict=True):
            question.state.health, question.state.pending = health, None
            if every:
                update.healths[place] = health
        return updates

    def inputs(self, table: RowTable) -> list[Question]:
        """All that the network would be shown of rows; the rows are remembered, but the network is not asked."""
        with self._lock:
            return [
                question for some in batches(table, BATCH) for question in self._remember(table.part(some), True)[1]
            ]

    def life_inputs(self, table: RowTable) -> tuple[Rows, UnitState] | None:
        """:meth:`inputs` of a unit's whole life, all rows side by side (T, columns), and the unit's sensors after them.

        None where rows have to be looked at one by one. Nothing of them is remembered.
        """
        if not len(table):
            return None
        rows = SeriesRows.from_table(table, self.model)
        if len(rows.names) > 1 or not rows.plain_units({}, self.trusting).all():
            return None
        (state,) = rows.start(self.model, {})
        try:
            return rows.inputs(self.model, [state]), state
        except UnsoundRowError:
            return None

    def _remember(self, table: RowTable, every: bool) -> tuple[list[Update], list[Question], list[tuple[Update, int]]]:
        """What became of rows, what the model is to look at, and where each of its answers belongs."""
        given = np.concatenate([table.sensors, table.settings], axis=1)
        table = without_blanks(table, self.model, self._states, self.filled)
        with np.errstate(all="ignore"):
            scaled, unseen = self.model.recipe.scale(table.sensors, table.settings)
            deviations = self.model.recipe.deviations(table.sensors, scaled)
        usable = np.isfinite(scaled).all(axis=1) & ~np.isnan(table.settings).any(axis=1)
        finite: list[bool] = np.asarray(usable).tolist()
        updates: list[Update] = []
        questions: list[Question] = []
        places: list[tuple[Update, int]] = []
        rows = zip(table.units, table.positions, table.cycles, table.ends, finite, unseen.tolist(), strict=True)
        for k, (unit, position, cycle, end, sound, new_condition) in enumerate(rows):
            update = Update(unit, position, cycle, Verdict.REFUSED)
            state = self._state(unit) if sound else None
            if state is None:
                update.reason = self._full() if sound else self._unsound(table, k, scaled[k])
            else:
                update.verdict, update.reason, cuts = state.push(
                    position,
                    cycle,
                    end,
                    raw=table.sensors[k],
                    given=given[k],
                    deviations=deviations[k],
                    scaled=scaled[k],
                    unseen=new_condition,
                    trusting=self.trusting,
                )
                for cut in cuts:
                    health, question = self._question(unit, state, cut)
                    if question is not None and (every or self.model.recipe.life):  # every row carries a life on
                        questions.append(question)
                        places.append((update, len(update.healths)))
                    if every:
                        update.healths.append(health)
                if update.accepted and not cuts and cycle is None:
                    state.health = self._warming_up(unit, state)
                    update.healths.append(state.health)
            self.counts[update.verdict] += 1
            updates.append(update)
        return updates, questions, places

    def _question(self, unit: str, state: UnitState, cut: Cut) -> tuple[Health, Question | None]:
        """What is known of a window before the model has looked at it, and what the model is to look at."""
        if cut.window is not None:
            flags, doubts = state.doubts(cut)
            health = Health(unit, cut.position, None, state="warming-up", reason=doubts, flags=flags)
            state.pending = Question(health, cut.window, state, state.sensors.level, state.sensors.stretch)
            return health, state.pending
        have, need = state.history.progress
        reason = f"the cycle has {have:g} samples, {need:g} are needed"
        health = Health(unit, cut.position, None, state="cannot-say", reason=reason)
        if state.health is None and state.pending is None:
            state.health = health  # a cycle that says nothing does not undo what is known
        return health, None

    def _warming_up(self, unit: str, state: UnitState) -> Health:
        have, need = state.history.progress
        counted = rule_of(self.model.recipe).counted
        return Health(unit, state.position, None, state="warming-up", reason=f"{have:g} of {need:g} {counted}")

    def _unsound(self, table: RowTable, k: int, row: NDArray[np.float32]) -> str:
        names = [*self.model.recipe.sensors, *self.model.recipe.settings]
        if np.isnan(table.settings[k]).any():
            at = len(self.model.recipe.sensors) + int(np.argmax(np.isnan(table.settings[k])))
            return f"operating setting '{names[at]}' is blank, and nothing is known of it yet"
        at = int(np.argmin(np.isfinite(row)))
        return f"'{names[min(at, len(names) - 1)]}' overflows after scaling"

    def _full(self) -> str:
        return f"{self.max_units} units are watched already; forget one, or allow more"

    def _state(self, unit: str) -> UnitState | None:
        """The memory of a unit, begun where there is none; None where there is no room for it."""
        state = self._states.get(unit)
        if state is not None:
            self._states.move_to_end(unit)
            return state
        while len(self._states) >= self.max_units:
            if self.when_full == "refuse":
                return None
            self._states.popitem(last=False)
            self.evicted += 1
        state = self._states[unit] = self.model.start()
        before = self._states.get(life_before(unit))
        if before is not None and not math.isnan(before.clock.last):
            state.clock.origin = before.clock.last  # positions stay those of the machine's own clock
        return state

    # --- what is known -----------------------------------------------------------------------

    def units(self) -> list[str]:
        """Units remembered, the one heard of last at the end."""
        with self._lock:
            return list(self._states)

    def health(self, unit: str) -> Health | None:
        """The health of a unit; None for a unit that never sent a row, or was forgotten."""
        return self.healths([unit])[0]

    def healths(self, units: Sequence[str] | None = None) -> list[Health | None]:
        """Healths of units (by default all), with one forward pass for all windows that still wait."""
        with self._lock:
            names = list(self._states if units is None else units)
            states = {name: self._states[name] for name in names if name in self._states}
            waiting = [state for state in states.values() if state.pending is not None]
            for a in range(0, len(waiting), BATCH):
                questions = [state.pending for state in waiting[a : a + BATCH] if state.pending is not None]
                for question, health in zip(questions, self.model.healths(questions, self.coverage), strict=True):
                    question.state.health, question.state.pending = health, None
            return [states[n].health or self._warming_up(n, states[n]) if n in states else None for n in names]

    def finish(self) -> list[Health]:
        """End every running cycle, as at the end of a file; healths of the cycles that had none yet."""
        with self._lock:
            self.healths()  # what is pending would be overwritten
            ended: list[str] = []
            silent: list[Health] = []
            for unit, state in self._states.items():
                for cut in state.history.close():
                    health, question = self._question(unit, state, cut)
                    if question is None:
                        silent.append(health)
                    else:
                        ended.append(unit)
            return [*silent, *(health for health in self.healths(ended) if health is not None)]

    def forget(self, unit: str) -> bool:
        """Drop a unit's memory, after a repair or with a clock that was set back; whether there was one."""
        with self._lock:
            return self._states.pop(unit, None) is not None

    def acknowledge(self, unit: str, sensor: str | None = None) -> bool:
        """Drop a unit's latched faults after somebody has looked at it; whether the unit is known.

        A fault that is still there is found again, and flagged again.

        Parameters
        ----------
        sensor
            Drop the faults of this sensor only, because it was exchanged.
        """
        with self._lock:
            state = self._states.get(unit)
            if state is not None:
                state.acknowledge(sensor)
            return state is not None

    # --- across restarts ---------------------------------------------------------------------

    def snapshot(self, path: str | Path) -> None:
        """Write all that is remembered to a file, as a whole or not at all."""
        with self._lock:
            self.healths()  # a snapshot holds no window that the model has still to look at
            stream_snapshot.write(Path(path), self.model.digest, self._states, self.counts, self.evicted)

    def restore(self, path: str | Path) -> None:
        """Go on where :meth:`snapshot` was called.

        Raises
        ------
        DataError
            Where the file is damaged, or belongs to another recipe.
        """
        with self._lock:
            self._states, self.counts, self.evicted = stream_snapshot.read(Path(path), self.model)
