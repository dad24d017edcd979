"""Names for the arrays that all rooms pass on, and arrays that may be larger than memory."""

from __future__ import annotations

import tempfile
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Rows = NDArray[np.float32]
"""Scaled rows, as networks see them."""
MOST_IN_MEMORY = 64_000_000
"""Bytes of one array of rows that are kept in memory; a larger one is kept in a file."""
_ROWS_AT_ONCE = 20_000


class RowStack:
    """Blocks of rows that become one array (rows, columns).

    Beyond :data:`MOST_IN_MEMORY` it is a file without a name, mapped into memory: the system reads what is used, and
    lets it go where memory is short.

    Examples
    --------
    >>> stack = RowStack(np.float32)
    >>> stack.add(np.ones((2, 3)))
    >>> stack.add(np.zeros((1, 3)))
    >>> stack.whole().sum(axis=1)
    array([3., 3., 0.], dtype=float32)
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._blocks: list[NDArray[Any]] = []
        self._file: IO[bytes] | None = None
        self._rows = self._columns = 0

    def add(self, block: NDArray[Any]) -> None:
        """Rows below those so far."""
        self._rows, self._columns = self._rows + len(block), block.shape[1]
        self._blocks.append(np.ascontiguousarray(block, dtype=self._dtype))
        if self._file is None and self._rows * self._columns * self._dtype.itemsize > MOST_IN_MEMORY:
            self._file = _nameless_file()
        while self._file is not None and self._blocks:
            self._file.write(self._blocks.pop(0).data)

    def whole(self, order: IntArray | None = None) -> NDArray[Any]:
        """The array, its rows in this order; each block is let go as it is copied, so that none is held twice."""
        if self._file is not None:
            mapped = self._mapped(self._file)
            if order is None:
                return mapped
            in_order = _nameless_file()
            for a in range(0, len(order), _ROWS_AT_ONCE):
                in_order.write(mapped[order[a : a + _ROWS_AT_ONCE]].data)
            return self._mapped(in_order)
        whole, end = np.empty((self._rows, self._columns), self._dtype), self._rows
        while self._blocks:
            block = self._blocks.pop()
            whole[end - len(block) : end] = block
            end -= len(block)
        return whole if order is None else whole[order]

    def _mapped(self, file: IO[bytes]) -> NDArray[Any]:
        file.flush()
        mapped = np.memmap(file, self._dtype, "r+", shape=(self._rows, self._columns))
        file.close()
        return np.asarray(mapped)


def _nameless_file() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="fedprognos-rows-")
