"""Personal heads by partial pooling: slopes that clients share, each one's deviations from them, averaged strengths.

Client j has centred sums S_j = X'X / d and c_j = X'y / d of its d features and its labels. Shared slopes b and its own
deviations e_j minimise, over all clients,

    sum_j |y - X (b + e_j)|^2 / d + strength |b|^2 + sum_j |e_j|^2 / freedom.

Both have closed forms: the coordinator solves for b from sums alone, each site for its own e_j. How strongly to hold
slopes back is not chosen: a site averages the heads of all strengths, weighted by how each fitted to its earlier points
predicts its later ones. That average is again one linear head. For a single unit, recent points count more than
old ones, because the head is used on later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.features import Recipe, WindowSet
from fedprognos.networks.head import HeadStatistics, mean_squared_error, weighted_statistics
from fedprognos.networks.network import Network

CUTS = (0.7, 0.8, 0.9)
"""Shares of a client's points that are fitted to, to predict the rest."""
SHARPNESS = 16.0
"""How much the weight of a strength falls with the logarithm of its error."""
FADE = 0.3
"""Share of a unit's points after which the weight of earlier ones has fallen by e."""
MANY_COLUMNS = 400
"""Heads that see more columns try fewer cuts and strengths, so that messages stay below a few MB."""


@dataclass(frozen=True, eq=False)
class Grid:
    """What is tried: shares of the points, strengths (s,) of the shared slopes, freedoms (f,) of the own ones.

    A freedom of 0 leaves a client with the shared slopes and an intercept of its own.
    """

    cuts: tuple[float, ...]
    strengths: FloatArray
    freedoms: FloatArray

    @staticmethod
    def for_columns(columns: int) -> Grid:
        """The grid for a head with this number of columns.

        >>> len(Grid.for_columns(38).strengths), len(Grid.for_columns(38).freedoms), Grid.for_columns(1000).cuts
        (13, 14, (0.8,))
        """
        step = 1.0 if columns > MANY_COLUMNS else 0.5
        strengths = 10.0 ** np.arange(-5.0, 1.01, step)
        return Grid((0.8,) if columns > MANY_COLUMNS else CUTS, strengths, np.append(0.0, 1 / strengths[::-1]))


def judged_on_held_out(network: Network, validation_fraction: float) -> bool:
    """True if strengths are judged on rows kept out of training: trained layers look too good on their own rows."""
    return bool(network.spec.widths) and validation_fraction > 0


def pooled_fits(network: Network, validation_fraction: float) -> int:
    """Number of nested parts of a client's points that are fitted, the whole included."""
    if judged_on_held_out(network, validation_fraction):
        return 2
    return len(Grid.for_columns(network.spec.features).cuts) + 1


