"""How often to look for news: often while something happens, seldom when nothing has happened for long."""

from __future__ import annotations

import time

SHORTEST_IN_S = 0.02
SHARE = 0.1
"""News waits at most for this share of the time since the last news."""


class Backoff:
    """The wait before looking again: a share of the time since something last happened, within bounds.

    >>> backoff = Backoff(longest_in_s=0.5)
    >>> backoff.wait_in_s(backoff.since + 1.0), backoff.wait_in_s(backoff.since + 60.0)
    (0.1, 0.5)
    """

    def __init__(self, longest_in_s: float) -> None:
        self.longest_in_s = longest_in_s
        self.reset()

    def reset(self) -> None:
        """Something happened: look often again."""
        self.since = time.monotonic()

    def wait_in_s(self, now: float | None = None) -> float:
        """How long to wait before looking again."""
        passed = (time.monotonic() if now is None else now) - self.since
        return round(min(max(SHARE * passed, SHORTEST_IN_S), self.longest_in_s), 3)
