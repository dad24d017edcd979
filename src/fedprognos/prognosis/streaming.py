"""Health as rows come in: one update a sample or cycle, memory of one window a unit, equal to the offline numbers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.prognosis import snapshot, unit_rows
from fedprognos.prognosis.health import Health, Row, Update
from fedprognos.prognosis.points import Point, known_conditions
from fedprognos.prognosis.predictor import BATCH, Predictor
from fedprognos.prognosis.row_checks import numbers_of
from fedprognos.prognosis.unit_state import Taken, UnitState, Windows


@dataclass
class Counts:
    """What happened to the rows so far."""

    accepted: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    refused: int = 0
    evicted: int = 0


class Stream:
    """Units under watch.

    Parameters
    ----------
    predictor
        The model.
    max_units
        Units remembered; where there are more, the one that was silent longest is forgotten and counted.
    coverage
        Of the intervals.
    strict
        Refuse rows with sensors or settings that the model does not know; False passes over them.

    Examples
    --------
    >>> from fedprognos.features import Recipe
    >>> recipe = Recipe(task="rul", sensors=("heat",), window=2, mean=((0.0,),), std=((1.0,),), label_mean=50.0)
    >>> stream = Stream(Predictor(recipe, lambda windows: windows.mean(axis=(1, 2))))
    >>> stream.feed("pump", 1, {"heat": 1.0}).health.reason
    '1 of 2 rows; 1 more are needed'
    >>> stream.feed("pump", 2, {"heat": 3.0}).health.value
    52.0
    >>> stream.feed("pump", 3, {"heat": "hot"}).reason
    "sensor 'heat' is 'hot', not a number"
    """

    def __init__(
        self, predictor: Predictor, max_units: int = 50_000, *, coverage: float = 0.9, strict: bool = True
    ) -> None:
        self.predictor = predictor
        self.max_units = max_units
        self.coverage = coverage
        self.strict = strict
        self.counts = Counts()
        self._states: OrderedDict[str, UnitState] = OrderedDict()
        self._lock = threading.RLock()

    # --- rows in -----------------------------------------------------------------------------

    def feed(
        self,
        unit: str,
        position: float,
        sensors: Mapping[str, float],
        settings: Mapping[str, float] | None = None,
        *,
        cycle: int | None = None,
        end: bool = False,
    ) -> Update:
        """Take one row; see :class:`Row` for what its parts are."""
        return self.feed_many([Row(unit, position, sensors, settings or {}, cycle, end)])[0]

    def feed_many(self, rows: Sequence[Row]) -> list[Update]:
        """Take rows of any units in the order given; the network looks at all new windows in one pass."""
        recipe = self.predictor.recipe
        updates: list[Update | None] = [None] * len(rows)
        good: list[int] = []
        values: list[list[float]] = []
        for k, row in enumerate(rows):
            found, reason = numbers_of(recipe, row, self.strict)
            if reason:
                updates[k] = Update(row.unit, row.position, None, False, reason)
                continue
            good.append(k)
            values.append(found)
        with self._lock:
            self.counts.refused += len(rows) - len(good)
            if good:
                table = np.array(values, dtype=np.float64)
                split = len(recipe.sensors)
                taken = self._take(
                    [rows[k].unit for k in good],
                    [float(rows[k].position) for k in good],
                    [rows[k].cycle for k in good],
                    [rows[k].end for k in good],
                    table[:, :split],
                    table[:, split:],
                )
                for k, (outcome, healths) in zip(good, taken, strict=True):
                    row, health = rows[k], healths[-1] if healths else None
                    updates[k] = Update(row.unit, row.position, health, outcome.refusal is None, outcome.reason)
        return [update for update in updates if update is not None]

    def feed_table(
        self,
        units: Sequence[str],
        positions: Sequence[float],
        sensors: FloatArray,
        settings: FloatArray,
        cycles: Sequence[int | None] | None = None,
        ends: Sequence[bool] | None = None,
        *,
        every: bool = True,
    ) -> list[tuple[Taken, list[Health]]]:
        """Take many rows of finite numbers, columns in the recipe's order; what became of each, in order.

        Parameters
        ----------
        every
            Give all healths. False only remembers the rows, and :meth:`health` tells where each unit stands.
        """
        taken: list[tuple[Taken, list[Health]]] = []
        for a in range(0, len(units), BATCH):
            part = slice(a, a + BATCH)
            size = len(units[part])
            own = [None] * size if cycles is None else cycles[part]
            last = [False] * size if ends is None else ends[part]
            with self._lock:
                taken += self._take(units[part], positions[part], own, last, sensors[part], settings[part], every)
        return taken

    def _take(
        self,
        units: Sequence[str],
        positions: Sequence[float],
        cycles: Sequence[int | None],
        ends: Sequence[bool],
        sensors: FloatArray,
        settings: FloatArray,
        every: bool = True,
    ) -> list[tuple[Taken, list[Health]]]:
        recipe = self.predictor.recipe
        with np.errstate(all="ignore"):
            scaled, strange = recipe.scale(sensors, settings)
        unseen = ~known_conditions(recipe, settings) if strange else np.zeros(len(units), dtype=bool)
        sound: NDArray[np.bool_] = np.asarray(np.isfinite(scaled).all(axis=1))
        taken: list[tuple[Taken, list[Health]]] = []
        asked: list[tuple[list[Health], int, UnitState, Point, Windows]] = []
        for k, (unit, position, cycle, end) in enumerate(zip(units, positions, cycles, ends, strict=True)):
            healths: list[Health] = []
            if not sound[k]:
                outcome = Taken("refused", self._beyond(scaled[k]))
            else:
                state = self._state(unit)
                if cycle is None:
                    outcome = unit_rows.take_series_row(recipe, state, unit, position, scaled[k], bool(unseen[k]))
                else:
                    number = int(cycle)
                    outcome = unit_rows.take_cycle_row(
                        recipe, state, unit, number, position, scaled[k], bool(unseen[k]), end
                    )
                for point, window, health in outcome.made:
                    if health is not None:
                        healths.append(health)
                        if health.state == "warming-up" or (state.health is None and state.pending is None):
                            state.health = health  # a cycle that says nothing does not undo what is known
                    elif every:
                        seen = unit_rows.series_window(recipe, state) if window is None else window
                        asked.append((healths, len(healths), state, point, seen))
                        healths.append(Health(unit, point.position, None))
                        state.pending = None
                    else:
                        state.pending = (point, window)
            self._count(outcome)
            taken.append((outcome, healths))
        if asked:
            found = self.predictor.healths([a[3] for a in asked], np.stack([a[4] for a in asked]), self.coverage)
            for (healths, place, state, _, _), health in zip(asked, found, strict=True):
                healths[place] = state.health = health
        return taken

    def _beyond(self, row: NDArray[np.float32]) -> str:
        recipe = self.predictor.recipe
        names = [*recipe.sensors, *recipe.settings]
        at = int(np.argmin(np.isfinite(row)))
        return f"'{names[min(at, len(names) - 1)]}' is beyond all measure"

    def _count(self, outcome: Taken) -> None:
        name = outcome.refusal or "accepted"
        setattr(self.counts, name, getattr(self.counts, name) + 1)

    def _state(self, unit: str) -> UnitState:
        state = self._states.get(unit)
        if state is not None:
            self._states.move_to_end(unit)
            return state
        while len(self._states) >= self.max_units:
            self._states.popitem(last=False)
            self.counts.evicted += 1
        recipe = self.predictor.recipe
        state = UnitState(np.zeros((recipe.window, recipe.channels), dtype=np.float32))
        self._states[unit] = state
        return state

    # --- what is known -----------------------------------------------------------------------

    def units(self) -> list[str]:
        """Units remembered, the one heard of last at the end."""
        with self._lock:
            return list(self._states)

    def health(self, unit: str) -> Health | None:
        """Where a unit stands; None for one that was never heard of, or forgotten."""
        return self.healths([unit])[0]

    def healths(self, units: Sequence[str] | None = None) -> list[Health | None]:
        """Where units stand (all of them by default), in one pass for those the network has not looked at yet."""
        recipe = self.predictor.recipe
        with self._lock:
            names = list(self._states) if units is None else list(units)
            for a in range(0, len(names), BATCH):
                self._look([self._states[n] for n in names[a : a + BATCH] if n in self._states])
            found: list[Health | None] = []
            for name in names:
                state = self._states.get(name)
                health = None if state is None else state.health
                if state is not None and health is None and recipe.cycle is not None and state.cycle is not None:
                    health = unit_rows.cycle_progress(recipe, state, name)
                found.append(health)
            return found

    def _look(self, states: Sequence[UnitState]) -> None:
        waiting = [(state, *state.pending) for state in states if state.pending is not None]
        if waiting:
            recipe = self.predictor.recipe
            windows = [unit_rows.series_window(recipe, state) if w is None else w for state, _, w in waiting]
            found = self.predictor.healths([point for _, point, _ in waiting], np.stack(windows), self.coverage)
            for (state, _, _), health in zip(waiting, found, strict=True):
                state.health, state.pending = health, None

    def finish(self) -> list[Health]:
        """End every running cycle, as at the end of a file; healths of the cycles that had none yet."""
        recipe = self.predictor.recipe
        if recipe.cycle is None:
            return []
        with self._lock:
            self.healths()  # what is pending would be overwritten
            ended: list[str] = []
            silent: list[Health] = []
            for unit, state in self._states.items():
                for point, window, health in unit_rows.close_cycle(recipe, state, unit):
                    if health is None:
                        state.pending = (point, window)
                        ended.append(unit)
                    else:
                        silent.append(health)
                        state.health = state.health or health
            return [*silent, *(health for health in self.healths(ended) if health is not None)]

    def forget(self, unit: str) -> bool:
        """Drop a unit's memory, after a repair or with a clock that was set back; whether there was one."""
        with self._lock:
            return self._states.pop(unit, None) is not None

    # --- across restarts ---------------------------------------------------------------------

    def snapshot(self, path: str | Path) -> None:
        """Write all that is remembered to a file, as a whole or not at all."""
        with self._lock:
            self.healths()  # a snapshot holds no window that the network has still to look at
            snapshot.write(Path(path), self.predictor, self._states, vars(self.counts))

    @staticmethod
    def restore(path: str | Path, predictor: Predictor, max_units: int = 50_000, **options: object) -> Stream:
        """A stream that goes on where :meth:`snapshot` was called; options as for :class:`Stream`."""
        stream = Stream(predictor, max_units, **options)  # type: ignore[arg-type]
        states, counts = snapshot.read(Path(path), predictor)
        stream._states = states
        stream.counts = Counts(**counts)
        return stream
