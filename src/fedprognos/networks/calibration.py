"""Prediction intervals by conformal prediction, from histograms of residuals, one for each range of predictions.

Residuals are taken from units the model did not learn from, at points spread evenly over each unit's life. Points begin
where a quarter more than the cap is left: long before, every model says "the cap" and is right, which would make it
look surer near the cap than it is. How far off a prediction may be depends on what it says: little near the end, a lot
far from it. So every range of predictions has residuals of its own (Mondrian conformal prediction, Vovk et al., 2005),
measured in units of `scale(prediction)`. Between ranges a kernel over the prediction mixes them, so that intervals
change smoothly. Residuals of one unit are alike; what bounds the error of a quantile is the number of units (pooling
over groups, Dunn et al., 2022). Histograms add up, so sites can calibrate together without sending a residual.

A remaining life beyond the cap cannot be told from the cap. Labels are capped, and an interval that reaches the cap has
no upper end: it means "so much or more". Nothing can be missed above it, so all that may be missed lies below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import BundleError
from fedprognos.features import Recipe, WindowSet
from fedprognos.networks.head import HeadStatistics, add_all, head_statistics, solve_head
from fedprognos.networks.network import Network

FLOOR = 0.1
"""RUL residuals are measured in units of the prediction plus this share of the largest label learnt."""
EDGES = tuple(np.round(np.linspace(-2.0, 2.0, 61), 4).tolist())
"""Edges between which scaled residuals are counted."""
RANGES = tuple(k / 12 for k in range(1, 12))
"""Where one range of RUL predictions ends and the next begins, as shares of the largest label learnt."""
BANDWIDTH = 0.064
"""Standard deviation of the kernel over RUL predictions, as a share of the largest label learnt: 8 cycles of 125."""
HALF_A_STEP = 0.5
"""An upper end within half a step of the cap is the cap."""
POINTS = 200
"""Points of every unit at which residuals are taken."""
FARTHEST = 1.25
"""They are taken where the label is at most this many times the cap."""
MIN_UNITS = 20
"""A range with residuals of fewer units is put together with its neighbour."""

USUAL_STRETCH = 1.1
"""How much larger errors usually are on units that the layers never saw. Chosen on training engines of FD001 and FD004
that draws of owners kept out (`python -m studies intervals`, docs/results/intervals.md)."""
KEPT_OUT = "kept_out"
"""Name of the tensor in a head's file that says how well it does on machines that it was not fitted to."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**12)]


def residual_scale(predictions: FloatArray, unit: float, growing: bool) -> FloatArray:
    """What residuals are measured in at each prediction."""
    return predictions + FLOOR * unit if growing else np.full_like(predictions, unit)


def residual_unit(recipe: Recipe) -> tuple[float, bool]:
    """What a recipe's residuals are measured in, and whether they grow with the prediction."""
    if recipe.task == "rul":
        return (recipe.cap or recipe.label_mean + 2 * recipe.label_std), True
    return recipe.label_std, False


def stretches(predictions: FloatArray, recipe: Recipe, halfway: float) -> FloatArray:
    """Factors of errors for units that the layers never saw; those of RUL grow with the prediction, from 1 at the end.

    Near the end wear is plain in every unit. Long before it, layers know by heart how the units that they saw go on.

    >>> from types import SimpleNamespace
    >>> stretches(np.array([0.0, 60.0, 120.0, 130.0]), SimpleNamespace(task="rul", cap=120.0), 1.5).tolist()
    [1.0, 1.5, 2.0, 2.0]
    """
    unit, growing = residual_unit(recipe)
    return 1 + (halfway - 1) * (2 * np.clip(predictions / unit, 0.0, 1.0) if growing else np.ones_like(predictions))


def prediction_ranges(recipe: Recipe) -> tuple[float, ...]:
    """Where ranges of predictions meet, in the label's unit; capacities are all one range."""
    unit, growing = residual_unit(recipe)
    return tuple(float(share * unit) for share in RANGES) if growing else ()


def even_points(windows: int) -> IntArray:
    """Which windows of a unit residuals are taken at: the same number for every unit, however long it lives.

    >>> even_points(100)[:4].tolist(), len(even_points(3))
    ([0, 0, 1, 1], 200)
    """
    return np.floor((np.arange(POINTS) + 0.5) / POINTS * windows).astype(np.int64)


