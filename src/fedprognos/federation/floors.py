"""What must be behind a number before it leaves a client: so many rows, so many units, and no row that stands out.

A row stands out where its leverage is near one: then a direction of the features' sums is that row and nothing else,
as when a crafted network lets a single window through. On honest networks (FD004, FD001 and the demo; own, concatenated
and reservoir features) the largest leverage was 0.05 to 0.77 in the parts that were trained on, and 0.13 to 0.99 in
parts kept out, of which some had hardly more rows than columns. Such a part is not told apart from the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import MessageError
from fedprognos.features import WindowSet
from fedprognos.networks import Network
from fedprognos.networks.outputs import LayerSums, output_sums
from fedprognos.networks.running import pieces

MIN_COUNT = 20
"""No statistic of fewer rows than this leaves a client, whatever it is asked."""
ROUNDING = 1e-13
"""Directions whose share of the features is below this are lost in the rounding of the sums that leave."""


class FloorError(MessageError):
    """Too little is behind a number, or a row stands out in it."""

    code = "floor"


@dataclass(frozen=True)
class Floors:
    """The least that is behind what leaves a client.

    Parameters
    ----------
    rows, units
        Rows or windows, and units they come from; see :meth:`of`.
    leverage
        The largest share that one row may have in any direction of the features; 1 does not look.
    """

    rows: int = MIN_COUNT
    units: int = 1
    leverage: float = 1.0

    def of(self, units: int) -> Floors:
        """These floors for a client of so many units: one that has a single unit counts its rows only."""
        return replace(self, units=1) if units == 1 else self

    def enough(self, windows: WindowSet | None) -> bool:
        """Whether a number about these windows may leave."""
        return windows is not None and len(windows) >= self.rows and len(np.unique(windows.unit)) >= self.units

    def check(self, windows: WindowSet) -> None:
        """Raise where a number about these windows may not leave."""
        if not self.enough(windows):
            raise FloorError(f"fewer than {self.rows} windows or {self.units} units")

    def look(self, network: Network, windows: WindowSet) -> None:
        """Raise where a single row would stand out in the statistics of a head."""
        if self.leverage >= 1:
            return
        module = network.module().eval()
        with module.in_blocks():
            rows = [_and_ones(piece.features()) for piece in pieces(module, windows)]
        if largest_leverage(np.sum([h.T @ h for h in rows], axis=0), rows) > self.leverage:
            raise FloorError("a single row would stand out in these statistics")

    def outputs(self, network: Network, windows: WindowSet) -> tuple[LayerSums, ...]:
        """Sums of the layers' outputs in which no time step stands out."""
        found = output_sums(network, windows)
        if self.leverage < 1:
            scales = [_directions(_with_ones(layer)) for layer in found]

            def look(layer: int, rows: FloatArray) -> None:
                h = _and_ones(rows)
                if len(h) and float(np.square(h @ scales[layer]).sum(axis=1).max()) > self.leverage:
                    raise FloorError("a single time step would stand out in these sums")

            output_sums(network, windows, look)
        return found


def _and_ones(rows: FloatArray) -> FloatArray:
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


def largest_leverage(hh: FloatArray, parts: Sequence[FloatArray]) -> float:
    """The largest leverage of any row, h' (H'H)^-1 h, over the directions that the sums can tell.

    >>> rows = np.array([[0.0, 1.0]] * 50 + [[0.3, 1.0]])  # one row alone has a first feature
    >>> round(largest_leverage(rows.T @ rows, [rows]), 6)
    1.0
    >>> rows = np.random.default_rng(0).normal(size=(500, 5))
    >>> largest_leverage(rows.T @ rows, [rows]) < 0.1
    True
    """
    scale = _directions(hh)
    return max((float(np.square(h @ scale).sum(axis=1).max()) for h in parts if len(h)), default=0.0)


def _directions(hh: FloatArray) -> FloatArray:
    """R with R R' the inverse of H'H, every column in its own measure; what rounding hides is left out."""
    size = np.sqrt(np.maximum(np.diag(hh), 0.0))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(hh / np.outer(size, size))
    kept = values > ROUNDING * len(values) * max(float(values[-1]), 0.0)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]) / size[:, None])


def _with_ones(layer: LayerSums) -> FloatArray:
    return np.block([[layer.S, layer.s[:, None]], [layer.s[None], np.array([[float(layer.n)]])]])
