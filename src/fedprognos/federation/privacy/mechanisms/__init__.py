"""Noise mechanisms, one file each, by name: how noise is drawn, and what releases with it spend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator
from scipy.optimize import brentq

from fedprognos.arrays import FloatArray
from fedprognos.shelf import Shelf


@dataclass(frozen=True)
class Mechanism:
    """A way to add noise to sums.

    Parameters
    ----------
    apply
        From sums (N,), the most that one unit or row changes them by (Euclidean norm), the noise in multiples of that,
        and a seed, to noised sums. Every number gets noise of that deviation. Without a seed nobody can foretell it.
    account
        From the noise, the number of releases and delta to the epsilon that they spend together.
    calibrate
        From epsilon, delta and the number of releases to the least noise; found by `account` where there is none.
    adds_up
        Whether the noise of several clients counts together once their sums are added, so that under masks each adds
        its part only.
    """

    name: str
    label: str
    order: int
    apply: Callable[[FloatArray, float, float, int | None], FloatArray]
    account: Callable[[float, int, float], float]
    calibrate: Callable[[float, float, int], float] | None = None
    adds_up: bool = False

    def noise(self, epsilon: float, delta: float, releases: int) -> float:
        """The least noise with which so many releases spend no more than epsilon."""
        return (self.calibrate or _searched(self.account))(epsilon, delta, releases)


@lru_cache
def _searched(account: Callable[[float, int, float], float]) -> Callable[[float, float, int], float]:
    @lru_cache
    def search(epsilon: float, delta: float, releases: int) -> float:
        def over(noise: float) -> float:
            return account(noise, releases, delta) - epsilon

        low = high = 1.0
        while over(high) > 0:
            low, high = high, 2 * high
        while over(low) <= 0:
            low, high = low / 2, low
        found = float(brentq(over, low, high, xtol=1e-6 * low))
        while over(found) > 0:  # never less than what is promised
            found *= 1 + 1e-6
        return found

    return search


mechanisms: Shelf[Mechanism] = Shelf("privacy mechanism", __name__, "fedprognos.mechanisms")
MechanismName = Annotated[str, AfterValidator(mechanisms.known)]
"""The name of a mechanism on the shelf, in options."""

__all__ = ["Mechanism", "MechanismName", "mechanisms"]
