"""Server-sent events: which units changed or were forgotten.

Each follower gets what it can keep up with, never a growing backlog.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from pydantic_core import to_json

from fedprognos.service.fleet_view import FleetView, UnitView

PAUSE_IN_S = 0.5
BEAT_IN_S = 15.0
MOST_FOLLOWERS = 200
MOST_UNITS = 500
"""Units in one event; where more changed, a follower is told to ask for the list again."""


class _Follower:
    def __init__(self) -> None:
        self.changed: dict[str, UnitView | None] = {}  # None: forgotten
        self.overflowed = False
        self.wake = asyncio.Event()


class FleetEvents:
    """Everyone who follows."""

    def __init__(self, view: FleetView) -> None:
        self._view = view
        self._followers: set[_Follower] = set()
        self._closed = False

    @property
    def followers(self) -> int:
        return len(self._followers)

    @property
    def full(self) -> bool:
        return len(self._followers) >= MOST_FOLLOWERS

    def publish(self, units: Iterable[UnitView]) -> None:
        """Tell all followers that units changed."""
        self._send({unit.unit: unit for unit in units})

    def publish_forgotten(self, unit: str) -> None:
        """Tell all followers that a unit is gone."""
        self._send({unit: None})

    def _send(self, changed: dict[str, UnitView | None]) -> None:
        for follower in self._followers:
            follower.changed.update(changed)
            if len(follower.changed) > MOST_UNITS:
                follower.overflowed = True
                follower.changed.clear()
            follower.wake.set()

    def close(self) -> None:
        """End all streams, so that a stop does not wait for them."""
        self._closed = True
        for follower in self._followers:
            follower.wake.set()

    async def follow(self) -> AsyncIterator[bytes]:
        """Events for one follower, as long as it listens."""
        follower = _Follower()
        self._followers.add(follower)
        try:
            yield b"retry: 2000\n\n" + self._event("hello", {})
            while self._open():
                try:
                    await asyncio.wait_for(follower.wake.wait(), BEAT_IN_S)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if not self._open():
                    return
                follower.wake.clear()
                changed, overflowed = follower.changed, follower.overflowed
                follower.changed, follower.overflowed = {}, False
                yield self._event("reload" if overflowed else "update", {} if overflowed else changed)
                await asyncio.sleep(PAUSE_IN_S)  # what changes meanwhile goes into one event
        finally:
            self._followers.discard(follower)

    def _open(self) -> bool:
        return not self._closed

    def _event(self, kind: str, changed: dict[str, UnitView | None]) -> bytes:
        data = {
            "counts": self._view.counts(),
            "units": [unit for unit in changed.values() if unit is not None],
            "forgotten": [name for name, unit in changed.items() if unit is None],
        }
        return b"event: " + kind.encode() + b"\ndata: " + to_json(data) + b"\n\n"
