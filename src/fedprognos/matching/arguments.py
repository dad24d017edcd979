"""What both ways of matching take: array types, the weights of one layer, and the check of whole numbers."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedprognos.errors import ConfigError

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
AnyArray: TypeAlias = NDArray[Any]
Booleans: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RecurrentWeights:
    """One recurrent layer as torch keeps it.

    ``weight_ih`` is ``(U H, inputs)``, ``weight_hh`` ``(U H, H)``, both biases ``(U H,)``.
    """

    weight_ih: ArrayLike
    weight_hh: ArrayLike
    bias_ih: ArrayLike
    bias_hh: ArrayLike


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """One linear layer as torch keeps it: ``weight`` is ``(H, inputs)``, ``bias`` ``(H,)``."""

    weight: ArrayLike
    bias: ArrayLike


def check_whole(name: str, value: int, least: int) -> None:
    """Refuse anything but a whole number of at least ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
