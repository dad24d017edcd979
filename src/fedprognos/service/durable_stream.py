"""Rows in, healths out, nothing lost: the stream in memory and the state on disk, kept in step.

Updates are returned only after their rows are on disk. Where the disk refuses, the whole batch is undone: the stream is
built anew from what the disk holds, and the caller gets an error. One thread at a time.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedprognos.errors import DataError, FedprognosError, OutputError
from fedprognos.features.history import rule_of
from fedprognos.prognosis import FORMAT as SNAPSHOT
from fedprognos.prognosis import Health, HealthModel, Row, RowTable, Stream, Update, Verdict, in_order, machine_and_life
from fedprognos.service.alerts import Alert, AlertRule
from fedprognos.service.maintenance import NEW_LIFE, MaintenanceEvent, MaintenanceReport, Recorded, ReportResult
from fedprognos.service.model_log import ChangeKind, ModelChange
from fedprognos.service.row_store import KEPT_ROWS, Store, StoredRow
from fedprognos.tables import name_of_life

ROWS_BETWEEN_SNAPSHOTS = 50_000
REPLAYED_AT_ONCE = 1024
REMEMBERED = {Verdict.ACCEPTED, Verdict.JUMPED}
"""Rows that change the stream: those it took, and those whose clock jumped, which later rows may confirm."""
Role = Literal["stream", "shadow"]
LOG = logging.getLogger("fedprognos.service")


@dataclass(frozen=True)
class Batch:
    """What became of rows that were taken together.

    Parameters
    ----------
    received
        When, in seconds since 1970 by this machine's clock.
    predict_in_s, store_in_s
        Where the time went.
    alerts
        Changes of status that the rows settled; stored with them.
    """

    updates: Sequence[Update]
    received: float
    predict_in_s: float
    store_in_s: float
    alerts: Sequence[Alert] = ()


def state_identity(model: HealthModel) -> tuple[str, str]:
    """What a state says of the model that it belongs to: its columns, and its name."""
    recipe = model.recipe
    columns = json.dumps([recipe.sensors, recipe.settings, recipe.cycle is not None])
    return columns, f"{model.digest} {SNAPSHOT}"


def snapshot_name(number: int | Literal["*"], role: Role = "stream") -> str:
    """The file of a snapshot that holds all rows up to a number."""
    return f"{role}-{number}.safetensors"


class DurableStream:
    """A stream whose accepted rows survive.

    Parameters
    ----------
    model
        From windows to health.
    folder
        Of the state; None keeps it in memory.
    shadow
        A second model of the same columns. It reads every row after it was answered, and never fails one.
        :meth:`swap_models` lets it serve. Models that were swapped stay so when they are given again in the old order.
    max_units
        Rows of further units are refused.
    keep_rows
        Rows a unit that stay for the next model to begin from; by default all where whole lives are read, else as many
        as are shown.
    alert_rule
        Which healths raise an alert; by default none.

    Examples
    --------
    >>> from fedprognos.features import Recipe
    >>> recipe = Recipe(task="rul", sensors=("heat",), window=1, mean=((0.0,),), std=((1.0,),), label_mean=50.0)
    >>> stream = DurableStream(HealthModel(recipe, lambda windows: windows.mean(axis=(1, 2))))
    >>> batch = stream.take([Row("pump", 1, {"heat": 1.0}), Row("pump", 1, {"heat": 1.0})])
    >>> [update.verdict.value for update in batch.updates]
    ['accepted', 'duplicate']
    """

    stream: Stream
    _last: int

    def __init__(
        self,
        model: HealthModel,
        folder: Path | None = None,
        *,
        shadow: HealthModel | None = None,
        max_units: int = 20_000,
        coverage: float = 0.9,
        keep_rows: int | None = None,
        alert_rule: AlertRule | None = None,
    ) -> None:
        self._alert_rule = alert_rule or AlertRule(lambda health: "")  # a status that nobody is told about
        self.max_units = max_units
        self.coverage = coverage
        recipes = [each.recipe for each in (model, shadow) if each is not None]
        reaches = [rule_of(recipe).reach(recipe) for recipe in recipes]
        if keep_rows is None and None not in reaches:
            keep_rows = max([KEPT_ROWS, *(reach for reach in reaches if reach is not None)])
        self.store = Store(folder, state_identity(model)[0], keep_rows)
        self._keeps_snapshots = False
        self._unread: list[tuple[StoredRow, str]] = []  # rows that the shadow has still to read, with their units
        self.shadow: Stream | None = None
        self.shadow_problem = ""
        try:
            self.model, self.shadow_model = self._last_roles(model, shadow)
            goes_on = self._note_models()
            self._rebuild()
            if self.shadow_model is not None:
                with self._guarding_rows():
                    self.shadow = self._stream_from_disk(self.shadow_model, "shadow", goes_on)
        except BaseException:
            self.store.close()
            raise

    def _last_roles(self, model: HealthModel, shadow: HealthModel | None) -> tuple[HealthModel, HealthModel | None]:
        """The model that serves and the shadow. If the same two ran before, each keeps the role that it had last."""
        last = self.store.models.last()
        if shadow is None or last is None or last.serving != shadow.fingerprint or last.shadow != model.fingerprint:
            return model, shadow
        return shadow, model

    def _note_models(self) -> bool:
        """Whether the same models had these roles before; if not, the change is written down."""
        last, now = self.store.models.last(), time.time()
        shadow = "" if self.shadow_model is None else self.shadow_model.fingerprint
        roles = (self.model.fingerprint, shadow)
        goes_on = last is not None and (last.serving, last.shadow) == roles
        self.store.use_model(state_identity(self.model)[1], None if goes_on else ModelChange(now, "start", *roles))
        return goes_on

    def take(self, rows: Sequence[Row]) -> Batch:
        """Feed rows of any units in the order given, in one pass and one transaction."""
        with self._undone_on_failure("nothing of this batch was stored"):
            batch = self._take(rows)
        if self._since_snapshot >= max(ROWS_BETWEEN_SNAPSHOTS, 2 * len(self._units)):
            self._tidy_if_possible()
        return batch

    def _take(self, rows: Sequence[Row]) -> Batch:
        started, received = time.perf_counter(), time.time()
        table, refused = self.stream.read(rows)
        numbers_of_rows = self._numbers(table)
        if self._routes:
            table = replace(table, units=self._routed(table, numbers_of_rows))
        updates = self.stream.feed_table(table)
        between = time.perf_counter()
        stored: list[StoredRow] = []
        stored_units: list[str] = []
        healths: list[tuple[int, Health]] = []
        new: list[tuple[int, str]] = []
        alerts: list[Alert] = []
        for update, cycle, end, numbers in zip(updates, table.cycles, table.ends, numbers_of_rows, strict=True):
            if update.verdict not in REMEMBERED:
                continue
            number = self._units.get(update.unit)
            if number is None:
                number = self._add_unit(update.unit)
                new.append((number, update.unit))
            self._last += 1
            stored.append(
                StoredRow(self._last, number, cycle, update.position, end, received, update.accepted, numbers)
            )
            stored_units.append(update.unit)
            for health in update.healths:
                healths.append((number, health))
                alert = self._alert_rule.note_health(health, received)
                alerts += [alert] if alert is not None else []
        if stored:
            self.store.write(new, stored, healths, received, alerts, self._alert_rule.take_changes())
            self._since_snapshot += len(stored)
            self._touched.update(row.unit for row in stored)
            if self.shadow is not None:
                self._unread += [(row, unit) for row, unit in zip(stored, stored_units, strict=True)]
        all_updates = in_order(refused, updates)
        return Batch(all_updates, received, between - started, time.perf_counter() - between, alerts)

    def _numbers(self, table: RowTable) -> list[bytes]:
        """Sensors and settings of each row, as they are stored."""
        values = np.concatenate([table.sensors, table.settings], axis=1)
        whole, size = values.tobytes(), values.itemsize * values.shape[1]
        return [whole[k * size : (k + 1) * size] for k in range(len(table))]

    def _routed(self, table: RowTable, numbers: Sequence[bytes]) -> list[str]:
        """The unit of each row: its machine's life since the last repair.

        A row that the life before has already, such as one that a broker delivers again, stays with that life.
        """
        units = list(table.units)
        for k, (unit, position, cycle) in enumerate(zip(table.units, table.positions, table.cycles, strict=True)):
            event = self._routes.get(unit)
            if event is None:
                continue
            units[k], life_before = event.begins, self._units.get(event.unit)
            place = position if cycle is None else cycle
            if life_before is None or event.position is None or place > event.position:
                continue
            if self.store.has_row(life_before, position, cycle, numbers[k]):
                units[k] = event.unit
        return units

    @contextmanager
    def _undone_on_failure(self, what_failed: str) -> Iterator[None]:
        """Where something cannot be stored, memory goes back to what the disk holds."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._rebuild()
            hint = "make room on the disk, and send it again"
            raise OutputError(f"{what_failed}: {error}", hint=hint) from None
        except Exception:
            self._rebuild()
            raise

    def check(self) -> None:
        """Raise where rows cannot be stored, such as on a full disk."""
        try:
            self.store.probe()
        except sqlite3.Error as error:
            raise OutputError(f"rows cannot be stored: {error}", hint="make room on the disk") from None

    def forget(self, unit: str) -> bool:
        """Drop a unit for good, after a repair or at the end of its life; whether it was known.

        Rows that come later begin it anew.
        """
        number = self._units.get(unit)
        if number is None:
            return False
        machine = self._machine(unit)[0]
        last_life_of = machine if self._lives(machine) == [unit] else None
        with self._undone_on_failure(f"unit '{unit}' was not forgotten"):
            alert = self._alert_rule.forget(unit, time.time())
            alerts = [] if alert is None else [alert]
            self.store.forget(number, unit, alerts, self._alert_rule.take_changes(), last_life_of)
        del self._units[unit]
        self._same_name[machine_and_life(unit)[0]].remove(unit)
        if last_life_of is not None:
            self._routes.pop(last_life_of, None)
        self._tell_shadow(lambda shadow: shadow.forget(unit))
        self.stream.forget(unit)
        self._touched.discard(number)
        self._since_snapshot += 1
        return True

    def note_silence(self, silent: Iterable[tuple[str, Health | None, float]]) -> list[Alert]:
        """Raise alerts about units that were fine and send no rows: their latest health, and since when."""
        now = time.time()
        with self._undone_on_failure("an alert was not stored"):
            noted = [self._alert_rule.note_silence(unit, health, since, now) for unit, health, since in silent]
            alerts = [alert for alert in noted if alert is not None]
            if alerts:
                self.store.alerts.write_alone(alerts, self._alert_rule.take_changes())
        return alerts

    # --- maintenance -------------------------------------------------------------------------

    def record(self, report: MaintenanceReport) -> tuple[ReportResult, list[Alert]]:
        """Store what was done to a machine, and apply it; with the alert that it ends."""
        machine, unit = self._machine(report.unit)[0], report.unit
        lives = self._lives(machine)
        if not lives or (unit != machine and unit not in lives):
            return ReportResult(Recorded.REFUSED, f"no unit '{unit[:256]}' is watched"), []
        unit = lives[-1] if unit == machine else unit
        at, now = report.at.timestamp(), time.time()
        known_event = self.store.maintenance.find(machine, report.kind, report.sensor, at)
        if known_event is not None:
            return ReportResult(Recorded.DUPLICATE, "it was recorded before", known_event), []
        latest = self.store.rows_of(self._units[unit], 1)
        position = None if not latest else latest[0].position if latest[0].cycle is None else float(latest[0].cycle)
        begins, next_life = "", self._machine(lives[-1])[1] + 1
        if report.kind in NEW_LIFE and unit == lives[-1] and latest:  # a life without rows need not end
            begins = name_of_life(machine, str(next_life))
        kind, sensor, who, note = report.kind, report.sensor, report.who, report.note
        event = MaintenanceEvent(self._last + 1, machine, unit, kind, sensor, at, position, begins, who, note, now)
        with self._undone_on_failure("the event was not stored"):
            alert = self._alert_rule.end_life(unit, next_life, now, f"{kind} by {who}") if begins else None
            alerts = [] if alert is None else [alert]
            new = [(self._number + 1, begins)] if begins else []
            self.store.write_event(event, new, alerts, self._alert_rule.take_changes())
        self._last += 1
        self._since_snapshot += 1
        if begins:
            self._add_unit(begins)
            self._routes[machine] = event
        self._tell_shadow(event.apply)
        event.apply(self.stream)
        return ReportResult(Recorded.RECORDED, "", event), alerts

    def _machine(self, unit: str) -> tuple[str, int]:
        """Machine and number of its life. A name such as `pump#2` is a later life only if the first life is known."""
        machine, life = machine_and_life(unit)
        return (machine, life) if life == 1 or machine in self._units or machine in self._routes else (unit, 1)

    def _lives(self, machine: str) -> list[str]:
        """Units of a machine, the first life first."""
        same_name = self._same_name.get(machine_and_life(machine)[0], ())
        units = [unit for unit in same_name if self._machine(unit)[0] == machine]
        return sorted(units, key=lambda unit: self._machine(unit)[1])

    def _add_unit(self, unit: str) -> int:
        """Give a unit the next number."""
        self._number += 1
        self._units[unit] = self._number
        self._same_name[machine_and_life(unit)[0]].append(unit)
        return self._number

    # --- the second model --------------------------------------------------------------------

    @property
    def behind(self) -> int:
        """Rows that the shadow has still to read."""
        return len(self._unread)

    def follow(self) -> None:
        """Let the shadow read what came since; call it when the rows have been answered."""
        rows, self._unread = self._unread, []
        if self.shadow is None or not rows:
            return
        with self._guarding_rows():
            table = self._table([row for row, _ in rows], {row.unit: unit for row, unit in rows})
            self.shadow.feed_table(table, every=False)
            self.shadow.healths(list(dict.fromkeys(table.units)))

    def _tell_shadow(self, act: Callable[[Stream], object]) -> None:
        """Do to the shadow what is done to the stream, after the rows that came before."""
        self.follow()
        if self.shadow is not None:
            with self._guarding_rows():
                act(self.shadow)

    @contextmanager
    def _guarding_rows(self) -> Iterator[None]:
        """A shadow that fails is given up; rows are not. A full disk is not its fault."""
        try:
            yield
        except (OSError, OutputError):
            raise
        except Exception as error:
            LOG.exception("the second model failed, and runs along no longer")
            self.shadow, self._unread = None, []
            self.shadow_problem = str(error) or type(error).__name__

    def swap_models(self, kind: ChangeKind, who: str, note: str = "") -> list[Health]:
        """Let the shadow serve, and the model that served run along; what it says of all units.

        Both snapshots get a number of their own, so that the database never names one of the other model.
        """
        self.follow()
        shadow, shadow_model = self.shadow, self.shadow_model
        if shadow is None or shadow_model is None:
            raise DataError("no second model runs along", hint="give one with --shadow")
        change = ModelChange(time.time(), kind, shadow_model.fingerprint, self.model.fingerprint, who, note)
        number = self._last + 1
        healths = [health for health in shadow.healths() if health is not None and health.unit in self._units]
        try:
            if self.store.folder is not None:
                shadow.snapshot(self._snapshot_path(number))
                self.stream.snapshot(self._snapshot_path(number, "shadow"))
            numbered = [(self._units[health.unit], health) for health in healths]
            through = 0 if self.store.folder is None else number
            self.store.swap_models(state_identity(shadow_model)[1], change, through, numbered)
        except (sqlite3.Error, OSError) as error:
            raise OutputError(f"the models were not swapped: {error}", hint="make room on the disk") from None
        self._last = number
        self.stream, self.shadow = shadow, self.stream
        self.model, self.shadow_model = shadow_model, self.model
        self.stream.max_units, self.shadow.max_units = self.max_units, sys.maxsize
        self._touched.update(self._units.values())
        self._drop_old_snapshots()
        LOG.warning("%s by %s: model %s serves now", kind, who, change.serving[:12])
        return healths

    def lives_of(self, failures: Iterable[MaintenanceEvent]) -> list[tuple[RowTable, float]]:
        """Stored rows of lives that ended by a failure, and the position of the failure."""
        lives = []
        for event in failures:
            rows = self.rows(event.unit)
            if rows is not None and rows.units and event.position is not None:
                lives.append((rows, event.position))
        return lives

    # --- across restarts ---------------------------------------------------------------------

    def _rebuild(self) -> None:
        """The stream as the disk knows it: the last snapshot, and the rows that came after it."""
        self._since_snapshot = 0
        self._touched: set[int] = set()
        self._units = self.store.units()
        self._same_name = defaultdict[str, list[str]](list)  # units whose names differ in the number of the life only
        for unit in self._units:
            self._same_name[machine_and_life(unit)[0]].append(unit)
        self._number = max(self._units.values(), default=0)
        self._last = self.store.last_id()
        log = self.store.alerts
        self._alert_rule.restore(log.standings(), log.series, log.last_number(), self._units)
        self._routes = {event.machine: event for event in self.store.maintenance.after(0) if event.begins}
        self.stream = self._stream_from_disk(self.model, "stream", True)
        self.stream.max_units = self.max_units  # units that are there already stay, however many
        if self.store.model_changed:
            LOG.warning("the model changed: %d units go on from the rows that are stored of them", len(self._units))

    def _stream_from_disk(self, model: HealthModel, role: Role, from_snapshot: bool) -> Stream:
        """A model's stream: its snapshot, where it has one, and the rows and events that came after it."""
        stream = Stream(model, sys.maxsize, when_full="refuse", coverage=self.coverage)
        through, names = self.store.snapshot(), self.names()
        path = self._snapshot_path(through, role)
        if not from_snapshot or (role == "shadow" and not path.exists()):
            through = 0
        if through and self.store.folder is not None:
            stream.restore(path)
        for name in self.store.forgotten():
            stream.forget(name)
        waiting: list[StoredRow] = []
        events = list(self.store.maintenance.after(through))[::-1]
        for row in self.store.rows_after(through):
            comes_after_event = bool(events) and events[-1].id < row.id
            if comes_after_event or len(waiting) == REPLAYED_AT_ONCE:
                self._replay(stream, waiting, names)
                waiting = []
            while events and events[-1].id < row.id:
                events.pop().apply(stream)
            waiting.append(row)
        self._replay(stream, waiting, names)
        for event in reversed(events):
            event.apply(stream)
        return stream

    def _replay(self, stream: Stream, rows: list[StoredRow], names: dict[int, str]) -> None:
        if not rows:
            return
        stream.feed_table(self._table(rows, names), every=False)
        self._since_snapshot += len(rows)
        self._touched.update(row.unit for row in rows)

    def _table(self, rows: Sequence[StoredRow], names: Mapping[int, str]) -> RowTable:
        split = len(self.model.recipe.sensors)
        values = np.array([row.values for row in rows]).reshape(len(rows), -1)
        return RowTable(
            [names[row.unit] for row in rows],
            [row.position for row in rows],
            [row.cycle for row in rows],
            [row.end for row in rows],
            values[:, :split],
            values[:, split:],
        )

    def tidy(self) -> None:
        """Write a snapshot that the next start begins from, and drop rows nobody will look at."""
        if self.store.folder is not None and self._last:
            path = self._snapshot_path(self._last, "shadow")
            self._tell_shadow(lambda shadow: shadow.snapshot(path))
            self.stream.snapshot(self._snapshot_path(self._last))
            self.store.snapshot_written(self._last)
            self._drop_old_snapshots()
        self.store.prune(sorted(self._touched), time.time())
        self.store.alerts.prune(time.time())
        self._touched.clear()
        self._since_snapshot = 0

    def _drop_old_snapshots(self) -> None:
        folder = self.store.folder
        if folder is None or self._keeps_snapshots:
            return
        kept = {snapshot_name(self._last)} | (
            {snapshot_name(self._last, "shadow")} if self.shadow is not None else set()
        )
        for old in (*folder.glob(snapshot_name("*")), *folder.glob(snapshot_name("*", "shadow"))):
            if old.name not in kept:
                old.unlink(missing_ok=True)

    def _tidy_if_possible(self) -> None:
        try:
            self.tidy()
        except (sqlite3.Error, OSError, FedprognosError) as error:
            # The rows are stored; without a snapshot the next start only takes longer. Tried again later.
            self._since_snapshot //= 2
            LOG.warning("no snapshot could be written: %s", error)

    def _snapshot_path(self, number: int, role: Role = "stream") -> Path:
        return (self.store.folder or Path()) / snapshot_name(number, role)

    @contextmanager
    def keeping_snapshots(self) -> Iterator[None]:
        """Keep old snapshots meanwhile: a copy of the database may name one of them. The next tidying drops them."""
        self._keeps_snapshots = True
        try:
            yield
        finally:
            self._keeps_snapshots = False

    def history(self, unit: str) -> tuple[list[Health], list[StoredRow]]:
        """Healths and latest rows of a unit, oldest first; empty for one that is not known."""
        number = self._units.get(unit)
        if number is None:
            return [], []
        return self.store.healths_of(number, unit), self.store.rows_of(number)

    def rows(self, unit: str) -> RowTable | None:
        """All rows that are stored of a unit, oldest first; None for one that is not known."""
        number = self._units.get(unit)
        return None if number is None else self._table(self.store.rows_of(number, sys.maxsize), {number: unit})

    def rate(self, unit: str, now: float) -> float | None:
        """Positions a second at which rows of a unit come; None where that is not known."""
        number = self._units.get(unit)
        return None if number is None else self.store.arrivals.rates(now, number).get(number)

    def first_position(self, unit: str) -> float | None:
        """Where the rows of a unit began; None where that is not known."""
        number = self._units.get(unit)
        return None if number is None else self.store.arrivals.first_positions(number).get(number)

    def rates(self, now: float) -> dict[str, float]:
        """The same of all units whose rate is known."""
        names = self.names()
        return {names[number]: rate for number, rate in self.store.arrivals.rates(now).items() if number in names}

    def names(self) -> dict[int, str]:
        """Units by number."""
        return {number: name for name, number in self._units.items()}

    def close(self) -> None:
        """Write a snapshot and close the database, so that the next start is quick."""
        self.follow()
        if self._since_snapshot:
            self._tidy_if_possible()
        self.store.close()
