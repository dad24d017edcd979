"""Folds of a client's units, for intervals from units that a model has not learnt from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MessageError
from fedprognos.features import WindowSet

MAX_FOLDS = 20


@dataclass(frozen=True)
class Fold:
    """One of several parts that a client's units are dealt into, for cross-conformal intervals."""

    fold: int = 0
    folds: int = 0

    def __post_init__(self) -> None:
        if not (self.folds == self.fold == 0 or (2 <= self.folds <= MAX_FOLDS and 0 <= self.fold < self.folds)):
            raise MessageError(f"no fold {self.fold} of {self.folds}")

    def members(self, windows: WindowSet, seed: int) -> NDArray[np.bool_]:
        """Which windows belong to units of this fold."""
        order = np.random.default_rng(seed).permutation(len(windows.unit_ids))
        return np.isin(windows.unit, order[self.fold :: self.folds])
