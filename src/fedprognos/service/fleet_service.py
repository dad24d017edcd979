"""The service without its HTTP interface: stream, view, alerts and sources, and how they work together."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from prometheus_client import Gauge

from fedprognos.errors import ConfigError, DataError, FedprognosError, OutputError
from fedprognos.files import replacing
from fedprognos.prognosis import Health, ModelInputs, Predictor
from fedprognos.service.alert_log import KEPT_ALERTS
from fedprognos.service.alert_sinks import AlertDelivery
from fedprognos.service.alerts import Alert, AlertRule
from fedprognos.service.backups import StoppedError, backups_in, flush_folder, unpack_backup, write_backup
from fedprognos.service.batching import Batcher
from fedprognos.service.durable_stream import Batch, DurableStream, snapshot_name, state_identity
from fedprognos.service.fleet_events import FleetEvents
from fedprognos.service.fleet_view import FleetView, Status, status_of
from fedprognos.service.maintenance import MaintenanceReport, Recorded, ReportResult
from fedprognos.service.model_log import ChangeKind, ModelChange
from fedprognos.service.row_store import DATABASE
from fedprognos.service.service_metrics import ServiceMetrics
from fedprognos.service.service_options import ServiceOptions, near_margin
from fedprognos.service.shadow import MOST_FAILURES, Comparison, Outcomes, check_shadow, compare, outcomes
from fedprognos.service.sources import Feed, SourceOptions, sources

CHECKED_IN_S = 5.0
"""The disk is checked at most this often, because each check writes to it."""
SILENCE_CHECKED_IN_S = 10.0
BACKUP_CHECKED_IN_S = 60.0
"""How often the service looks whether a backup is due; one that failed is tried again then."""
COMPARED_AT_ONCE = 1000
"""Units that two models are compared on before rows have their turn again."""
LOG = logging.getLogger("fedprognos.service")


class FleetService:
    """The parts of a service, over a state folder that it locks. `batcher` and `delivery` are there while it runs."""

    batcher: Batcher
    delivery: AlertDelivery

    def __init__(self, predictor: Predictor, options: ServiceOptions) -> None:
        if options.shadow is not None:
            check_shadow(predictor, options.shadow)
        self.predictor = predictor
        self.shadow = options.shadow
        self.inputs = ModelInputs.from_model(predictor)
        self.costs = options.costs()
        if self.costs is not None and (predictor.recipe.task != "rul" or predictor.calibration is None):
            raise ConfigError(
                "a best moment to replace needs a model of remaining life with intervals",
                where="--breakdown-cost",
                hint=predictor.no_intervals or "leave the costs out",
            )
        self.options = options
        alerts = options.plant.alerts
        self.stream = DurableStream(
            predictor,
            options.state,
            shadow=options.shadow,
            max_units=options.max_units,
            coverage=options.coverage,
            keep_rows=options.keep_rows,
            alert_rule=AlertRule(self._status, alerts.raise_after, alerts.clear_after),
        )
        if self.stream.model is self.shadow:  # it was promoted before
            self.predictor, self.shadow = self.shadow, predictor
        self.alert_log = self.stream.store.alerts
        self.alert_log.sinks = alerts.sinks
        self.view = FleetView(options.threshold, near_margin(self.predictor.recipe), options.silent_after_in_s)
        self.view.load(self.stream)
        self.events = FleetEvents(self.view, lambda: self.batcher.stalled_in_s)
        self.feeds: dict[str, Feed] = {}
        self.metrics = ServiceMetrics(self.view, self.feeds, lambda: self.delivery.problems)
        self._asked, self._problem = -CHECKED_IN_S, ""
        self._outcomes: tuple[tuple[object, ...], Outcomes] | None = None  # of which models and failures

    def _health(self, unit: str) -> Health | None:
        return self.stream.stream.health(unit)  # of the stream that serves now

    def _status(self, health: Health) -> Status:
        return status_of(health, self.options.threshold, near_margin(self.predictor.recipe))

    async def compare_models(self) -> Comparison | None:
        """How the second model differs now; None where none runs along, or the two have just changed roles."""
        serving, shadow = self.predictor, self.shadow
        if shadow is None:
            return None
        names = [view.unit for view in self.view.units.values() if view.status != "ended"]

        def read(units: Sequence[str]) -> tuple[list[Health | None], list[Health | None]] | None:
            self.stream.follow()
            second = self.stream.shadow
            if second is None or self.stream.model is not serving:
                return None
            return self.stream.stream.healths(units), second.healths(units)

        healths: list[Health | None] = []
        shadow_healths: list[Health | None] = []
        for first in range(0, len(names), COMPARED_AT_ONCE):
            part = await self.batcher.ask(partial(read, names[first : first + COMPARED_AT_ONCE]))
            if part is None:
                return None
            healths += part[0]
            shadow_healths += part[1]
        margins = near_margin(serving.recipe), near_margin(shadow.recipe)
        return await asyncio.to_thread(compare, names, healths, shadow_healths, self.options.threshold, *margins)

    async def past_errors(self) -> Outcomes | None:
        """Errors of both models on machines that failed; None where none runs along, or health is no remaining life."""
        serving, shadow = self.predictor, self.shadow
        if shadow is None or serving.recipe.task != "rul":
            return None
        failures = await self.batcher.ask(partial(self.stream.store.maintenance.failures, MOST_FAILURES))
        of_what = (serving.fingerprint, shadow.fingerprint, *(event.id for event in failures))
        if self._outcomes is None or self._outcomes[0] != of_what:
            lives = await self.batcher.ask(partial(self.stream.lives_of, failures))
            # Beside the stream's thread, so that no row waits for it.
            self._outcomes = of_what, await asyncio.to_thread(outcomes, serving, shadow, lives)
        return self._outcomes[1]

    def can_roll_back(self, changes: Sequence[ModelChange]) -> bool:
        """Whether the last change was a promotion whose other model still runs along."""
        return self.stream.shadow is not None and bool(changes) and changes[0].kind == "promote"

    async def swap_models(self, kind: ChangeKind, who: str, note: str, serving: str) -> ModelChange | None:
        """Let the second model serve instead of the named one, and show what it says; None where that cannot be."""

        def swap() -> list[Health] | None:
            self.stream.follow()
            if self.stream.shadow is None or self.stream.model.fingerprint != serving:
                return None
            return self.stream.swap_models(kind, who, note)

        healths = await self.batcher.ask(swap)
        if healths is None or self.shadow is None:
            return None
        self.predictor, self.shadow = self.shadow, self.predictor
        self.view.change_model(near_margin(self.predictor.recipe), healths)
        self.view.log_changes += 1
        self.events.publish(self.view.units.values())
        return await self.batcher.ask(self.stream.store.models.last)

    async def problem(self) -> str:
        """Why the service cannot take rows; empty if it can. The disk is checked every :data:`CHECKED_IN_S` seconds."""
        if not self.batcher.alive:
            return "the service is stopping"
        if time.monotonic() >= self._asked + CHECKED_IN_S:
            self._asked, self._problem = time.monotonic(), ""
            try:
                await self.batcher.ask(self.stream.check)
            except OutputError as error:
                self._problem = error.what
        return self._problem

    async def watch_silence(self) -> None:
        """Mark units that fall silent, as long as the service runs."""
        while True:
            changed = self.view.note_silence(time.time())
            silent = [(view.unit, view.health, view.received) for view in changed if view.status == "unknown"]
            with suppress(OutputError):  # a full disk: the page shows the silence, and /readyz says what is wrong
                self.after_alerts(await self.batcher.ask(partial(self.stream.note_silence, silent)))
            self.events.publish(changed)
            await asyncio.sleep(SILENCE_CHECKED_IN_S)

    async def keep_backups(self, folder: Path) -> None:
        """Write a backup whenever the latest one is too old, as long as the service runs."""
        every_in_s = self.options.backup_every_in_s
        last = Gauge(
            "fedprognos_last_backup_timestamp_seconds", "When the last backup began", registry=self.metrics.registry
        )
        while True:
            try:
                times = [path.stat().st_mtime for path in backups_in(folder, self.alert_log.series)]
                latest = max((moment for moment in times if moment <= time.time()), default=0.0)
                if time.time() - latest >= every_in_s:
                    latest = time.time()
                    await self._back_up(folder)
                last.set(latest)
            except (FedprognosError, OSError) as error:
                LOG.warning("no backup was written: %s", error)
            await asyncio.sleep(min(every_in_s, BACKUP_CHECKED_IN_S))

    async def _back_up(self, folder: Path) -> None:
        stopping = threading.Event()
        work = partial(write_backup, self.stream, folder, self.options.kept_backups, stopping.is_set)
        job = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            await asyncio.shield(job)
        except asyncio.CancelledError:  # the database stays open until nobody copies it
            stopping.set()
            with suppress(StoppedError, FedprognosError, OSError):
                await job
            raise

    def after_alerts(self, alerts: Sequence[Alert]) -> None:
        """Show and send alerts that were stored."""
        if alerts:
            self.view.log_changes += len(alerts)
            self.metrics.alerts_raised(alerts)
            self.delivery.wake()

    async def record(self, reports: Sequence[MaintenanceReport]) -> list[ReportResult]:
        """Store what was done to machines, and show it."""
        results = []
        for report in reports:  # one at a time, so that rows need not wait for all of them
            result, alerts = await self.batcher.ask(partial(self.stream.record, report))
            results.append(result)
            self.after_alerts(alerts)
            event = result.event
            if event is not None and result.result is Recorded.RECORDED:
                self.view.log_changes += 1
                touched = self.view.begin_life(event) if event.begins else [self.view.units[event.unit]]
                self.events.publish(touched)
        return results

    async def forget(self, unit: str) -> bool:
        """Drop a unit from the stream, the disk and the page; False if it was not watched."""
        was_watched = await self.batcher.ask(partial(self.stream.forget, unit))
        if was_watched:
            self.view.forget(unit)
            self.view.log_changes += 1
            self.delivery.wake()
            self.events.publish_forgotten(unit)
        return was_watched

    def after_batch(self, batch: Batch) -> None:
        """Show what a batch changed."""
        self.after_alerts(batch.alerts)
        self.events.publish(self.view.apply(batch))
        self.metrics.batch_done(batch)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take rows, send alerts and read from the sources; at the end everything that came is stored."""
        with _rare_garbage_collection():
            async with self._at_work():
                yield

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[None]:
        plant = self.options.plant
        self.batcher = Batcher(self.stream, self.options.max_waiting_rows, self.after_batch)
        self.delivery = AlertDelivery(self.alert_log, plant.alerts.sinks, self.batcher.ask)
        tasks = [asyncio.create_task(self.watch_silence())]
        if self.options.backup_to is not None:
            tasks.append(asyncio.create_task(self.keep_backups(self.options.backup_to)))
        for options in plant.sources:
            feed = self.feeds[options.name] = Feed(
                options.name,
                self.batcher,
                self.predictor.recipe,
                self.inputs,
                self._health,
                self.view,
                options.retry_in_s,
            )
            tasks.append(asyncio.create_task(_read_on(options, feed)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.events.close()
            await self.delivery.close()
            await self.batcher.close()


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Look for reference cycles rarely, and never among what is there already.

    Each row makes objects that live long, which by default made Python look at all objects again and again: up to half
    of the time of large batches went there. Rows make no cycles.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def restore_backup(predictor: Predictor, options: ServiceOptions, file: Path) -> None:
    """Make the state folder from a backup; a folder that holds anything is refused.

    A service is built over the unpacked files before they get their final names, so a backup that the service could
    not start from leaves nothing behind.
    """
    state = options.state or Path()
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        for leftover in state.glob(f".{DATABASE}-*"):  # of a restore that was killed
            shutil.rmtree(leftover)
        occupied = any(not entry.match(snapshot_name("*")) for entry in state.iterdir())
    except OSError as error:
        raise OutputError(f"cannot restore here: {error.strerror}", where=str(state)) from None
    if occupied:
        hint = "give an empty --state folder; to start again after a restore, leave out --restore"
        raise OutputError("this folder is in use: a backup is restored into an empty one", where=str(state), hint=hint)
    state.chmod(0o700)
    with replacing(state / DATABASE) as database:
        models = [predictor] if options.shadow is None else [predictor, options.shadow]
        names = {state_identity(model)[1] for model in models}
        snapshot = unpack_backup(file, database, state_identity(predictor)[0], names)
        try:
            trial = FleetService(predictor, replace(options, state=database.parent))
            try:
                trial.alert_log.latest(KEPT_ALERTS)
                trial.stream.store.maintenance.latest(1)
            finally:
                trial.stream.store.close()
        except OutputError:
            raise
        except Exception as error:
            raise DataError(
                f"the service cannot start from this backup: {error}", where=str(file), hint="restore an older backup"
            ) from None
        if snapshot is not None:
            snapshot.rename(state / snapshot.name)
            flush_folder(state)  # a database never names a snapshot that is not there
    flush_folder(state)


async def _read_on(options: SourceOptions, feed: Feed) -> None:
    """Run a source; one that fails for a reason nobody thought of is started again."""
    while True:
        try:
            await sources[options.kind].run(options, feed)
        except Exception:
            LOG.exception("source '%s' failed; it is started again", options.name)
        await asyncio.sleep(options.retry_in_s)
