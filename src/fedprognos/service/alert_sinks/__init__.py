"""Where alerts go, one file for each kind of sink: it owns the `kind`, its options, and how it sends.

Alerts are carried from the outbox to each sink at its own pace, in their order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedprognos.errors import FedprognosError
from fedprognos.service.alert_log import AlertLog
from fedprognos.service.alerts import Alert, AlertStatus
from fedprognos.service.plant_entry import PlantEntry
from fedprognos.shelf import Shelf

Send = Callable[[Sequence[Alert]], Awaitable[None]]
Ask = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs something in the thread of the stream, which owns the database."""
FIRST_PAUSE_IN_S, LONGEST_PAUSE_IN_S = 1.0, 60.0
LOG = logging.getLogger("fedprognos.alerts")


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


class AlertDelivery:
    """Sends what waits, as long as the service runs.

    Parameters
    ----------
    options
        One for each sink, with a name.

    Attributes
    ----------
    problems
        Why a sink takes nothing at the moment, by its name.
    """

    def __init__(self, log: AlertLog, options: Sequence[SinkOptions], ask: Ask) -> None:
        self._log, self._ask = log, ask
        self._wake = {sink.name: asyncio.Event() for sink in options}
        self._send: dict[str, tuple[Send, int]] = {
            sink.name: (sinks[sink.kind].open(sink), sinks[sink.kind].at_once) for sink in options
        }
        self.problems: dict[str, str] = {}
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """There may be something new in the outbox."""
        for event in self._wake.values():
            event.set()

    async def close(self) -> None:
        """Stop; what is not confirmed stays in the outbox."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in self._send:
                tasks.create_task(self._serve(name))

    async def _serve(self, name: str) -> None:
        (send, at_once), wake = self._send[name], self._wake[name]
        pause = FIRST_PAUSE_IN_S
        while True:
            wake.clear()
            alerts = await self._ask(partial(self._log.waiting, name, at_once))
            if not alerts:
                await wake.wait()
                continue
            refused = ""
            try:
                await send(alerts)
            except RefusedError as error:
                refused = error.what
                LOG.error("sink '%s' refuses alert %s: %s", name, alerts[0].id, refused)
            except Exception as error:  # whatever ails the receiver may pass: the alerts wait in the outbox
                self.problems[name] = str(error) or type(error).__name__
                LOG.warning("sink '%s' takes no alerts: %s; next try in %.0f s", name, self.problems[name], pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_IN_S)
                continue
            await self._ask(partial(self._log.mark_delivered, name, alerts, time.time(), refused))
            self.problems.pop(name, None)
            pause = FIRST_PAUSE_IN_S
