"""Floors: how many rows and units must be behind a number before it leaves a client, and no row may stand out.

A row stands out if its leverage is near one: a direction of the features' sums then holds that row and nothing else.
A crafted network that lets a single window through does this. On honest networks (FD004, FD001 and the demo, with
features of a client's, a concatenated and a reservoir network) the largest leverage was 0.05 to 0.77 in the parts that
were trained on. It was 0.13 to 0.99 in parts kept out: some of them had hardly more rows than columns. A client does
not send such a part separately.

A gate for a few rows has a smaller leverage. It is seen by the effective number of rows behind each column, which is
(sum of d^2)^2 / sum of d^4 for deviations d: k equal rows have k. Honest columns had 15 or more where trained on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import MessageError
from fedprognos.features import CountedRows, Recipe, WindowSet
from fedprognos.fleet import Fleet
from fedprognos.matching import OutputSums
from fedprognos.networks import Network, Residuals, alike_weights, neighbours_joined, output_sums, pieces

MIN_COUNT = 20
"""No statistic of fewer rows than this leaves a client, whatever it is asked."""
ROUNDING = 1e-13
"""Directions whose share of the features is below this are lost in the rounding of the sums that leave."""


EFFECTIVE_SHARE = 0.5
"""The effective number of rows behind a column is at least this share of the floor of rows; honest ones had 0.75."""
FEWEST_SHARE = 5.0
"""In a small part it is at least one row in so many; rows with a normal distribution have one in three."""


class FloorError(MessageError):
    """Too little is behind a number, or a row stands out in it."""

    code = "floor"


@dataclass(frozen=True)
class Floors:
    """The least that is behind what leaves a client.

    Parameters
    ----------
    rows, units
        Rows or windows, and units they come from; see :meth:`for_fleet_of`.
    leverage
        The largest share that a row may have in any direction of the features; 1 turns the check off.
    parts
        Whether parts of an answer must have as much behind them, too: each count of a histogram, and what two sums
        differ by.
    """

    rows: int = MIN_COUNT
    units: int = 1
    leverage: float = 1.0
    parts: bool = False

    def for_fleet_of(self, units: int) -> Floors:
        """These floors for a client with so many units. With a single unit, only rows are counted."""
        return replace(self, units=1) if units == 1 else self

    @property
    def counted(self) -> CountedRows | None:
        """Which rows count in what leaves: those that all sums can be about; None where parts do not matter."""
        return CountedRows(self.rows, self.units) if self.parts else None

    def points(self, windows: WindowSet, fleet: Fleet, recipe: Recipe) -> WindowSet:
        """The histories of a fleet that count."""
        return windows if self.counted is None else self.counted.points_of(windows, fleet, recipe.conditions)

    def enough(self, windows: WindowSet | None) -> bool:
        """Whether a number about these windows may leave."""
        return windows is not None and len(windows) >= self.rows and len(np.unique(windows.unit)) >= self.units

    def check(self, windows: WindowSet) -> None:
        """Raise where a number about these windows may not leave."""
        if not self.enough(windows):
            raise FloorError(f"a statistic has fewer than {self.rows} windows or {self.units} units behind it")

    def histogram(self, residuals: Residuals, ranges: FloatArray, edges: FloatArray) -> tuple[IntArray, IntArray]:
        """Residuals counted by range of the prediction and between edges, and each range's units.

        Ranges of fewer than `units` units join their neighbours. With `parts`, every count is of residuals at `rows`
        points of `units` units at the least. Fewer are counted with neighbours nearer to zero, at the outermost place
        of them all: intervals become wider by it, never narrower. Ranges that have not enough for two tails join
        others, too.

        Returns
        -------
        counts, units
            (ranges + 1, edges + 1) and (ranges + 1,).
        """
        range_of, unit = np.searchsorted(ranges, residuals.predictions, side="right"), residuals.unit
        places = coarse_places(residuals.scaled, edges) if self.parts else np.searchsorted(edges, residuals.scaled)
        middle = int(np.searchsorted(edges, 0.0))

        def counted(group: Sequence[int]) -> dict[int, int]:
            inside = np.isin(range_of, group)
            return self._counted(places[inside], unit[inside], residuals.point[inside], middle)

        counts = np.zeros((len(ranges) + 1, len(edges) + 1), dtype=np.int64)
        units = np.zeros(len(counts), dtype=np.int64)
        for group in neighbours_joined(len(counts), lambda group: len(counted(group)), 1):
            if count_at_place := counted(group):
                k = max(group, key=lambda k: len(np.unique(unit[range_of == k])))
                counts[k, list(count_at_place)] = list(count_at_place.values())
                units[k] = len(np.unique(unit[np.isin(range_of, group)]))
        return counts, units

    def _counted(self, places: IntArray, unit: IntArray, point: IntArray, middle: int) -> dict[int, int]:
        """The number of residuals at each place; empty if too few rows or units are behind them."""

        def enough(group: Sequence[int]) -> bool:
            inside = np.isin(places, group)
            return len(np.unique(point[inside])) >= self.rows and len(np.unique(unit[inside])) >= self.units

        def groups(order: Iterable[int]) -> list[list[int]]:
            """Neighbours joined until each group has enough behind it; the last group holds the rest."""
            joined: list[list[int]] = [[]]
            for k in order:
                joined[-1].append(k)
                if enough(joined[-1]):
                    joined.append([])
            return joined

        present: list[int] = np.unique(places).tolist()
        if not self.parts:
            enough_units = len(np.unique(unit)) >= self.units
            return {k: int((places == k).sum()) for k in present} if enough_units else {}
        if present == [0]:  # there are no edges
            return {0: len(places)} if enough(present) else {}
        low, high = groups(present)[0], groups(present[::-1])[0]
        if not (enough(low) and enough(high)) or low[-1] >= high[-1]:
            return {}
        between = present[len(low) : len(present) - len(high)]
        counts: dict[int, int] = {}
        for tail, order in (
            (low, [k for k in between if k <= middle]),
            (high, [k for k in between[::-1] if k > middle]),
        ):
            *whole, rest = groups(order)
            whole = [tail, *whole]
            whole[-1] += rest  # towards zero from the last group: it is counted there
            counts |= {group[0]: int(np.isin(places, group).sum()) for group in whole}
        return counts

    def check_leverage(self, network: Network, windows: WindowSet, *, alike: bool = False) -> None:
        """Raise if the statistics of a head would reveal a single row, or a few rows that differ in a column.

        Parameters
        ----------
        alike
            Whether every unit has the same weight: rows of a short unit then weigh more.
        """
        if self.leverage >= 1:
            return
        module = network.module().eval()
        with module.in_blocks():
            features_of_rows = [(piece.index, _and_ones(piece.features())) for piece in pieces(module, windows)]
        unit = windows.unit[np.concatenate([index for index, _ in features_of_rows])]
        if few_apart(np.concatenate([h for _, h in features_of_rows]), unit, self.rows, self.units):
            raise FloorError("a feature has the same value in all but a few rows")
        weight = np.sqrt(alike_weights(windows)) if alike else np.ones(len(windows))
        rows = [h * weight[index, None] for index, h in features_of_rows]
        hh = np.sum([h.T @ h for h in rows], axis=0)
        if largest_leverage(hh, rows) > self.leverage:
            raise FloorError("the leverage of a single row is too large")
        if least_effective_rows(hh, rows) < min(EFFECTIVE_SHARE * self.rows, len(windows) / FEWEST_SHARE):
            raise FloorError("too few rows stand behind a feature")

    def outputs(self, network: Network, windows: WindowSet) -> tuple[OutputSums, ...]:
        """Sums of the layers' outputs; raise if a single time step stands out in them."""
        layer_sums = output_sums(network, windows)
        if self.leverage < 1:
            scales = [_directions(_with_ones(layer)) for layer in layer_sums]

            def check_steps(layer: int, rows: FloatArray) -> None:
                h = _and_ones(rows)
                if len(h) and float(np.square(h @ scales[layer]).sum(axis=1).max()) > self.leverage:
                    raise FloorError("the leverage of a single time step is too large")

            output_sums(network, windows, check_steps)
        return layer_sums


