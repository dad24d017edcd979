"""When to replace a machine, given what a breakdown and a planned replacement cost.

A life that is ended on purpose after t more cycles costs N(t) = R + (B - R) F(t) on average, where R is the cost of a
replacement, B that of a breakdown, and F(t) the chance of a breakdown before. It lasts D(t) = age + integral of 1 - F.
The best moment has the lowest cost per cycle, g = N / D (age replacement, Barlow & Proschan, 1965, with the predicted
distribution of this machine in place of the fleet's). Any other moment costs N(t) - g D(t) more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedprognos.networks import Calibration
from fedprognos.prognosis import AT_CAP, DISTRUSTED, MID_LIFE, WORN, Health
from fedprognos.service.due_dates import Clock

STEPS, SHOWN_STEPS = 200, 10


@dataclass(frozen=True)
class Costs:
    """What a breakdown and a planned replacement cost, in any currency."""

    breakdown: float
    replacement: float


@dataclass(frozen=True)
class WaitingCost:
    """What a replacement at another moment than the best costs more, and the chance of a breakdown before it."""

    position: float
    date: str | None
    cost: float
    breakdown: float


@dataclass(frozen=True)
class Replacement:
    """The best moment to replace a machine.

    Parameters
    ----------
    best
        The moment with the lowest cost per step of the position; None where that is later than the model can say.
    cost_rate
        That cost per step of the position.
    waiting
        Moments from now on, evenly spread.
    """

    best: WaitingCost | None
    cost_rate: float
    waiting: list[WaitingCost]


def best_replacement(
    costs: Costs, calibration: Calibration, health: Health | None, first: float, clock: Clock
) -> Replacement | None:
    """The best moment from a remaining life; None where the life cannot be trusted, or its age is not known.

    Parameters
    ----------
    first
        Position at which the life began.
    """
    unusable = {AT_CAP, MID_LIFE, WORN, *DISTRUSTED}
    if health is None or health.value is None or unusable.intersection(health.flags):
        return None
    scale = float(calibration.scale(np.array([health.value]))[0])
    farthest = health.value + 2 * scale
    if calibration.cap is not None:
        farthest = min(farthest, calibration.cap)
    ahead = np.linspace(0.0, farthest, STEPS + 1)
    failed = calibration.chance_below(health.value, ahead)
    failed = (failed - failed[0]) / max(1 - failed[0], 1e-9)  # the machine runs now
    alive = 1 - failed
    spent = costs.replacement + (costs.breakdown - costs.replacement) * failed
    lived = np.concatenate([[0.0], np.cumsum((alive[1:] + alive[:-1]) / 2 * np.diff(ahead))])
    lived += max(health.position - first, 0.0)
    rates = spent / np.maximum(lived, 1e-9)
    best = int(np.flatnonzero(rates <= rates.min() * (1 + 1e-9))[-1])
    extra = np.maximum(spent - rates[best] * lived, 0.0)

    def moment(k: int) -> WaitingCost:
        position = health.position + float(ahead[k])
        return WaitingCost(position, clock.date(position), float(extra[k]), float(failed[k]))

    shown = [moment(k) for k in range(0, STEPS + 1, STEPS // SHOWN_STEPS)]
    return Replacement(None if best == STEPS else moment(best), float(rates[best]), shown)
