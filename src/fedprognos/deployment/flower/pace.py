"""How often to look for news: often while something is going on, seldom when nothing has been for long."""

from __future__ import annotations

import time
from typing import Any

SHORTEST_IN_S = 0.02
SHARE = 0.1
"""News waits at most for this share of the time since the last news."""
RETRY: dict[str, Any] = {"initial_backoff": 0.02, "backoff_cap": 0.2, "max_tries_per_object": None}
"""How often Flower tries again to fetch a part of a message that is still on its way; a second apart otherwise."""


class Pace:
    """The wait before looking again.

    >>> pace = Pace(longest_in_s=0.5)
    >>> pace.wait_in_s(pace.since + 1.0), pace.wait_in_s(pace.since + 60.0)
    (0.1, 0.5)
    """

    def __init__(self, longest_in_s: float) -> None:
        self.longest_in_s = longest_in_s
        self.news()

    def news(self) -> None:
        """Something happened: look often again."""
        self.since = time.monotonic()

    def wait_in_s(self, now: float | None = None) -> float:
        """A share of the time since something happened, within bounds."""
        passed = (time.monotonic() if now is None else now) - self.since
        return round(min(max(SHARE * passed, SHORTEST_IN_S), self.longest_in_s), 3)
