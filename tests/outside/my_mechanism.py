"""Gaussian noise, after which sums are rounded to a tenth of its deviation: fewer digits leave."""

import math
import secrets

import numpy as np

import fedprognos as fp


def apply(values, bound, noise, seed):
    """Noise of deviation `noise * bound` on every number; rounding it afterwards costs no privacy."""
    rng = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
    step = noise * bound / 10
    return np.rint((values + noise * bound * rng.normal(size=values.shape)) / step) * step


def account(noise, releases, delta):
    """Concentrated privacy, turned into epsilon by the formula of Bun & Steinke (2016)."""
    rho = releases / (2 * noise**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


ROUNDED = fp.Mechanism("rounded", "rounded Gaussian", 90, apply, account)
