"""What the network learns to predict: RUL, capacity, or capacity as a share of the rated one."""

from __future__ import annotations

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.fleet import Unit
from fedprognos.fleet.discharge import RATED


def health_labels(unit: Unit, relative: bool) -> FloatArray | None:
    """Uncapped labels of every point of a unit, None where unknown.

    Parameters
    ----------
    relative
        Divide by the unit's rated capacity (state of health): cells of different size become comparable.

    Examples
    --------
    >>> import numpy as np
    >>> cell = Unit("b", np.arange(4.0), np.ones((4, 1)), np.empty((4, 0)), target=np.array([1.8, 1.5]),
    ...             cycles=np.array([0, 2, 4]), cycle_numbers=np.array([1, 2]), attributes={RATED: 2.0})
    >>> health_labels(cell, relative=True)
    array([0.9 , 0.75])
    """
    labels = unit.labels()
    if labels is None or not relative:
        return labels
    rated = unit.attributes.get(RATED)
    if not isinstance(rated, int | float) or not rated > 0:
        raise DataError(
            "its rated capacity is not known, so its state of health is not either",
            where=f"unit {unit.id}",
            hint="give data.rated_capacity_in_Ah, or set recipe.label = 'absolute'",
        )
    return labels / rated
