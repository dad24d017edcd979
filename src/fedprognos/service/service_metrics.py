"""What Prometheus may ask for."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from fedprognos.prognosis import Verdict
from fedprognos.service.alerts import Alert
from fedprognos.service.durable_stream import Batch
from fedprognos.service.fleet_view import FleetView
from fedprognos.service.sources import Feed

SHORT_IN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 4096)


class ServiceMetrics:
    """Counters of one service, in a registry of their own.

    Parameters
    ----------
    feeds
        Of the sources, by name.
    sink_problems
        Why sinks take no alerts at the moment, by name.
    """

    def __init__(
        self, view: FleetView, feeds: Mapping[str, Feed], sink_problems: Callable[[], Mapping[str, str]]
    ) -> None:
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
        self._alerts = Counter(
            "fedprognos_alerts", "Alerts raised, by the new status", ["status"], registry=self.registry
        )
        self.registry.register(_CountedWhenAsked(view, feeds, sink_problems))

    def batch_done(self, batch: Batch) -> None:
        """Count a batch."""
        for verdict, count in Tally(update.verdict for update in batch.updates).items():
            self._by_result[verdict].inc(count)
        self.batch.observe(len(batch.updates))
        self.predict.observe(batch.predict_in_s)
        self.stored.observe(batch.store_in_s)

    def alerts_raised(self, alerts: Iterable[Alert]) -> None:
        """Count alerts."""
        for alert in alerts:
            self._alerts.labels(alert.status).inc()

    def refused(self, count: int) -> None:
        """Count rows that never reached the stream."""
        self._by_result[Verdict.REFUSED].inc(count)

    def text(self) -> bytes:
        """All of it as Prometheus reads it."""
        return generate_latest(self.registry)


class _CountedWhenAsked(Collector):
    """Units by status, what each source has brought, and which sinks take no alerts."""

    def __init__(
        self, view: FleetView, feeds: Mapping[str, Feed], sink_problems: Callable[[], Mapping[str, str]]
    ) -> None:
        self._view, self._feeds, self._sink_problems = view, feeds, sink_problems

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        units = GaugeMetricFamily("fedprognos_units", "Units watched, by status", labels=["status"])
        for status, count in self._view.counts().items():
            units.add_metric([status], count)
        yield units
        yield GaugeMetricFamily("fedprognos_flagged_units", "Units with flags on their health", self._view.flagged())
        brought = CounterMetricFamily(
            "fedprognos_source", "What a source has brought, by what became of it", labels=["source", "what"]
        )
        for name, feed in self._feeds.items():
            for what, count in asdict(feed.tally).items():
                brought.add_metric([name, what], count)
        yield brought
        failing = GaugeMetricFamily("fedprognos_alert_sink_failing", "Sinks that take no alerts", labels=["sink"])
        for name in self._sink_problems():
            failing.add_metric([name], 1)
        yield failing