def neighbours_joined(ranges: int, size: Callable[[Sequence[int]], int], least: int) -> list[list[int]]:
    """Ranges put together from the first on until each group is large enough; what is left joins the last.

    >>> neighbours_joined(4, lambda group: sum([9, 30, 15, 5][k] for k in group), 20)
    [[0, 1], [2, 3]]
    """
    groups: list[list[int]] = [[]]
    for k in range(ranges):
        groups[-1].append(k)
        if size(groups[-1]) >= least:
            groups.append([])
    rest = groups.pop()
    if rest and groups:
        groups[-1] += rest
        return groups
    return [*groups, rest] if rest else groups


class Calibration(BaseModel):
    """Histograms of scaled residuals (prediction minus raw label), one for each range of predictions.

    Parameters
    ----------
    ranges
        Increasing predictions at which one range ends and the next begins, which holds them.
    edges
        Increasing.
    counts
        For each range the residuals below the first edge, between edges, above the last: one more than there are
        edges.
    units
        How many units the residuals of each range come from.
    unit
        What residuals are measured in: for SoH this; for RUL the prediction plus a share of it.
    growing
        Whether residuals grow with the prediction (RUL).
    bandwidth
        Standard deviation of the kernel that mixes ranges, in the label's unit; 0 mixes none.
    cap
        Largest label learnt, where residuals are of capped labels.

    Examples
    --------
    >>> c = Calibration(ranges=(), edges=(-1.0, 0.0, 1.0), counts=((0, 30, 30, 0),), units=(60,), unit=1.0,
    ...                 growing=False)
    >>> [x.round(3).tolist() for x in c.interval(np.array([5.0]), 0.9)]
    [[4.083], [5.917]]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[2] = 2
    ranges: Annotated[tuple[Finite, ...], Field(max_length=100)]
    edges: Annotated[tuple[Finite, ...], Field(min_length=2, max_length=10_000)]
    counts: tuple[tuple[Count, ...], ...]
    units: tuple[Count, ...]
    unit: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    growing: bool
    bandwidth: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    cap: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not all(np.diff(self.edges) > 0) or not all(np.diff(self.ranges) > 0):
            raise ValueError("edges and ranges must increase")
        if len(self.counts) != len(self.ranges) + 1 or len(self.units) != len(self.counts):
            raise ValueError("there must be one more histogram than bounds between ranges, and its units for each")
        if any(len(counts) != len(self.edges) + 1 for counts in self.counts):
            raise ValueError("a histogram must have one more count than edges")
        if any(sum(counts) < units for counts, units in zip(self.counts, self.units, strict=True)):
            raise ValueError("a histogram cannot have fewer residuals than units")
        return self

    def scale(self, predictions: FloatArray) -> FloatArray:
        """What residuals are measured in at each prediction."""
        return residual_scale(predictions, self.unit, self.growing)

    def interval(self, predictions: FloatArray, coverage: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds that should hold the label with the given probability.

        Where there are too few units for the coverage, or too many residuals beyond the edges, the bound is infinite
        (or 0 below, as health is never negative). So is an upper bound that reaches the cap: it means "or more".
        """
        if not 0.0 < coverage < 1.0:
            raise BundleError(f"coverage {coverage} is not between 0 and 1")
        scale = self.scale(predictions)
        top = np.full_like(predictions, -np.inf)  # residuals at or below this one are of lives at the cap
        if self.cap is not None:
            top = (predictions - (self.cap - HALF_A_STEP)) / scale
        below, above = self._quantiles(self._weights(predictions), top, coverage)
        low, high = np.maximum(predictions - above * scale, 0.0), predictions - below * scale
        if self.cap is not None:
            low, high = np.minimum(low, self.cap), np.where(high > self.cap - HALF_A_STEP, np.inf, high)
        return low, high

    def chance_below(self, prediction: float, labels: FloatArray) -> FloatArray:
        """How likely the true value is below each of some labels (T,), given the prediction.

        Labels at or above the cap cannot be told apart; ask below it.

        >>> c = Calibration(ranges=(), edges=(-1.0, 0.0, 1.0), counts=((0, 30, 30, 0),), units=(60,), unit=1.0,
        ...                 growing=False)
        >>> c.chance_below(5.0, np.array([3.0, 4.5, 5.0, 6.0])).tolist()
        [0.0, 0.25, 0.5, 1.0]
        """
        predictions = np.full(1, prediction)
        counts = np.repeat(self._weights(predictions) @ np.array(self.counts, dtype=np.float64), len(labels), axis=0)
        chance: FloatArray = 1 - _share_up_to(counts, self.edges, (prediction - labels) / self.scale(predictions))
        return chance

    def _weights(self, predictions: FloatArray) -> FloatArray:
        """How much each range counts at predictions (N, ranges), the most at 1."""
        ranges = len(self.counts)
        if not self.bandwidth:
            return np.eye(ranges)[np.searchsorted(np.array(self.ranges), predictions, side="right")]
        bounds = np.array([0.0, *self.ranges, self.unit])
        centres = (bounds[1:] + bounds[:-1]) / 2
        distance = (predictions[:, None] - centres) / self.bandwidth
        nearest = np.square(distance).min(axis=1, keepdims=True)  # so that something counts however far off
        weights: FloatArray = np.exp((nearest - np.square(distance)) / 2)
        return weights

    def _quantiles(self, weights: FloatArray, top: FloatArray, coverage: float) -> tuple[FloatArray, FloatArray]:
        """Residuals (N,) between which enough of the weighted ones lie.

        Each tail is given half of what may be missed, or more where one is open: residuals up to `top` (N,) are of
        lives at the cap. The share grows with their number, so that the lower end has no cliff. With one residual a
        unit the ranks are those of split conformal prediction.
        """
        counts = weights @ np.array(self.counts, dtype=np.float64)
        units = weights @ np.array(self.units, dtype=np.float64) / weights.sum(axis=1)
        edges = np.array([-np.inf, *self.edges, np.inf])
        half = np.full(len(counts), (1 - coverage) / 2)
        at_cap = _share_up_to(counts, self.edges, top)
        below = self._tail(counts, edges, units, half)
        above = -self._tail(counts[:, ::-1], -edges[::-1], units, np.clip(at_cap, half, 2 * half))
        return below, above

    def _tail(self, counts: FloatArray, edges: FloatArray, units: FloatArray, share: FloatArray) -> FloatArray:
        """Residuals (N,) below which a share lies; -inf where there are too few units to say."""
        missed = (units + 1) * share + 1e-9  # 20 x 0.05 is 1, not a bit less
        rank = missed * counts.sum(axis=1) / np.maximum(units, 1)
        if not self.bandwidth:
            rank = np.floor(rank)
        return np.where(missed >= 1, _ranked(counts, edges, rank), -np.inf)


