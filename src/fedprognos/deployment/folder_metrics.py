"""What Prometheus may ask about a coordinator or a site, read from its folder by a process of its own.

The coordinator and the site listen on no further port for this, and a site's ledger is only read, never written.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from fedprognos.deployment.keys import days_left, read_certificate
from fedprognos.deployment.processes import STATUS, running
from fedprognos.errors import FedprognosError
from fedprognos.federation import LEDGER
from fedprognos.files import AddedLines, read_object


def folder_registry(folder: Path) -> CollectorRegistry:
    """The metrics of the coordinator or site that lives in a folder."""
    registry = CollectorRegistry()
    registry.register(CoordinatorFolder(folder) if (folder / "sites").is_dir() else SiteFolder(folder))
    return registry


class CoordinatorFolder(Collector):
    """Whether the coordinator runs, what it does, which sites are there and which it waits for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield _up(self._folder)
        status = read_object(self._folder / STATUS)
        activity = GaugeMetricFamily("fedprognos_coordinator_activity", "What it does", labels=["experiment", "phase"])
        if "phase" in status:
            activity.add_metric([str(status.get("experiment", "")), str(status["phase"])], 1)
        yield activity
        sites = status.get("sites")
        online = GaugeMetricFamily("fedprognos_site_online", "Whether a site is connected", labels=["site"])
        awaited = GaugeMetricFamily("fedprognos_site_awaited", "Whether the run waits for a site", labels=["site"])
        for name, presence in sites.items() if isinstance(sites, dict) else ():
            online.add_metric([name], float(bool(presence.get("online"))))
            awaited.add_metric([name], float(name in status.get("waiting_for", ())))
        yield online
        yield awaited
        days = GaugeMetricFamily("fedprognos_certificate_days", "Days until the server's certificate ends")
        with contextlib.suppress(OSError, ValueError, FedprognosError):  # there is none yet, or it is being replaced
            days.add_metric([], days_left(read_certificate(self._folder / "server.crt")))
        yield days


class SiteFolder(Collector):
    """Whether the site runs, and what has left it: messages by kind, refusals, bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ledger = AddedLines(folder / LEDGER)
        self._messages: Counter[tuple[str, str]] = Counter()
        self._sent_in_bytes = 0

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        yield _up(self._folder)
        self._count_added()
        messages = CounterMetricFamily(
            "fedprognos_ledger_messages", "Messages in the ledger, by what became of them", labels=["kind", "result"]
        )
        for (kind, result), count in sorted(self._messages.items()):
            messages.add_metric([kind, result], count)
        yield messages
        sent = CounterMetricFamily("fedprognos_ledger_sent_bytes", "Bytes that left the site")
        sent.add_metric([], self._sent_in_bytes)
        yield sent

    def _count_added(self) -> None:
        for entry in self._ledger.read():
            try:
                kind, size_in_bytes = str(entry["kind"]), int(entry["bytes"])
            except (ValueError, KeyError, TypeError):
                continue
            self._messages[kind, "refused" if "refused" in entry else "answered"] += 1
            self._sent_in_bytes += size_in_bytes


def _up(folder: Path) -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "fedprognos_up", "Whether the coordinator or site runs", float(running(folder) is not None)
    )