def coarse_places(scaled: FloatArray, edges: FloatArray) -> IntArray:
    """Places of residuals (N,) between the edges, rounded away from zero in steps of a tenth: this hides the largest.

    >>> coarse_places(np.array([-9.0, -0.01, 0.011, 0.5, 9.0]), np.round(np.linspace(-3, 3, 301), 4)).tolist()
    [0, 150, 151, 177, 301]
    """
    middle, last = int(np.searchsorted(edges, 0.0)), len(edges)
    steps = [0]
    while steps[-1] < max(middle, last - middle):
        steps.append(max(steps[-1] + 1, math.ceil(steps[-1] * 1.1)))
    away = np.searchsorted(edges, scaled) - middle
    outwards = np.array(steps)[np.searchsorted(steps, np.abs(away))]
    return np.asarray(np.clip(middle + np.sign(away) * outwards, 0, last), dtype=np.int64)


def few_apart(rows: FloatArray, unit: IntArray, least: int, least_units: int) -> bool:
    """True if fewer than `least` rows (N, C), or rows of fewer units (N,), differ from a column's most common value.

    >>> rows, unit = np.zeros((50, 1)), np.arange(50) % 10
    >>> rows[:25] = 7.0
    >>> few_apart(rows, unit, 20, 5), few_apart(rows, unit, 26, 5), few_apart(rows, np.arange(50) // 10, 20, 4)
    (False, True, True)
    """
    middle = np.partition(rows, len(rows) // 2, axis=0)[len(rows) // 2]
    apart = rows != middle
    some = np.flatnonzero(apart.any(axis=0) & (2 * apart.sum(axis=0) <= len(rows)))
    return any(apart[:, c].sum() < least or len(np.unique(unit[apart[:, c]])) < least_units for c in some)


def _and_ones(rows: FloatArray) -> FloatArray:
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


def largest_leverage(hh: FloatArray, parts: Sequence[FloatArray]) -> float:
    """The largest leverage of any row, h' (H'H)^-1 h, over the directions that rounding does not hide.

    >>> rows = np.array([[0.0, 1.0]] * 50 + [[0.3, 1.0]])  # only the last row has a first feature
    >>> round(largest_leverage(rows.T @ rows, [rows]), 6)
    1.0
    >>> rows = np.random.default_rng(0).normal(size=(500, 5))
    >>> largest_leverage(rows.T @ rows, [rows]) < 0.1
    True
    """
    scale = _directions(hh)
    return max((float(np.square(h @ scale).sum(axis=1).max()) for h in parts if len(h)), default=0.0)


def least_effective_rows(hh: FloatArray, parts: Sequence[FloatArray]) -> float:
    """The least effective number of rows behind a column, and behind what no other column explains of it.

    The second finds a gate that is hidden in another column: their difference is the gate. The last column is the
    constant.

    >>> rows = np.concatenate([np.random.default_rng(0).normal(size=(500, 2)), np.ones((500, 1))], axis=1)
    >>> least_effective_rows(rows.T @ rows, [rows]) > 100
    True
    >>> rows[:, 1] = rows[:, 0] + 1e-3 * (np.arange(500) < 4)  # the difference of both columns is four rows
    >>> round(least_effective_rows(rows.T @ rows, [rows]))
    4
    """
    scale, mean = _directions(hh), hh[-1, :-1] / hh[-1, -1]
    others = (scale @ scale.T)[:, :-1]
    powers = np.zeros((2, 2, len(mean)))
    for h in parts:
        for k, deviations in enumerate((h[:, :-1] - np.outer(h[:, -1], mean), h @ others)):
            squares = np.square(deviations)
            powers[k] += squares.sum(axis=0), np.square(squares).sum(axis=0)
    # A column without spread, and directions that rounding hides, say nothing.
    spread = np.diag(hh)[:-1] - mean**2 * hh[-1, -1] > ROUNDING * np.diag(hh)[:-1]
    squares, fourths = powers[:, 0, spread], powers[:, 1, spread]
    return float(np.min(np.square(squares) / np.maximum(fourths, 1e-300), initial=np.inf))


def _directions(hh: FloatArray) -> FloatArray:
    """R with R R' the inverse of H'H, every column in its own measure; what rounding hides is left out."""
    size = np.sqrt(np.maximum(np.diag(hh), 0.0))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(hh / np.outer(size, size))
    kept = values > ROUNDING * len(values) * max(float(values[-1]), 0.0)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]) / size[:, None])


def _with_ones(layer: OutputSums) -> FloatArray:
    return np.block([[layer.S, layer.s[:, None]], [layer.s[None], np.array([[float(layer.n)]])]])