def calibration_of_head(
    shared: Calibration | None, kept_out: FloatArray | None, recipe: Recipe, coverage: float = 0.9
) -> Calibration | None:
    """The calibration of an owner's own head: the shared head's, widened until it holds on the owner's own machines.

    None where the shared head has none, or too few machines can tell: with fewer than nine, not even the largest error
    is large enough for 90 %. The layers below have learnt from these machines, so errors are taken as larger by what is
    usual.

    Parameters
    ----------
    kept_out : (3, N)
        Predictions, labels and numbers of the units, by heads that were not fitted to the unit.
    """
    if shared is None or kept_out is None:
        return None
    predictions, labels, unit = kept_out
    _, of_unit, points = np.unique(unit, return_inverse=True, return_counts=True)
    rank = (1 + 1 / max(len(points), 1)) * coverage  # as in split conformal prediction, with a machine as one draw
    if rank > 1:
        return None
    low, high = shared.interval(predictions, coverage)
    away = (recipe.capped(labels) - predictions) * stretches(predictions, recipe, USUAL_STRETCH)
    room = np.where(away > 0, high - predictions, predictions - low)
    if not np.isfinite(room[away < 0]).all():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(np.isinf(room) | (away == 0), 0.0, np.abs(away) / np.maximum(room, 1e-12))
    needed[(away < 0) & (low <= 0)] = 0.0  # nothing lies below zero
    order = np.argsort(needed)
    share = np.cumsum(1 / (points[of_unit[order]] * len(points)))
    factor = max(1.0, float(needed[order][min(int(np.searchsorted(share, rank - 1e-9)), len(order) - 1)]))
    return shared.model_copy(update={"edges": tuple(float(f"{factor * edge:.6g}") for edge in shared.edges)})


def _share_up_to(counts: FloatArray, edges: Sequence[float], residuals: FloatArray) -> FloatArray:
    """Share of the residuals counted (N, edges + 1) that lie at or below others (N,); spread evenly between edges."""
    rows, bounds = np.arange(len(counts)), np.array(edges)
    place = np.searchsorted(bounds, residuals)  # the bin that holds each; what lies beyond the edges counts whole
    k = np.clip(place, 1, len(bounds) - 1)
    within = np.clip((residuals - bounds[k - 1]) / (bounds[k] - bounds[k - 1]), 0.0, 1.0)
    total = np.cumsum(counts, axis=1)
    share = (total[rows, k - 1] + within * counts[rows, k]) / np.maximum(total[:, -1], 1e-12)
    return np.where(place == 0, 0.0, share)