@dataclass(frozen=True, eq=False)
class CentredSums:
    """What pooling needs of some points.

    Parameters
    ----------
    n
        Points.
    scatter : (d (d + 1) / 2,)
        Upper triangle of S, row by row.
    slope : (d,)
        c.
    """

    n: int
    scatter: FloatArray
    slope: FloatArray

    @staticmethod
    def from_statistics(statistics: HeadStatistics) -> CentredSums:
        """From sums with a ones column last."""
        s, c = centred(statistics)
        return CentredSums(statistics.n, s[np.triu_indices(len(c))], c)

    def check(self, columns: int) -> CentredSums:
        """These sums, or ValueError if they do not have `columns` columns: any site may have sent them."""
        if self.n < 1 or self.slope.shape != (columns,) or self.scatter.shape != (columns * (columns + 1) // 2,):
            raise ValueError(f"centred sums of {columns} columns expected")
        return self

    def matrix(self) -> FloatArray:
        """S itself."""
        s = np.zeros((len(self.slope), len(self.slope)))
        s[np.triu_indices(len(s))] = self.scatter
        return s + np.triu(s, 1).T


def centred(statistics: HeadStatistics) -> tuple[FloatArray, FloatArray]:
    """S and c of some points."""
    sums, width = statistics.hh[-1, :-1], max(len(statistics.hy) - 1, 1)
    s = (statistics.hh[:-1, :-1] - np.outer(sums, sums) / statistics.n) / width
    return s, (statistics.hy[:-1] - sums * (statistics.hy[-1] / statistics.n)) / width


def shared_slopes(clients: Sequence[CentredSums], grid: Grid) -> FloatArray:
    """Slopes b for every freedom and strength (f, s, d), from everybody's sums."""
    spectra = [(*np.linalg.eigh(sums.matrix()), sums.slope) for sums in clients]
    slopes = []
    for freedom in grid.freedoms:
        left, right = np.zeros_like(spectra[0][1]), np.zeros_like(spectra[0][2])
        for values, vectors, slope in spectra:
            hold = 1 / (1 + freedom * np.maximum(values, 0.0))
            left += (vectors * (values * hold)) @ vectors.T
            right += vectors @ (hold * (vectors.T @ slope))
        values, vectors = np.linalg.eigh(left)
        scaled = (vectors.T @ right) / (np.maximum(values, 0.0) + grid.strengths[:, None])
        slopes.append(scaled @ vectors.T)
    return np.stack(slopes)


def own_slopes(statistics: HeadStatistics, freedoms: FloatArray, shared: FloatArray) -> FloatArray:
    """A client's slopes b + e (f, s, d) from the shared ones."""
    s, c = centred(statistics)
    values, vectors = np.linalg.eigh(s)
    hold = 1 / (1 + freedoms[:, None] * np.maximum(values, 0.0))
    slopes = (shared @ vectors + (freedoms[:, None] * (vectors.T @ c))[:, None]) * hold[:, None]
    return np.asarray(slopes @ vectors.T)


def with_levels(statistics: HeadStatistics, slopes: FloatArray) -> FloatArray:
    """Heads (..., d + 1) of slopes (..., d), each with the intercept that fits these points best."""
    level = (statistics.hy[-1] - slopes @ statistics.hh[-1, :-1]) / statistics.n
    return np.concatenate([slopes, level[..., None]], axis=-1)


@dataclass(frozen=True, eq=False)
class Fits:
    """Statistics of a client's points before each cut (the last cut holds all), and after each cut but the last.

    Parameters
    ----------
    nested
        True if the difference of two fits is the sums of the points between their cuts, as it is without weights.
    units
        Number of units in each fit, where there are several units.
    """

    fitted: Sequence[HeadStatistics]
    later: Sequence[HeadStatistics]
    nested: bool = True
    units: Sequence[int] = ()

    def sendable(self, rows: int, units: int = 1, *, apart: bool = False) -> tuple[CentredSums | None, ...]:
        """The sums of each fit that may leave the client; None for those that must not.

        Sums of fewer than `rows` points never leave. If the difference of two sums would belong to fewer points than
        that, only the sums of all points leave.

        Parameters
        ----------
        units, apart
            Demand that differences belong to at least this many units; and, with `apart`, to `rows` points even
            where weights blur them.
        """
        sizes, last = [statistics.n for statistics in self.fitted], len(self.fitted) - 1
        few = self.nested and (np.diff([0, *sizes]) < rows).any()
        few = few or (apart and (np.diff([0, *self.units]) < units).any())
        sent, least = {last}, sizes[last]
        for k in range(-1 if few else last - 1, -1, -1):
            if not apart or self.nested or least - sizes[k] >= rows or sizes[k] == least:
                sent, least = {*sent, k}, sizes[k]
        return tuple(
            CentredSums.from_statistics(f) if f.n >= rows and k in sent else None for k, f in enumerate(self.fitted)
        )

    def head(self, freedoms: FloatArray, shared: Mapping[int, FloatArray]) -> FloatArray:
        """The client's own head (d + 1,), bias last: the average over all strengths.

        If there is nothing to judge strengths on, it takes the shared slopes of the middle strength.

        Parameters
        ----------
        shared
            Shared slopes (f, s, d) fitted to all clients' points up to a cut, by its number. Those of the last are
            always there, others may be missing.
        """
        errors = []
        for k in sorted(shared)[:-1]:
            if self.fitted[k].n and self.later[k].n:
                heads = with_levels(self.fitted[k], own_slopes(self.fitted[k], freedoms, shared[k]))
                mse = [mean_squared_error(self.later[k], head) for head in heads.reshape(-1, heads.shape[-1])]
                errors.append(np.log(np.maximum(mse, 1e-12)))
        everything, last = self.fitted[-1], shared[len(self.fitted) - 1]
        slopes = own_slopes(everything, freedoms, last)
        if not errors:
            return with_levels(everything, last[int(np.argmin(freedoms)), last.shape[1] // 2])
        mean = np.mean(errors, axis=0)
        weights = np.exp(-SHARPNESS * (mean - mean.min()))
        return with_levels(everything, (weights / weights.sum()) @ slopes.reshape(-1, last.shape[-1]))


def forward_fits(network: Network, windows: WindowSet, recipe: Recipe, seed: int) -> Fits:
    """Split a client's points into earlier and later ones: by time for a single unit, else by whole units.

    Parts are empty if there are fewer points, or units, than cuts.
    """
    cuts, present = Grid.for_columns(network.spec.features).cuts, np.unique(windows.unit)
    single = len(present) == 1
    if single:
        groups = np.argsort(windows.position, kind="stable")[:, None]
    else:
        units = np.random.default_rng(seed).permutation(present)
        groups = [np.flatnonzero(windows.unit == u) for u in units]  # type: ignore[assignment]
    empty = np.empty(0, dtype=np.int64)
    fitted, later, sizes = [], [], []
    for cut in (*cuts, 1.0):
        at = len(groups) if cut == 1.0 else min(max(round(cut * len(groups)), 1), len(groups) - 1)
        sizes.append(at)
        before, after = np.concatenate([empty, *groups[:at]]), np.concatenate([empty, *groups[at:]])
        fitted.append(_weights(len(windows), before, recent(len(before)) if single else np.ones(len(before))))
        later.append(_weights(len(windows), after, np.ones(len(after))))
    statistics = weighted_statistics(network, windows, recipe, [*fitted, *later[:-1]])
    return Fits(statistics[: len(cuts) + 1], statistics[len(cuts) + 1 :], not single, () if single else sizes)


def recent(count: int) -> FloatArray:
    """Weights (count,) of points in the order of time, adding up to their number.

    >>> recent(3).round(2).tolist()
    [0.23, 0.69, 2.09]
    """
    weights = np.exp((np.arange(count) - count) / (FADE * max(count, 1)))
    return np.asarray(weights * (count / weights.sum())) if count else weights


def _weights(count: int, index: IntArray, values: FloatArray) -> FloatArray:
    weights = np.zeros(count)
    weights[index] = values
    return weights
