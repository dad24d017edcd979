"""Names for the arrays that all rooms pass on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Rows = NDArray[np.float32]
"""Scaled rows, as networks see them."""
