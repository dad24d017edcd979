"""Residuals of a model on units it did not learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.features import Recipe, WindowSet
from fedprognos.networks.calibration import (
    even_points,
    residual_scale,
    residual_unit,
)
from fedprognos.networks.head import HeadStatistics, add_all, head_statistics, solve_head
from fedprognos.networks.network import Network
from fedprognos.networks.running import predict


@dataclass(frozen=True, eq=False)
class HeadSums:
    """What an exact head was solved from.

    Parameters
    ----------
    total
        Statistics of all clients together.
    strength
        Of the ridge.
    alike
        Whether every unit counts alike in them.
    share
        How much of its weight a client has in them.
    """

    total: HeadStatistics
    strength: float
    alike: bool = False
    share: float = 1.0

    def without(self, network: Network, parts: Sequence[WindowSet], recipe: Recipe) -> Network:
        """The network with the head that the others' windows give, without these."""
        own = add_all(head_statistics(network, part, recipe, alike=self.alike) for part in parts if len(part))
        return network.with_head(solve_head(self.total.without(own, self.share), self.strength))


@dataclass(frozen=True, eq=False)
class Residuals:
    """Predictions, residuals in units of their scale, and the unit each comes from, all (N,).

    Parameters
    ----------
    point
        Which window each is of: those of a short life come several times.
    squared
        Sum of the squares of the scaled residuals, labels capped as the model learns them.
    """

    predictions: FloatArray
    scaled: FloatArray
    unit: IntArray
    point: IntArray
    squared: float


def residuals(
    network: Network,
    windows: WindowSet,
    recipe: Recipe,
    sums: HeadSums | None = None,
    parts: Sequence[WindowSet] = (),
    stretch: float = 1.0,
) -> Residuals:
    """Residuals at points spread evenly over each unit's life, as many of every unit.

    Parameters
    ----------
    sums
        Every unit is left out of the head that these give; None where the network's own head has not seen the units.
    parts
        The windows behind the client's statistics, as it sent them.
    stretch
        How much larger errors are on units that the layers below the head have not learnt from. What labels beyond
        the cap are missed by does not grow.
    """
    places, predicted = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    for unit in np.unique(windows.unit).tolist():
        mine = np.flatnonzero(windows.unit == unit)
        at = mine[even_points(len(mine))]
        own = [part.select(part.unit == unit) for part in parts]
        told = network if sums is None else sums.without(network, own, recipe)
        places.append(at)
        predicted.append(predict(told, windows.select(at), recipe))
    chosen, values = np.concatenate(places), np.concatenate(predicted)
    points = windows.select(chosen)
    capped, scale = recipe.capped(points.labels), residual_scale(values, *residual_unit(recipe))
    errors = (values - capped) / scale
    scaled = stretch * errors + (capped - points.labels) / scale
    return Residuals(values, scaled, points.unit, chosen, float(np.square(errors).sum()))
