"""The service without its HTTP interface: stream, view, alerts and sources, and how they work together."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from prometheus_client import Gauge

from fedprognos.errors import DataError, FedprognosError, OutputError
from fedprognos.files import replacing
from fedprognos.prognosis import ModelInputs, Predictor
from fedprognos.service.alert_delivery import AlertDelivery
from fedprognos.service.alert_log import KEPT_ALERTS
from fedprognos.service.alerts import Alert, AlertRule
from fedprognos.service.backups import StoppedError, backups_in, flush_folder, unpack_backup, write_backup
from fedprognos.service.batching import Batcher
from fedprognos.service.durable_stream import Batch, DurableStream, snapshot_name, state_identity
from fedprognos.service.fleet_events import FleetEvents
from fedprognos.service.fleet_view import FleetView, status_of
from fedprognos.service.maintenance import MaintenanceReport, Recorded, ReportResult
from fedprognos.service.service_metrics import ServiceMetrics
from fedprognos.service.service_options import ServiceOptions, near_margin
from fedprognos.service.sources import Feed, SourceOptions, sources
from fedprognos.service.store import DATABASE

CHECKED_IN_S = 5.0
"""The disk is checked at most this often, because each check writes to it."""
SILENCE_CHECKED_IN_S = 10.0
BACKUP_CHECKED_IN_S = 60.0
"""How often the service looks whether a backup is due; one that failed is tried again then."""
LOG = logging.getLogger("fedprognos.service")


class FleetService:
    """The parts of a service, over a state folder that it locks. `batcher` and `delivery` are there while it runs."""

    batcher: Batcher
    delivery: AlertDelivery

    def __init__(self, predictor: Predictor, options: ServiceOptions) -> None:
        self.predictor = predictor
        self.options = options
        margin = near_margin(predictor.recipe)
        judge = partial(status_of, threshold=options.threshold, margin=margin)
        alerts = options.plant.alerts
        self.stream = DurableStream(
            predictor,
            options.state,
            max_units=options.max_units,
            coverage=options.coverage,
            keep_rows=options.keep_rows,
            alert_rule=AlertRule(judge, alerts.raise_after, alerts.clear_after),
        )
        self.alert_log = self.stream.store.alerts
        self.alert_log.sinks = alerts.sinks
        self.view = FleetView(options.threshold, margin, options.silent_after_in_s)
        self.view.load(self.stream)
        self.events = FleetEvents(self.view, lambda: self.batcher.stalled_in_s)
        self.feeds: dict[str, Feed] = {}
        self.metrics = ServiceMetrics(self.view, self.feeds, lambda: self.delivery.problems)
        self._asked, self._problem = -CHECKED_IN_S, ""

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
            self.view.alerts += len(alerts)
            self.metrics.alerts_raised(alerts)
            self.delivery.wake()

    async def record(self, reports: Sequence[MaintenanceReport]) -> list[ReportResult]:
        """Store what was done to machines, and show it."""
        recorded = await self.batcher.ask(lambda: [self.stream.record(report) for report in reports])
        for result, alerts in recorded:
            self.after_alerts(alerts)
            event = result.event
            if event is not None and result.result is Recorded.RECORDED:
                self.view.alerts += 1
                touched = self.view.begin_life(event) if event.begins else [self.view.units[event.unit]]
                self.events.publish(touched)
        return [result for result, _ in recorded]

    async def forget(self, unit: str) -> bool:
        """Drop a unit from the stream, the disk and the page; False if it was not watched."""
        was_watched = await self.batcher.ask(partial(self.stream.forget, unit))
        if was_watched:
            self.view.forget(unit)
            self.view.alerts += 1
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
        plant = self.options.plant
        self.batcher = Batcher(self.stream, self.options.max_waiting_rows, self.after_batch)
        self.delivery = AlertDelivery(self.alert_log, plant.alerts.sinks, self.batcher.ask)
        tasks = [asyncio.create_task(self.watch_silence())]
        if self.options.backup_to is not None:
            tasks.append(asyncio.create_task(self.keep_backups(self.options.backup_to)))
        for options in plant.sources:
            feed = self.feeds[options.name] = self._feed(options)
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

    def _feed(self, options: SourceOptions) -> Feed:
        return Feed(
            options.name,
            self.batcher,
            self.predictor.recipe,
            ModelInputs.from_model(self.predictor),
            self.stream.stream.health,
            self.view,
            options.retry_in_s,
        )


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
        snapshot = unpack_backup(file, database, *state_identity(predictor))
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
