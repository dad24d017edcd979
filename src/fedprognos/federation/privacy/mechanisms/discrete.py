"""The discrete Gaussian mechanism (Canonne, Kamath & Steinke, 2020): noise of whole numbers, drawn exactly.

Sums are rounded to a grid, whose step is a power of two, and get a whole number of steps as noise. So they are exact in
the integers of masked sums, and the noise of several clients adds up there. By Kairouz et al. (2021, Theorem 1) the sum
of discrete Gaussians has the concentrated privacy of one of their total variance, but for 10 n exp(-pi^2 s^2) with s^2
the variance of one client's noise. It is 100 at the least, where that is less than 1e-400.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.federation.privacy.accountant import concentrated_epsilon
from fedprognos.federation.privacy.mechanisms import Mechanism, mechanisms

STEPS_IN_BITS = 20
"""A deviation has about 2^20 steps of the grid."""
FINEST = -50
"""The finest grid has steps of 2^-50, which the integers of masked sums hold exactly."""
LEAST_VARIANCE = 100
"""In squared steps."""
FETCHED_IN_BYTES = 65_536
Below = Callable[[int], int]
"""A uniform whole number from 0 to below its argument."""


def apply(values: FloatArray, bound: float, noise: float, seed: int | None) -> FloatArray:
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
            found = int.from_bytes(held[at : at + size], "little") >> (8 * size - bits)
            at += size
            if found < end:
                return found

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


mechanisms.add(Mechanism("discrete", "discrete Gaussian", 20, apply, concentrated_epsilon, adds_up=True))
