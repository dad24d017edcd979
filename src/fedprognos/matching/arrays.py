"""The array types of the matcher, in one place."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
AnyArray: TypeAlias = NDArray[Any]
Booleans: TypeAlias = NDArray[np.bool_]
