"""Carries alerts from the outbox to the sinks, each sink at its own pace and in the order of the alerts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from fedprognos.service.alert_log import AlertLog
from fedprognos.service.alert_sinks import RefusedError, Send, SinkOptions, sinks

FIRST_PAUSE_IN_S, LONGEST_PAUSE_IN_S = 1.0, 60.0
LOG = logging.getLogger("fedprognos.alerts")


Ask = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs something in the thread of the stream, which owns the database."""


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
