"""Rows in, healths out, nothing lost: the stream in memory and the state on disk, kept in step.

An outcome is returned only after its row is on disk. Where the disk refuses, the whole batch is undone: the stream is
built anew from what the disk holds, and the caller is told. One thread at a time.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedprognos.errors import FedprognosError, OutputError
from fedprognos.prognosis.health import Health, Row, Update
from fedprognos.prognosis.predictor import Predictor
from fedprognos.prognosis.streaming import Stream
from fedprognos.service.store import Store, StoredRow, health_record

Result = Literal["accepted", "duplicate", "refused"]
ROWS_BETWEEN_SNAPSHOTS = 50_000
REPLAYED_AT_ONCE = 1024
REPEATED, JUMPED = "was there already", " is a jump of "
"""What the stream says of a duplicate, and of a row whose clock jumped and may be confirmed by later ones."""
LOG = logging.getLogger("fedprognos.service")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a row, after it was stored."""

    unit: str
    position: float
    cycle: int | None
    result: Result
    reason: str
    health: Health | None
    received: float


@dataclass(frozen=True)
class Timing:
    """Where the time of the last batch went."""

    predict_in_s: float = 0.0
    store_in_s: float = 0.0


class Keeper:
    """A stream whose accepted rows survive.

    Parameters
    ----------
    predictor
        The model.
    folder
        Of the state; None keeps it in memory.
    max_units
        Rows of further units are refused.

    Examples
    --------
    >>> from fedprognos.features import Recipe
    >>> recipe = Recipe(task="rul", sensors=("heat",), window=1, mean=((0.0,),), std=((1.0,),), label_mean=50.0)
    >>> keeper = Keeper(Predictor(recipe, lambda windows: windows.mean(axis=(1, 2))))
    >>> [outcome.result for outcome in keeper.take([Row("pump", 1, {"heat": 1.0}), Row("pump", 1, {"heat": 1.0})])]
    ['accepted', 'duplicate']
    """

    def __init__(
        self, predictor: Predictor, folder: Path | None = None, *, max_units: int = 20_000, coverage: float = 0.9
    ) -> None:
        self.predictor = predictor
        self.max_units = max_units
        self.coverage = coverage
        self.timing = Timing()
        self.store = Store(folder, predictor.recipe_digest)
        try:
            self._rebuild()
        except BaseException:
            self.store.close()
            raise

    def take(self, rows: Sequence[Row]) -> list[Outcome]:
        """Feed rows of any units in the order given, in one pass and one transaction."""
        try:
            outcomes = self._take(rows)
        except (sqlite3.Error, OSError) as error:
            self._rebuild()
            raise OutputError(
                f"nothing of this batch was stored: {error}", hint="make room on the disk; rows may be sent again"
            ) from None
        except Exception:
            self._rebuild()
            raise
        if self._since_snapshot >= max(ROWS_BETWEEN_SNAPSHOTS, 2 * len(self._units)):
            self._tidy_if_possible()
        return outcomes

    def _take(self, rows: Sequence[Row]) -> list[Outcome]:
        started, received = time.perf_counter(), time.time()
        refusals = self._too_many_units(rows)
        fed = [row for k, row in enumerate(rows) if k not in refusals] if refusals else rows
        updates = iter(self.stream.feed_many(fed))
        between = time.perf_counter()
        outcomes: list[Outcome] = []
        stored: list[StoredRow] = []
        healths: list[tuple[object, ...]] = []
        new: list[tuple[int, str]] = []
        for k, row in enumerate(rows):
            update = Update(row.unit, row.position, None, False, refusals[k]) if k in refusals else next(updates)
            result = _result(update)
            outcomes.append(Outcome(row.unit, row.position, row.cycle, result, update.reason, update.health, received))
            if not update.accepted and JUMPED not in update.reason:
                continue
            number = self._units.get(row.unit)
            if number is None:
                self._number += 1
                number = self._units[row.unit] = self._number
                new.append((number, row.unit))
            self._last += 1
            stored.append(self._stored(row, number, received, update.accepted))
            if update.health is not None:
                healths.append(health_record(self._last, number, received, update.health))
        if stored:
            self.store.write(new, stored, healths)
            self._since_snapshot += len(stored)
            self._touched.update(row.unit for row in stored)
        self.timing = Timing(between - started, time.perf_counter() - between)
        return outcomes

    def forget(self, unit: str) -> bool:
        """Drop a unit for good, after a repair or at the end of its life; whether it was known.

        Rows that come later begin it anew.
        """
        number = self._units.get(unit)
        if number is None:
            return False
        try:
            self.store.forget(number, unit)
        except sqlite3.Error as error:
            raise OutputError(f"unit '{unit}' was not forgotten: {error}", hint="make room on the disk") from None
        del self._units[unit]
        self.stream.forget(unit)
        self._touched.discard(number)
        self._since_snapshot += 1
        return True

    def _too_many_units(self, rows: Sequence[Row]) -> dict[int, str]:
        """Why rows of units beyond the limit are not taken, by their place."""
        if len(self._units) + len(rows) <= self.max_units:
            return {}
        refusals: dict[int, str] = {}
        fresh: set[str] = set()
        for k, row in enumerate(rows):
            if row.unit not in self._units and row.unit not in fresh:
                if len(self._units) + len(fresh) >= self.max_units:
                    hint = "forget some, or start with a larger --max-units"
                    refusals[k] = f"{self.max_units} units are watched already; {hint}"
                else:
                    fresh.add(row.unit)
        return refusals

    def _stored(self, row: Row, unit: int, received: float, accepted: bool) -> StoredRow:
        recipe = self.predictor.recipe
        values = [*(row.sensors[name] for name in recipe.sensors), *(row.settings[name] for name in recipe.settings)]
        numbers = array("d", values).tobytes()
        return StoredRow(self._last, unit, row.cycle, float(row.position), row.end, received, accepted, numbers)

    # --- across restarts ---------------------------------------------------------------------

    def _rebuild(self) -> None:
        """The stream as the disk knows it: the last snapshot, and the rows that came after it."""
        options = {"max_units": self.max_units + 1, "coverage": self.coverage}
        self._since_snapshot = 0
        self._touched: set[int] = set()
        self._units = self.store.units()
        self._number = max(self._units.values(), default=0)
        self._last = self.store.last_id()
        through = self.store.snapshot()
        if through and self.store.folder is not None:
            self.stream = Stream.restore(self._snapshot_path(through), self.predictor, **options)  # type: ignore[arg-type]
        else:
            self.stream = Stream(self.predictor, **options)  # type: ignore[arg-type]
        for name in self.store.forgotten():
            self.stream.forget(name)
        names = self.names()
        waiting: list[StoredRow] = []
        for row in self.store.rows_after(through):
            waiting.append(row)
            if len(waiting) == REPLAYED_AT_ONCE:
                self._replay(waiting, names)
                waiting = []
        self._replay(waiting, names)

    def _replay(self, rows: list[StoredRow], names: dict[int, str]) -> None:
        if rows:
            table = np.array([row.values for row in rows])
            split = len(self.predictor.sensors)
            self._since_snapshot += len(rows)
            self._touched.update(row.unit for row in rows)
            self.stream.feed_table(
                [names[row.unit] for row in rows],
                [row.position for row in rows],
                table[:, :split],
                table[:, split:],
                [row.cycle for row in rows],
                [row.end for row in rows],
                every=False,
            )

    def tidy(self) -> None:
        """Write a snapshot that the next start begins from, and forget rows nobody will look at."""
        folder = self.store.folder
        if folder is not None and self._last:
            self.stream.snapshot(self._snapshot_path(self._last))
            self.store.snapshot_written(self._last)
            for old in folder.glob("stream-*.safetensors"):
                if old != self._snapshot_path(self._last):
                    old.unlink(missing_ok=True)
        self.store.prune(sorted(self._touched))
        self._touched.clear()
        self._since_snapshot = 0

    def _tidy_if_possible(self) -> None:
        try:
            self.tidy()
        except (sqlite3.Error, OSError, FedprognosError) as error:
            # The rows are stored; without a snapshot the next start only takes longer. Tried again later.
            self._since_snapshot //= 2
            LOG.warning("no snapshot could be written: %s", error)

    def _snapshot_path(self, number: int) -> Path:
        return (self.store.folder or Path()) / f"stream-{number}.safetensors"

    def history(self, unit: str) -> tuple[list[tuple[float, Health]], list[StoredRow]]:
        """Healths and latest rows of a unit, oldest first; empty for one that is not known."""
        number = self._units.get(unit)
        if number is None:
            return [], []
        return self.store.healths_of(number, unit), self.store.rows_of(number)

    def names(self) -> dict[int, str]:
        """Units by number."""
        return {number: name for name, number in self._units.items()}

    def close(self) -> None:
        """Leave everything as the next start likes it."""
        if self._since_snapshot:
            self._tidy_if_possible()
        self.store.close()


def _result(update: Update) -> Result:
    if update.accepted:
        return "accepted"
    return "duplicate" if update.reason.endswith(REPEATED) else "refused"
