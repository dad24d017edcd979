"""A reservoir: a fixed random recurrent body, the same everywhere from its size and inputs.

Leaky tanh units (echo state network, Jaeger 2001): h <- h + a (tanh(W_in x + W h) - h). Nothing is trained and nothing
is sent; with an exact head it is central training whatever the clients hold. Weights come from a hash, not from a
random number generator, and are scaled without an eigenvalue routine: they are the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LINKS = 10
"""Recurrent links of a unit."""
RADIUS = 0.9
"""Spectral radius: random signs on `LINKS` links have one near sqrt(LINKS), by the circular law."""
INPUT_SCALE = 0.6
LEAKS = (0.01, 1.0)
"""Slowest and fastest leak rate; the rates of the units are log-uniform between them."""
WARM_UP = 20
"""Steps on copies of the first row, before a unit's life begins."""


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Its weights: `inputs` (units, channels), `links` (units, units) sparse, `leaks` (units,)."""

    inputs: Rows
    links: csr_array
    leaks: Rows

    @property
    def units(self) -> int:
        return len(self.leaks)

    def start(self, first: Rows) -> Rows:
        """States (units, B) of B machines at rest on their first rows (B, channels)."""
        states = np.zeros((self.units, len(first)), dtype=np.float32)
        for _ in range(WARM_UP):
            states = self.step(states, first)
        return states

    def step(self, states: Rows, rows: Rows) -> Rows:
        """States (units, B) after one more row (B, channels) of each machine."""
        driven = np.tanh(self.inputs @ rows.T + self.links @ states)
        return np.asarray(states + self.leaks[:, None] * (driven - states), dtype=np.float32)


@lru_cache(maxsize=8)
def reservoir_of(units: int, channels: int) -> Reservoir:
    """The reservoir of a size.

    Examples
    --------
    >>> reservoir = reservoir_of(50, 3)
    >>> reservoir.inputs.shape, reservoir.links.shape, reservoir.links.nnz <= 50 * LINKS
    ((50, 3), (50, 50), True)
    """
    from scipy.sparse import csr_array  # loaded late: most networks have no reservoir

    draw = _Draw(f"fedprognos reservoir {units} {channels} 0")
    inputs = (draw.uniform(units * channels) * 2 - 1) * np.float64(INPUT_SCALE) * np.sqrt(3.0 / channels)
    columns = (draw.integers(units * LINKS) % np.uint64(units)).astype(np.int64)
    signs = (draw.integers(units * LINKS) & np.uint64(1)).astype(np.float64) * 2 - 1
    values = (signs * (RADIUS / np.sqrt(np.float64(LINKS)))).astype(np.float32)
    rows = np.repeat(np.arange(units), LINKS)
    links = csr_array((values, (rows, columns)), shape=(units, units))
    slowest, fastest = np.log2(LEAKS[0]), np.log2(LEAKS[1])
    leaks = np.exp2(slowest + (fastest - slowest) * draw.uniform(units))
    rounded = np.round(leaks * 2**20) / 2**20  # what exp2 rounds differently elsewhere must not show
    return Reservoir(inputs.reshape(units, channels).astype(np.float32), links, rounded.astype(np.float32))


class _Draw:
    """Numbers from a hash of a text, one after another."""

    def __init__(self, text: str) -> None:
        self._text, self._calls = text, 0

    def integers(self, count: int) -> NDArray[np.uint64]:
        """The next `count` 32-bit numbers."""
        self._calls += 1
        data = hashlib.shake_256(f"{self._text} {self._calls}".encode()).digest(4 * count)
        return np.frombuffer(data, dtype="<u4").astype(np.uint64)

    def uniform(self, count: int) -> FloatArray:
        """The next `count` numbers in [0, 1), exact in float64."""
        return self.integers(count).astype(np.float64) / 2**32
