"""How a client's units are split into parts: to train on, to choose by, and a reserve.

Whoever knows the parts of many seeds, and each part's sums, can solve for single units. So a site splits by a secret of
its own, once for all seeds: sums of the same share are about the same units, and nobody else knows which.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from dataclasses import dataclass, field

import numpy as np

from fedprognos.arrays import BoolArray
from fedprognos.features import WindowSet
from fedprognos.privacy.floors import Floors


def stream(seed: int, client: str, round_: int, phase: str) -> int:
    """A 63-bit seed for one piece of work.

    >>> stream(0, "plant-a", 1, "fit") == stream(0, "plant-a", 1, "fit") != stream(0, "plant-b", 1, "fit")
    True
    """
    text = f"{seed}\x1f{client}\x1f{round_}\x1f{phase}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


RESERVE = 0.1
"""The share of a client's units that are its reserve."""


@dataclass(frozen=True)
class SecretSplit:
    """The source of the random numbers that put units into parts.

    Parameters
    ----------
    secret
        The client's own. Without one, as in runs on one machine, parts follow from the run's seed and are public.
    """

    secret: bytes = field(default=b"", repr=False)

    def stream(self, seed: int, client: str, phase: str, share: float) -> int:
        """A 63-bit seed. With a secret it depends on the share, too: otherwise a larger part would contain a smaller.

        >>> ours = SecretSplit(b"x")
        >>> ours.stream(1, "a", "validation", 0.2) == ours.stream(2, "a", "validation", 0.2)
        True
        >>> ours.stream(1, "a", "validation", 0.2) == ours.stream(1, "a", "validation", 0.25)
        False
        """
        if not self.secret:
            return stream(seed, client, 0, phase)
        return self._sealed(f"{client}\x1f{phase}\x1f{share!r}")

    def order(self, seed: int, client: str, round_: int, phase: str) -> int:
        """A 63-bit seed for the order in which training goes through the data.

        The last rows count most in the weights; with a secret nobody else knows which rows these are.
        """
        if not self.secret:
            return stream(seed, client, round_, phase)
        return self._sealed(f"{client}\x1forder\x1f{seed}\x1f{round_}\x1f{phase}")

    def _sealed(self, text: str) -> int:
        return int.from_bytes(hmac.new(self.secret, text.encode(), hashlib.sha256).digest()[:8], "big") >> 1


def reserved(windows: WindowSet, seed: int, floors: Floors) -> BoolArray:
    """Which windows belong to the reserve: a tenth of the units, left out of one more training.

    The reserve and the rest each have as many units as the floors ask for; a client with too few units has no reserve.
    """
    units, least = np.unique(windows.unit), floors.units
    count = max(math.ceil(RESERVE * len(units)), least)
    if len(units) - count < least:
        return np.zeros(len(windows), dtype=bool)
    chosen: BoolArray = np.isin(windows.unit, np.random.default_rng(seed).permutation(units)[:count])
    floors.check(windows.select(chosen))
    return chosen
