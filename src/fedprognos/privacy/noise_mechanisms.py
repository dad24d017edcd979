"""Noise mechanisms by name: how noise is drawn, and what releases with it spend (by `dp-accounting`).

The analytic Gaussian mechanism (Balle & Wang, 2018) has the least noise that gives (epsilon, delta). The discrete
Gaussian mechanism (Canonne, Kamath & Steinke, 2020) draws noise of whole numbers exactly. Sums are rounded to a grid,
whose step is a power of two, and get a whole number of steps as noise. So they are exact in the integers of masked
sums, and the noise of several clients adds up there. By Kairouz et al. (2021, Theorem 1) the sum of discrete Gaussians
has the concentrated privacy of one of their total variance, but for 10 n exp(-pi^2 s^2) with s^2 the variance of one
client's noise. It is 100 at the least, where that is less than 1e-400.
"""

from __future__ import annotations

import math
import os
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator
from scipy.optimize import brentq
from scipy.special import log_ndtr

from fedprognos.arrays import FloatArray
from fedprognos.errors import ConfigError
from fedprognos.shelf import Shelf


@dataclass(frozen=True)
class Account:
    """What a run spends on each client: epsilon at delta, the noise of a release, and how many there are."""

    epsilon: float
    delta: float
    noise: float
    releases: int
    per: str
    mechanism: str

    def in_words(self) -> str:
        """For reports and bundles."""
        return (
            f"epsilon {self.epsilon:.3g} at delta {self.delta:g} per {self.per}: {self.releases} releases with "
            f"{self.mechanism} noise of {self.noise:.3g} sensitivities; moments of the columns are not covered"
        )


def gaussian_epsilon(noise: float, releases: int, delta: float) -> float:
    """What several Gaussian releases spend: as much as one with less noise (Dong et al., 2022)."""
    return float(_accounting().get_epsilon_gaussian(noise / releases**0.5, delta))


def concentrated_epsilon(noise: float, releases: int, delta: float) -> float:
    """What several releases with the concentrated privacy 1 / (2 noise^2) spend (Bun & Steinke, 2016)."""
    accounting = _accounting()
    accountant = accounting.rdp.RdpAccountant()
    accountant.compose(accounting.ZCDpEvent(releases / (2 * noise**2)))
    return float(accountant.get_epsilon(delta))


def _accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError:
        raise ConfigError(
            "counting a privacy budget needs dp-accounting", hint="pip install 'fedprognos[privacy]'"
        ) from None
    return dp_accounting


