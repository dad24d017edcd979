"""The messages that personal heads are made with; listed with all others in :mod:`fedprognos.federation.messages`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.networks import Network
from fedprognos.networks.pooling import CentredSums, Grid

MAX_STRENGTHS = 64
ONLY_HEAD = "0" * 32
"""Name of a personal head where a client makes a single one."""


def head_name(*facts: object) -> str:
    """A name for the personal heads of one model, from what the run says of it: scenario, method, seed, round, owners.

    Never from computed numbers: another processor computes other last digits and would not find the head.
    """
    return hashlib.sha256("\x1f".join(map(str, facts)).encode()).hexdigest()[: len(ONLY_HEAD)]


@dataclass(frozen=True, eq=False)
class PoolRequest:
    """Send the sums from which slopes shared by personal heads follow: of your earlier points, and of all."""

    activity: ClassVar[str] = "sums for personal heads"
    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float


@dataclass(frozen=True, eq=False)
class PoolReply:
    """Centred sums of the points before each cut and of all; None in the place of those of too few points."""

    fits: tuple[CentredSums | None, ...]


@dataclass(frozen=True, eq=False)
class PooledSlopes:
    """Slopes that clients share, for every freedom (f,) of their own ones and every strength.

    Parameters
    ----------
    shared
        (f, strengths, features) by the number of the cut they are fitted up to; the last are those of all points.
    """

    freedoms: NDArray[np.float64]
    shared: Mapping[int, NDArray[np.float64]]

    @staticmethod
    def near(network: Network, fits: int) -> PooledSlopes:
        """The slopes of a network's own head in the place of those that clients were to share."""
        freedoms, slopes = Grid.of(network.spec.features).freedoms, network.head[:-1]
        every = np.broadcast_to(slopes, (len(freedoms), 1, len(slopes)))
        return PooledSlopes(freedoms, dict.fromkeys(range(fits), every))

    def check(self, fits: int, columns: int) -> PooledSlopes:
        """Themselves, or :class:`MessageError` where they do not fit what the client has."""
        f, known = self.freedoms, self.shared
        if f.ndim != 1 or not 1 <= len(f) <= MAX_STRENGTHS or (f < 0).any():
            raise MessageError("freedoms of personal heads must be a few numbers that are not negative")
        if fits - 1 not in known or not all(0 <= k < fits for k in known):
            raise MessageError("slopes of other cuts than the client has, or not those of all points")
        for slopes in known.values():
            if slopes.ndim != 3 or not 1 <= slopes.shape[1] <= MAX_STRENGTHS or slopes.shape[::2] != (len(f), columns):
                raise MessageError("slopes that do not fit the network's head")
        return self


@dataclass(frozen=True, eq=False)
class PersonalRequest:
    """Make yourself a head of your own and keep it: from shared slopes, or near the head of this model without them.

    Parameters
    ----------
    head
        Name to keep it under, by which a :class:`ScoreRequest` asks for it.
    """

    activity: ClassVar[str] = "making personal heads"
    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    slopes: PooledSlopes | None = None
    head: str = ONLY_HEAD


@dataclass(frozen=True)
class PersonalReply:
    """That it was made; the head itself stays."""

    windows: int
