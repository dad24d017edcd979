"""How a cell ages over a campaign of cycles: fade, rests that give charge back, growing resistance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Ageing:
    """Life of a cell over K cycles, relative to a new one.

    The charge a cell holds is multiplied by `1 - film sqrt(x) - material x - knee ((x - x0) / (1 - x0))^2`,
    the last term from `x0 = knee_at` on, x being the cycle's share of the campaign: growth of a surface film,
    loss of active material, and a late acceleration that only some cells have.

    Parameters
    ----------
    health : (K,)
        That factor; it never rises.
    charge : (K,)
        Health with regeneration and scatter.
    resistance : (K,)
        Relative to the typical new cell of its chemistry.
    rests : (R,)
        Cycles, numbered from 1, before which the cell rested.
    """

    film: float
    material: float
    knee: float
    knee_at: float
    health: FloatArray
    charge: FloatArray
    resistance: FloatArray
    rests: IntArray


def age(rng: np.random.Generator, cycles: int, ambient_in_C: float) -> Ageing:
    """Draw the ageing of one cell; a warm one fades faster.

    >>> life = age(np.random.default_rng(0), cycles=100, ambient_in_C=24.0)
    >>> bool(life.health[0] == 1.0), bool(0.6 < life.health[-1] < 0.7), bool(life.resistance[-1] > 1.4)
    (True, True, True)
    """
    loss = rng.uniform(0.31, 0.39) + 0.0012 * (ambient_in_C - 24.0)
    film = loss * rng.uniform(0.2, 0.45)
    knee = loss * rng.uniform(0.2, 0.35) * float(rng.uniform() < 0.4)
    knee_at = rng.uniform(0.55, 0.75)
    material = loss - film - knee
    x = np.arange(cycles) / cycles
    late = np.maximum(x - knee_at, 0.0) / (1.0 - knee_at)
    health = 1.0 - film * np.sqrt(x) - material * x - knee * late**2
    given, rests = _regeneration(rng, cycles)
    growth = rng.uniform(1.6, 3.0)
    scatter = rng.normal(0.0, 1.0, (2, cycles))
    return Ageing(
        film=film,
        material=material,
        knee=knee,
        knee_at=knee_at,
        health=health,
        charge=health + given + 0.001 * scatter[0],
        resistance=rng.normal(1.0, 0.05) * (1.0 + growth * (1.0 - health)) * (1.0 + 0.003 * scatter[1]),
        rests=rests,
    )


def _regeneration(rng: np.random.Generator, cycles: int) -> tuple[FloatArray, IntArray]:
    """Charge given back by rests, as a share of the new cell's, and the cycles that follow a rest."""
    gaps = rng.integers(max(4, cycles // 12), max(6, cycles // 5), size=cycles // 4, endpoint=True)
    rests = np.cumsum(gaps)
    rests = rests[rests < cycles]
    height = rng.uniform(0.015, 0.04, len(rests))
    memory = rng.uniform(2.0, 7.0, len(rests))
    since = np.arange(cycles)[:, None] - rests
    given = np.where(since >= 0, height * np.exp(-np.maximum(since, 0) / memory), 0.0).sum(axis=1)
    return given, (rests + 1).astype(np.int64)