@dataclass(frozen=True)
class Mechanism:
    """A way to add noise to sums.

    Parameters
    ----------
    apply
        From sums (N,), the most that one unit or row changes them by (Euclidean norm), the noise in multiples of that,
        and a seed, to noised sums. Every number gets noise of that deviation. Without a seed nobody can predict it.
    account
        From the noise, the number of releases and delta to the epsilon that they spend together.
    calibrate
        From epsilon, delta and the number of releases to the least noise; None: `account` is searched for it.
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
        least_noise = float(brentq(over, low, high, xtol=1e-6 * low))
        while over(least_noise) > 0:  # never less than what is promised
            least_noise *= 1 + 1e-6
        return least_noise

    return search


mechanisms: Shelf[Mechanism] = Shelf("privacy mechanism", __name__, "fedprognos.mechanisms")
MechanismName = Annotated[str, AfterValidator(mechanisms.valid_name)]
"""The name of a mechanism on the shelf, in options."""

__all__ = ["Mechanism", "MechanismName", "mechanisms"]


def gaussian_delta(epsilon: float, noise: float) -> float:
    """The delta of noise with this deviation, in multiples of the sensitivity (their Theorem 8).

    >>> round(gaussian_delta(1.0, 3.7306316), 9)
    1e-05
    """
    low, high = 1 / (2 * noise) - epsilon * noise, -1 / (2 * noise) - epsilon * noise
    return float(np.exp(log_ndtr(low)) - np.exp(epsilon + log_ndtr(high)))


def gaussian_noise(epsilon: float, delta: float) -> float:
    """The least deviation, in multiples of the sensitivity, that gives (epsilon, delta).

    >>> round(gaussian_noise(1.0, 1e-5), 3) < round(float(np.sqrt(2 * np.log(1.25 / 1e-5))), 3)
    True
    """
    return float(np.exp(brentq(lambda log: gaussian_delta(epsilon, np.exp(log)) - delta, -12.0, 20.0, xtol=1e-10)))


def noise_for(epsilon: float, delta: float, releases: int) -> float:
    """Noise of each of several releases that together spend epsilon: Gaussian ones add up as one of less noise."""
    return gaussian_noise(epsilon, delta) * float(np.sqrt(releases))


def add_gaussian_noise(values: FloatArray, bound: float, noise: float, seed: int | None) -> FloatArray:
    """Normal noise."""
    rng = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
    return np.asarray(values + noise * bound * rng.normal(size=values.shape))


mechanisms.add(Mechanism("gaussian", "Gaussian", 10, add_gaussian_noise, gaussian_epsilon, noise_for))


STEPS_IN_BITS = 20
"""A deviation has about 2^20 steps of the grid."""
FINEST = -50
"""The finest grid has steps of 2^-50, which the integers of masked sums hold exactly."""
LEAST_VARIANCE = 100
"""In squared steps."""
FETCHED_IN_BYTES = 65_536
Below = Callable[[int], int]
"""A uniform whole number from 0 to below its argument."""


def add_discrete_noise(values: FloatArray, bound: float, noise: float, seed: int | None) -> FloatArray:
    """Sums on the grid with noise of whole steps; rounding, too, is counted as something that a unit can change."""
    step = 2.0 ** max(math.floor(math.log2(noise * bound)) - STEPS_IN_BITS, FINEST)
    reach = bound + step * math.sqrt(values.size)
    variance = max(math.ceil((noise * reach / step) ** 2), LEAST_VARIANCE)
    below = secret_below() if seed is None else random.Random(seed).randrange  # noqa: S311 - a seed is for tests
    drawn = np.array([discrete_gaussian(variance, below) for _ in range(values.size)], dtype=np.float64)
    return np.asarray((np.rint(values / step) + drawn.reshape(values.shape)) * step)


def secret_below() -> Below:
    """Whole numbers from the system's random bytes, fetched many at a time."""
    held, at = b"", 0

    def below(end: int) -> int:
        nonlocal held, at
        bits = (end - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            if at + size > len(held):
                held, at = os.urandom(max(FETCHED_IN_BYTES, size)), 0
            number = int.from_bytes(held[at : at + size], "little") >> (8 * size - bits)
            at += size
            if number < end:
                return number

    return below


def discrete_gaussian(variance: int, below: Below) -> int:
    """A whole number k with probability in proportion to exp(-k^2 / (2 variance)) (their Algorithm 3)."""
    t = math.isqrt(variance) + 1
    while True:
        k = discrete_laplace(t, below)
        if true_with_exp((abs(k) * t - variance) ** 2, 2 * variance * t * t, below):
            return k


def discrete_laplace(scale: int, below: Below) -> int:
    """A whole number k with probability in proportion to exp(-|k| / scale) (their Algorithm 2)."""
    while True:
        rest = below(scale)
        if not true_with_exp(rest, scale, below):
            continue
        whole = 0
        while true_with_exp(1, 1, below):
            whole += 1
        k, negative = rest + scale * whole, below(2)
        if k or not negative:
            return -k if negative else k


def true_with_exp(above: int, under: int, below: Below) -> bool:
    """True with probability exp(-above / under), without rounding (their Algorithm 1)."""
    whole, above = divmod(above, under)
    return all(_true_with_small_exp(1, 1, below) for _ in range(whole)) and _true_with_small_exp(above, under, below)


def _true_with_small_exp(above: int, under: int, below: Below) -> bool:
    k = 1
    while below(under * k) < above:
        k += 1
    return k % 2 == 1


mechanisms.add(Mechanism("discrete", "discrete Gaussian", 20, add_discrete_noise, concentrated_epsilon, adds_up=True))
