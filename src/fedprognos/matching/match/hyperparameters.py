"""Variances and prior mean of the matching model: their starting values, and SPAHM's estimates of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedprognos.errors import ConfigError
from fedprognos.matching.arguments import Floats, Indices
from fedprognos.matching.match.problem import MatchProblem

FLOOR = 1e-12


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """Prior mean ``(D,)``, noise variance and prior variance, both ``(1,)`` (isotropic) or both ``(D,)``.

    The prior mean is kept relative to the pooled mean of the clients' neurons, as all the vectors are.
    """

    mu0: Floats
    sigma: Floats
    sigma0: Floats

    @property
    def isotropic(self) -> bool:
        return self.sigma.size == 1

    def over(self, dims: Indices | slice) -> Hyperparameters:
        """The part that concerns these dimensions."""
        if self.isotropic:
            return Hyperparameters(self.mu0[dims], self.sigma, self.sigma0)
        return Hyperparameters(self.mu0[dims], self.sigma[dims], self.sigma0[dims])


def start(problem: MatchProblem, sigma: ArrayLike | None, sigma0: ArrayLike | None, estimate: bool) -> Hyperparameters:
    """Given variances, or 0.5x (noise) and 1x (prior) the pooled variance of all client neurons.

    The prior mean starts at the pooled mean when it is to be estimated and is zero otherwise, as in PFNM.
    """
    given = [checked_variance(n, v, problem.dimensions) for n, v in (("sigma", sigma), ("sigma0", sigma0))]
    isotropic = all(value is None or value.size == 1 for value in given)
    pooled = np.array([problem.scale]) if isotropic else problem.variance
    noise, prior = (factor * pooled if v is None else v for v, factor in zip(given, (0.5, 1.0), strict=True))
    if not isotropic:
        noise, prior = (np.broadcast_to(value, problem.dimensions).copy() for value in (noise, prior))
    mu0 = np.zeros(problem.dimensions) if estimate else -problem.centre
    return Hyperparameters(mu0, noise, prior)


def checked_variance(name: str, value: ArrayLike | None, dimensions: int) -> Floats | None:
    """A positive variance of shape ``(1,)`` or ``(D,)``."""
    if value is None:
        return None
    variance = np.atleast_1d(np.asarray(value, np.float64))
    if variance.shape not in {(1,), (dimensions,)}:
        raise ConfigError(f"{name} has shape {variance.shape}", hint=f"pass one number, or {dimensions} of them")
    if not (np.isfinite(variance) & (variance > 0)).all():
        raise ConfigError(f"{name} must be a positive variance, got {value!r}")
    return variance


def estimated(old: Hyperparameters, problem: MatchProblem, seen: Floats, sums: Floats) -> Hyperparameters:
    """Moment estimates from the present partition; the old ones where no neuron is shared (N = L).

    With N client neurons, L global ones, n of them assigned to each with sum of squares Q and mean m:
    mu0 = mean(m), sigma = sum(Q - n m^2) / (N - L), sigma0 = mean((m - mu0)^2) - sigma mean(1/n). Both variances are
    at least 1e-12 of the pooled one.

    ``seen`` is ``(L, 1)`` or ``(L, D)``, the numbers n; ``sums`` is ``(L, D)``, the sums n m.
    """
    held = np.broadcast_to(seen > 0, sums.shape)
    share = 1.0 / np.maximum(seen, 1)
    means = sums * share
    neurons = held.sum(axis=0)
    freedom = problem.observed - neurons
    if freedom.sum() <= 0:
        return old
    within = problem.squares - (sums * means).sum(axis=0)
    mu0 = np.where(neurons > 0, means.sum(axis=0) / np.maximum(neurons, 1), old.mu0)
    spread = (np.square(means - mu0) * held).sum(axis=0)
    inverse = (share * held).sum(axis=0)
    if old.isotropic:
        floor = np.array([FLOOR * problem.scale])
        sigma = np.maximum(within.sum() / freedom.sum(), floor)
        sigma0 = np.maximum((spread.sum() - sigma * inverse.sum()) / neurons.sum(), floor)
    else:
        floor = FLOOR * problem.variance
        sigma = np.maximum(np.where(freedom > 0, within / np.maximum(freedom, 1), old.sigma), floor)
        sigma0 = np.maximum((spread - sigma * inverse) / np.maximum(neurons, 1), floor)
    return Hyperparameters(mu0, sigma, sigma0)
