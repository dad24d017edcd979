"""The analytic Gaussian mechanism (Balle & Wang, 2018): the least noise that gives (epsilon, delta)."""

from __future__ import annotations

import secrets

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from fedprognos.arrays import FloatArray
from fedprognos.federation.privacy.accountant import gaussian_epsilon
from fedprognos.federation.privacy.mechanisms import Mechanism, mechanisms


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


def apply(values: FloatArray, bound: float, noise: float, seed: int | None) -> FloatArray:
    """Normal noise."""
    rng = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
    return np.asarray(values + noise * bound * rng.normal(size=values.shape))


mechanisms.add(Mechanism("gaussian", "Gaussian", 10, apply, gaussian_epsilon, noise_for))
