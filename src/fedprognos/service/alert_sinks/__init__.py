"""Where alerts go, one file for each kind of sink: it owns the `kind`, its options, and how it sends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedprognos.errors import FedprognosError
from fedprognos.service.alerts import Alert, AlertStatus
from fedprognos.service.plant_entry import PlantEntry
from fedprognos.shelf import Shelf

Send = Callable[[Sequence[Alert]], Awaitable[None]]


class SinkOptions(PlantEntry):
    """One `[[alerts.sinks]]` of the plant file."""

    statuses: tuple[AlertStatus, ...] = ("due", "unknown", "soon")
    """Statuses that the sink is told about: when a machine enters them, and when it leaves them."""


class RefusedError(FedprognosError):
    """A sink refuses an alert for good: to send it again is useless."""

    code = "alert-refused"


@dataclass(frozen=True)
class AlertSink:
    """One way to tell people.

    Parameters
    ----------
    name
        What `kind` says; the default of `options.kind`.
    label
        One line for lists and documentation.
    open
        From the options to a function that sends alerts, and returns when the receiver has confirmed them. It raises
        :class:`RefusedError` where the receiver never will, and anything else where it may later.
    at_once
        Alerts that one call may hold.
    """

    name: str
    label: str
    order: int
    options: type[SinkOptions]
    open: Callable[[Any], Send]
    at_once: int = 1


sinks: Shelf[AlertSink] = Shelf("alert sink", __name__, "fedprognos.alert_sinks")