def _ranked(counts: FloatArray, edges: FloatArray, rank: FloatArray) -> FloatArray:
    """Where residuals of a rank, from the smallest, lie if those between two edges are spread evenly; a row each."""
    rows, total = np.arange(len(counts)), np.cumsum(counts, axis=1)
    k = np.minimum((total < rank[:, None] - 1e-9).sum(axis=1), counts.shape[1] - 1)
    before = total[rows, k] - counts[rows, k]
    with np.errstate(invalid="ignore"):  # edges beyond the first and the last are infinite
        share = (rank - 0.5 - before) / np.maximum(counts[rows, k], 1e-12)
        inside = edges[k] + np.clip(share, 0.0, 1.0) * (edges[k + 1] - edges[k])
    beyond = (k == 0) | (k == counts.shape[1] - 1)
    quantiles: FloatArray = np.where(beyond, edges[k], inside)
    return quantiles


def calibration_of(counts: IntArray, units: IntArray, recipe: Recipe) -> Calibration:
    """The calibration from the sum of all sites' histograms; ranges of too few units join their neighbours.

    Parameters
    ----------
    counts : (ranges, edges + 1)
    units : (ranges,)
    """
    # A unit may be in several ranges, so a group is known to have as many units as its largest range at least.
    groups = neighbours_joined(len(units), lambda group: int(units[list(group)].max()), MIN_UNITS)
    bounds = prediction_ranges(recipe)
    unit, growing = residual_unit(recipe)
    return Calibration(
        ranges=tuple(bounds[group[0] - 1] for group in groups[1:]),
        edges=EDGES,
        counts=tuple(tuple(int(c) for c in counts[group].sum(axis=0)) for group in groups),
        units=tuple(int(units[group].max()) for group in groups),
        unit=unit,
        growing=growing,
        bandwidth=BANDWIDTH * unit if growing else 0.0,
        cap=recipe.cap,
    )


@dataclass(frozen=True, eq=False)
class HeadSums:
    """What an exact head was solved from.

    Parameters
    ----------
    total
        Statistics of all clients together.
    strength
        Of the ridge.
    alike
        True if every unit has the same weight in them.
    share
        Share of this client's weight that they hold: less than 1 where its weight was capped.
    """

    total: HeadStatistics
    strength: float
    alike: bool = False
    share: float = 1.0

    def without(self, network: Network, parts: Sequence[WindowSet], recipe: Recipe) -> Network:
        """The network with the head that the others' windows give, without these."""
        left_out = add_all(head_statistics(network, part, recipe, alike=self.alike) for part in parts if len(part))
        return network.with_head(solve_head(self.total.without(left_out, self.share), self.strength))


@dataclass(frozen=True, eq=False)
class Residuals:
    """Predictions, residuals in units of their scale, and the unit each comes from, all (N,).

    Parameters
    ----------
    point
        Which window each is of: those of a short life come several times.
    squared
        Sum of the squares of the scaled residuals, labels capped as the model learns them.
    """

    predictions: FloatArray
    scaled: FloatArray
    unit: IntArray
    point: IntArray
    squared: float


def residuals(
    network: Network,
    windows: WindowSet,
    recipe: Recipe,
    sums: HeadSums | None = None,
    parts: Sequence[WindowSet] = (),
    stretch: float = 1.0,
) -> Residuals:
    """Residuals at points spread evenly over each unit's life, as many of every unit that comes near the cap.

    Parameters
    ----------
    sums
        The head is solved from these, without the unit at hand; None where the network's head never saw the units.
    parts
        The windows behind the client's statistics, as it sent them.
    stretch
        Factor by which errors are larger on units that the layers below the head never saw, halfway to the cap.
    """
    from fedprognos.networks.network_outputs import predict

    places, predicted = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    near = np.full(len(windows), True) if recipe.cap is None else windows.labels <= FARTHEST * recipe.cap
    for unit in np.unique(windows.unit[near]).tolist():
        mine = np.flatnonzero(near & (windows.unit == unit))
        at = mine[even_points(len(mine))]
        parts_of_unit = [part.select(part.unit == unit) for part in parts]
        without_unit = network if sums is None else sums.without(network, parts_of_unit, recipe)
        places.append(at)
        predicted.append(predict(without_unit, windows.select(at), recipe))
    chosen, values = np.concatenate(places), np.concatenate(predicted)
    points = windows.select(chosen)
    scale = residual_scale(values, *residual_unit(recipe))
    errors = (values - recipe.capped(points.labels)) / scale
    stretched = errors * stretches(values, recipe, stretch)
    return Residuals(values, stretched, points.unit, chosen, float(np.square(errors).sum()))
