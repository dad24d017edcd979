"""What Prometheus may ask for."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fedprognos.prognosis import Verdict
from fedprognos.service.durable_stream import Batch
from fedprognos.service.fleet_view import FleetView

SHORT_IN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 4096)


class ServiceMetrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self, view: FleetView) -> None:
        self.registry = CollectorRegistry()
        self._rows = Counter(
            "fedprognos_rows", "Rows received, by what became of them", ["result"], registry=self.registry
        )
        self._by_result = {verdict: self._rows.labels(verdict.value) for verdict in Verdict}
        self.batch = Histogram("fedprognos_batch_rows", "Rows of a batch", buckets=SIZES, registry=self.registry)
        self.predict = Histogram(
            "fedprognos_predict_seconds",
            "Time in the stream and the network",
            buckets=SHORT_IN_S,
            registry=self.registry,
        )
        self.stored = Histogram(
            "fedprognos_store_seconds", "Time to put a batch on disk", buckets=SHORT_IN_S, registry=self.registry
        )
        self.failed = Counter("fedprognos_failed_batches", "Batches that could not be stored", registry=self.registry)
        self.followers = Gauge("fedprognos_event_streams", "Clients that follow events", registry=self.registry)
        self.waiting = Gauge("fedprognos_waiting_rows", "Rows that wait to be taken", registry=self.registry)
        self.registry.register(_Units(view))

    def batch_done(self, batch: Batch) -> None:
        """Count a batch."""
        for verdict, count in Tally(update.verdict for update in batch.updates).items():
            self._by_result[verdict].inc(count)
        self.batch.observe(len(batch.updates))
        self.predict.observe(batch.predict_in_s)
        self.stored.observe(batch.store_in_s)

    def refused(self, count: int) -> None:
        """Count rows that never reached the stream."""
        self._by_result[Verdict.REFUSED].inc(count)

    def text(self) -> bytes:
        """All of it as Prometheus reads it."""
        return generate_latest(self.registry)


class _Units(Collector):
    """Units by status, counted when asked."""

    def __init__(self, view: FleetView) -> None:
        self._view = view

    def collect(self) -> Iterable[GaugeMetricFamily]:
        units = GaugeMetricFamily("fedprognos_units", "Units watched, by status", labels=["status"])
        for status, count in self._view.counts().items():
            units.add_metric([status], count)
        yield units
        yield GaugeMetricFamily("fedprognos_flagged_units", "Units with flags on their health", self._view.flagged())
