"""Random streams that depend on what is done, not on when or where: (seed, client, round, phase)."""

from __future__ import annotations

import hashlib


def stream(seed: int, client: str, round_: int, phase: str) -> int:
    """A 63-bit seed for one piece of work.

    >>> stream(0, "plant-a", 1, "fit") == stream(0, "plant-a", 1, "fit") != stream(0, "plant-b", 1, "fit")
    True
    """
    text = f"{seed}\x1f{client}\x1f{round_}\x1f{phase}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
