"""What is remembered between two rows, as arrays that can be kept and given back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


class RowMemory:
    """State that grows row by row; its arrays have the same shapes for every unit of a recipe.

    Parameters
    ----------
    scalars
        Names of attributes that are a number or a truth value, all of which fit a float64.
    arrays
        Names of attributes that are arrays.

    Examples
    --------
    >>> class Counter(RowMemory):
    ...     scalars = ("rows",)
    ...     rows = 0
    >>> one, other = Counter(), Counter()
    >>> one.rows = 7
    >>> other.restore(one.snapshot())
    >>> other.rows
    7
    """

    __slots__ = ()
    scalars: ClassVar[tuple[str, ...]] = ()
    arrays: ClassVar[tuple[str, ...]] = ()

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Everything remembered; nothing in it changes with the next row."""
        numbers = np.array([getattr(self, name) for name in self.scalars], dtype=np.float64)
        return {"numbers": numbers, **{name: getattr(self, name).copy() for name in self.arrays}}

    def restore(self, kept: Arrays) -> None:
        """Go on from a snapshot."""
        for name, value in zip(self.scalars, kept["numbers"], strict=True):
            setattr(self, name, type(getattr(self, name))(value))
        for name in self.arrays:
            if kept[name].shape != getattr(self, name).shape:
                raise ValueError(f"'{name}' has shape {kept[name].shape}, not {getattr(self, name).shape}")
            setattr(self, name, kept[name].astype(getattr(self, name).dtype))
