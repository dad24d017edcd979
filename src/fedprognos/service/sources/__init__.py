"""Where rows come from beside HTTP. One file for each kind of source owns the `kind`, its options, and how it reads.

A source turns what its machines send into rows and hands them to a :class:`Feed`. When the feed returns, the rows are
stored: only then does the source confirm them to whoever sent them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import Field

from fedprognos.errors import OutputError, printable
from fedprognos.features import Recipe
from fedprognos.prognosis import Health, ModelInputs, Row, Update, Verdict
from fedprognos.service.batching import Batcher, BusyError
from fedprognos.service.fleet_view import LONGEST_REASON, FleetView
from fedprognos.service.plant_entry import PlantEntry
from fedprognos.shelf import Shelf

LOG = logging.getLogger("fedprognos.watch")
NOWHERE = (-math.inf, -math.inf)
SHOWN_FAULTS = 10
"""Faults that are logged one by one; after that every thousandth is."""


class SourceOptions(PlantEntry):
    """One `[[sources]]` of the plant file."""

    retry_in_s: Annotated[float, Field(gt=0)] = 1.0
    """Pause before the first new attempt to connect, or to store rows on a full disk; it doubles up to a minute."""


@dataclass
class Tally:
    """What a source has brought so far."""

    messages: int = 0
    faulty: int = 0
    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    published: int = 0
    connections: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in asdict(self).items())


@dataclass
class Feed:
    """What a source hands its rows to.

    Parameters
    ----------
    inputs
        The columns that the model needs, and how its tables were written.
    current_health
        The latest health of a unit.
    """

    name: str
    _batcher: Batcher
    recipe: Recipe
    inputs: ModelInputs
    current_health: Callable[[str], Health | None]
    _view: FleetView
    _retry_in_s: float = 1.0
    tally: Tally = field(default_factory=Tally)

    def reached(self, unit: str) -> tuple[float, float]:
        """The latest cycle (0 for units without cycles) and position of a unit; minus infinity for a new one."""
        view = self._view.receiver(unit)
        return NOWHERE if view is None else (view.cycle or 0, view.position)

    async def submit(self, rows: Sequence[Row]) -> Sequence[Update]:
        """What became of rows, once they are stored. It waits while the disk is full or the service is busy."""
        while rows:
            try:
                updates = await self._batcher.submit(rows)
                break
            except OutputError as error:
                LOG.error("%s; %s", error.what, error.hint)
                await asyncio.sleep(10 * self._retry_in_s)
            except BusyError:
                await asyncio.sleep(self._retry_in_s)
        else:
            return ()
        for update in updates:
            if update.accepted:
                self.tally.accepted += 1
            elif update.verdict is Verdict.DUPLICATE:
                self.tally.duplicates += 1
            else:
                self.tally.refused += 1
                self._log(f"unit '{update.unit}': {update.reason}", self.tally.refused)
        return updates

    def refuse(self, where: str, reason: str) -> None:
        """Note something that is no row."""
        self.tally.faulty += 1
        self._view.refuse(None, f"{where}: {reason}", time.time())
        self._log(f"{where}: {reason}", self.tally.faulty)

    def _log(self, text: str, count: int) -> None:
        if count <= SHOWN_FAULTS or count % 1000 == 0:
            line = " ".join(printable(text[:LONGEST_REASON]).split())  # machines choose names, and may lie
            LOG.warning("%s passed over (%d so far): %s", self.name, count, line)


@dataclass(frozen=True)
class Source:
    """One way in.

    Parameters
    ----------
    name
        What `kind` says; the default of `options.kind`.
    label
        One line for lists and documentation.
    run
        From the options and a feed, reads until it is cancelled. It waits for a peer that vanishes.
    check
        Refuses options that cannot work, before anything starts.
    """

    name: str
    label: str
    order: int
    options: type[SourceOptions]
    run: Callable[[Any, Feed], Awaitable[None]]
    check: Callable[[Any], None] = lambda options: None


sources: Shelf[Source] = Shelf("source", __name__, "fedprognos.sources")
