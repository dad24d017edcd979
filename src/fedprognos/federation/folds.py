"""How a client's units are dealt into parts: kept out of training, or into folds.

Whoever knows the parts of many seeds, and each part's sums, can solve for single units. So a site deals by a secret of
its own, once for all seeds: sums of the same share are about the same units, and nobody else knows which.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MessageError
from fedprognos.features import WindowSet
from fedprognos.federation.seeds import stream

MAX_FOLDS = 20


@dataclass(frozen=True)
class Dealing:
    """Where the random numbers come from that deal units into parts.

    Parameters
    ----------
    secret
        The client's own. Without one, as in runs on one machine, parts follow from the run's seed and are public.
    """

    secret: bytes = field(default=b"", repr=False)

    def stream(self, seed: int, client: str, phase: str, share: float) -> int:
        """A 63-bit seed. With a secret it depends on the share, too: else a slightly larger part would hold the other.

        >>> ours = Dealing(b"x")
        >>> ours.stream(1, "a", "validation", 0.2) == ours.stream(2, "a", "validation", 0.2)
        True
        >>> ours.stream(1, "a", "validation", 0.2) == ours.stream(1, "a", "validation", 0.25)
        False
        """
        if not self.secret:
            return stream(seed, client, 0, phase)
        seal = hmac.new(self.secret, f"{client}\x1f{phase}\x1f{share!r}".encode(), hashlib.sha256)
        return int.from_bytes(seal.digest()[:8], "big") >> 1


@dataclass(frozen=True)
class Fold:
    """One of several parts that a client's units are dealt into, for cross-conformal intervals."""

    fold: int = 0
    folds: int = 0

    def __post_init__(self) -> None:
        if not (self.folds == self.fold == 0 or (2 <= self.folds <= MAX_FOLDS and 0 <= self.fold < self.folds)):
            raise MessageError(f"no fold {self.fold} of {self.folds}")

    def members(self, windows: WindowSet, seed: int) -> NDArray[np.bool_]:
        """Which windows belong to units of this fold."""
        order = np.random.default_rng(seed).permutation(len(windows.unit_ids))
        return np.isin(windows.unit, order[self.fold :: self.folds])
