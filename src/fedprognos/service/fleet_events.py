"""Server-sent events: which units changed or were forgotten, and every few seconds that the service still works.

Each follower gets what it can keep up with, never a growing backlog. A beat says how long the running batch has taken,
because the event loop answers while the thread that reads rows hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from pydantic_core import to_json

from fedprognos.service.fleet_view import FleetView, UnitView

PAUSE_IN_S = 0.5
BEAT_IN_S = 5.0
"""The page takes three beats that do not come for a service that hangs."""
MOST_FOLLOWERS = 200
MOST_UNITS = 500
"""Units in one event; where more changed, a follower is told to ask for the list again."""


class _Follower:
    def __init__(self) -> None:
        self.changed: dict[str, UnitView | None] = {}  # None: forgotten
        self.overflowed = False
        self.wake = asyncio.Event()


class FleetEvents:
    """Everyone who follows.

    Parameters
    ----------
    stalled_in_s
        How long the running batch has taken so far.
    """

    def __init__(self, view: FleetView, stalled_in_s: Callable[[], float] = lambda: 0.0) -> None:
        self._view = view
        self._stalled_in_s = stalled_in_s
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
                    yield self._event("beat", {})
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
            "refused": self._view.refused,
            "alerts": self._view.log_changes,
            "stalled_in_s": round(self._stalled_in_s(), 1),
        }
        return b"event: " + kind.encode() + b"\ndata: " + to_json(data) + b"\n\n"
