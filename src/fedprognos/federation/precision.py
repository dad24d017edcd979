"""Weights in half the bytes for the way between coordinator and clients.

Only weights are float32 in a message; moments, sums and head statistics are float64 and never narrowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MessageError
from fedprognos.federation.federation_section import Wire

Array = NDArray[Any]


def narrowed(name: str, tensor: Array, wire: Wire) -> Array:
    """A weight as it travels: bfloat16 as the upper half of float32, in uint16, because NumPy has no such type.

    Raises
    ------
    MessageError
        Where a weight is beyond what the narrow type can hold.
    """
    if tensor.dtype != np.float32 or wire == "float32":
        return tensor
    with np.errstate(over="ignore"):
        narrow = tensor.astype(np.float16) if wire == "float16" else _upper_half(tensor)
    if not np.isfinite(widened(narrow)).all():
        raise MessageError(
            f"tensor {name} holds a number beyond {wire}",
            hint="set federation.wire = 'float32'; weights that large are a sign of training gone wrong",
        )
    return narrow


def widened(tensor: Array) -> Array:
    """A tensor as it is computed with: whatever was narrowed is float32 again."""
    if tensor.dtype == np.float16:
        return tensor.astype(np.float32)
    if tensor.dtype == np.uint16:
        return (tensor.astype(np.uint32) << 16).view(np.float32)
    return tensor


def as_travelled(weights: Mapping[str, NDArray[np.float32]], wire: Wire) -> dict[str, NDArray[np.float32]]:
    """Weights as the other side gets them.

    >>> as_travelled({"w": np.array([0.1], dtype=np.float32)}, "bfloat16")["w"].tolist()
    [0.10009765625]
    """
    return {name: widened(narrowed(name, np.asarray(array), wire)) for name, array in weights.items()}


def _upper_half(tensor: Array) -> Array:
    """The upper 16 bits, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(tensor).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
