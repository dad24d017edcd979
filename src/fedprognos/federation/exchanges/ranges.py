"""Ranges: what sensors usually do, added up under masks.

In the open each client sends its bounds with its moments. A bound of all is the widest of any client, and a masked sum
hides the widest. So under masks each client puts a one into the place of its bound, rounded outwards as in the open.
The sum says how many clients have which bound. How the levels of sensors go together follows from sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import FederationError, MessageError
from fedprognos.features import (
    FAR,
    QUARTER,
    JointLevels,
    LevelScaling,
    Recipe,
    SensorRanges,
    fleet_ranges,
    labelled_only,
)
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges import Cost, Exchange, Failure, OnEpoch, Words, exchanges
from fedprognos.federation.plausible import MOST_CLIENTS, MOST_ROWS
from fedprognos.federation.totals import masked_total
from fedprognos.fleet import Fleet

if TYPE_CHECKING:
    from fedprognos.federation.client import Client

Places = NDArray[np.int64]
POWERS: FloatArray = np.asarray(2.0 ** np.arange(32), dtype=np.float64)
BELOW: FloatArray = np.append(0.0, np.asarray(2.0 ** np.arange(-20.0, 4.0), dtype=np.float64))
QUARTERS: FloatArray = np.arange(0.0, FAR + QUARTER, QUARTER)
ERRORS: FloatArray = np.arange(0.0, 32 + QUARTER, QUARTER)
BOUNDS: dict[str, tuple[FloatArray, bool]] = {
    "still": (POWERS, True),
    "low": (-QUARTERS[::-1], False),
    "high": (QUARTERS, True),
    "reach": (POWERS, True),
    "jump": (POWERS, True),
    "motion": (BELOW, False),
    "most": (ERRORS, True),
}
"""What each bound of a sensor may be, and whether the widest is the largest."""
FOUR_DIGITS = 1e-3
"""Share of the variances by which rounding a covariance to four digits moves its eigenvalues at most, doubled."""


@dataclass(frozen=True, eq=False)
class RangesRequest:
    """Say what your sensors do, measured by the common recipe."""

    recipe: Recipe


@dataclass(frozen=True, eq=False)
class LevelSums:
    """Sums over the levels of sensors (sensors,): how many, of how many machines, their sum, and that of products."""

    n: int
    units: int
    s: FloatArray
    S: FloatArray


@dataclass(frozen=True, eq=False)
class RangesReply:
    """How many clients have which bound (sensors, bounds), and where their latest record begins (bounds,).

    Parameters
    ----------
    settled
        How many have records that are long enough to tell jumps and motion.
    levels
        None where there are too few machines, or too many sensors.
    """

    still: Places
    low: Places
    high: Places
    reach: Places
    jump: Places
    motion: Places
    most: Places
    first: Places
    settled: int
    levels: LevelSums | None


def level_of(recipe: Recipe) -> LevelScaling | None:
    """What deviations of the sensor at whose levels cycles are read are measured by: the levels themselves."""
    if recipe.level_bounds is None:
        return None
    high, low = recipe.level_bounds
    return LevelScaling(recipe.level_column, (high + low) / 2, (high - low) / 6)


def answer(client: Client, request: RangesRequest, on_epoch: OnEpoch | None) -> RangesReply:
    """A one in the place of each bound; sums of levels where the floors allow."""
    recipe, floors = request.recipe, client.floors
    floors.check(client.windows(recipe))
    fleet = client.fleet if floors.counted is None else labelled_only(client.fleet, recipe.relative)
    order = [fleet.schema.sensors.index(sensor) for sensor in recipe.sensors]
    numbers = zip(np.array(recipe.mean), np.array(recipe.std), strict=True)
    scaling = dict(zip(recipe.condition_keys, numbers, strict=True))
    usual = fleet_ranges(fleet, order, scaling, recipe.conditions, level_of(recipe))
    width, joint = len(order), usual.joint
    places = {name: _place(getattr(usual, name, ()) or (), *BOUNDS[name], width) for name in BOUNDS if name != "most"}
    levels = None
    if joint is not None and joint.rows >= floors.rows and len(fleet) >= floors.units:
        mean, covariance = np.array(joint.mean), np.array(joint.covariance)
        products = joint.rows * (covariance + np.outer(mean, mean))
        levels = LevelSums(joint.rows, joint.units, joint.rows * mean, products)
    return RangesReply(
        **places,
        most=_place(joint.most if joint is not None and levels is not None else (), *BOUNDS["most"], width),
        first=_place((usual.first,), POWERS, True, 1)[0],
        settled=int(bool(usual.jump and usual.motion)),
        levels=levels,
    )


def _place(bounds: tuple[float, ...], grid: FloatArray, upwards: bool, width: int) -> Places:
    """A one in the place of each of some bounds; nothing where there are none."""
    places = np.zeros((width, len(grid)), dtype=np.int64)
    if bounds:
        numbers = np.array(bounds, dtype=np.float64)
        at = np.searchsorted(grid, numbers) if upwards else np.searchsorted(grid, numbers, side="right") - 1
        places[np.arange(width), np.clip(at, 0, len(grid) - 1)] = 1
    return places


def _widest(places: Places, grid: FloatArray, upwards: bool) -> tuple[float, ...]:
    """The widest bound of each sensor that any client has."""
    has = places > 0
    at = len(grid) - 1 - has[:, ::-1].argmax(axis=1) if upwards else has.argmax(axis=1)
    return tuple(grid[at].tolist())


def merged(recipe: Recipe, total: RangesReply) -> SensorRanges:
    """What is usual of all clients' machines."""
    widest = {name: _widest(getattr(total, name), *BOUNDS[name]) for name in BOUNDS}
    settled, level = total.settled == total.first.sum(), level_of(recipe)
    return SensorRanges(
        still=tuple(map(int, widest["still"])),
        low=widest["low"],
        high=widest["high"],
        reach=widest["reach"],
        jump=widest["jump"] if settled else (),
        motion=widest["motion"] if settled else (),
        first=_widest(total.first[None], POWERS, True)[0],
        joint=None if total.levels is None or not total.levels.n else _joint(total.levels, widest["most"]),
        **({} if level is None else {"level_mean": level.mean, "level_std": level.std}),
    )


def _joint(levels: LevelSums, most: tuple[float, ...]) -> JointLevels:
    covariance = _covariance(levels)
    np.fill_diagonal(covariance, np.maximum(np.diag(covariance), 0.0))  # rounding may go below
    return JointLevels.from_moments(levels.n, levels.units, levels.s / levels.n, covariance, most)


def _covariance(levels: LevelSums) -> FloatArray:
    n = max(levels.n, 1)
    return np.asarray(levels.S / n - np.outer(levels.s / n, levels.s / n))


def cost(request: RangesRequest, fleet: Fleet) -> Cost:
    """A few copies of the rows."""
    numbers = 8.0 * fleet.rows * len(request.recipe.sensors)
    return 8.0 * numbers, numbers * (100.0 + len(request.recipe.sensors))


def check(request: RangesRequest, reply: RangesReply, most_points: int) -> None:
    """One place a client for every sensor, and sums that levels can have."""
    width = len(request.recipe.sensors)
    for name, (grid, _) in BOUNDS.items():
        _check_places(getattr(reply, name), (width, len(grid)))
    _check_places(reply.first, (len(POWERS),))
    clients = reply.first.sum()
    least = {"jump": 0, "motion": 0, "most": 0}
    for name in BOUNDS:
        counts = getattr(reply, name).sum(axis=1)
        if counts.min() < least.get(name, clients) or counts.max() > clients or len(set(counts.tolist())) > 1:
            raise MessageError("sent bounds of some sensors only")
    if not 1 <= clients <= MOST_CLIENTS or not 0 <= reply.settled <= clients:
        raise MessageError("sent bounds that no clients have")
    if reply.levels is not None:
        _check_levels(reply.levels, width)


def _check_places(places: Places, shape: tuple[int, ...]) -> None:
    if places.shape != shape or places.dtype != np.int64:
        raise MessageError(f"sent {places.shape} places instead of {shape}")
    if places.min() < 0:
        raise MessageError("sent bounds that no clients have")


def _check_levels(levels: LevelSums, width: int) -> None:
    if levels.s.shape != (width,) or levels.S.shape != (width, width):
        raise MessageError(f"sent sums of levels of {levels.s.shape} and {levels.S.shape} sensors instead of {width}")
    if not min(levels.n, 1) <= levels.units <= levels.n <= MOST_ROWS:
        raise MessageError("sent sums of levels of no machines, or of more machines than rows")
    room = levels.n * 1e-2 + 1e-6
    if not np.isfinite(levels.S).all() or (np.abs(levels.s) > levels.n * FAR + room).any():
        raise MessageError("sent sums of levels that no sensor has")
    if (np.diag(levels.S) > levels.n * FAR**2 * 1.1 + room).any() or (np.abs(levels.S - levels.S.T) > room).any():
        raise MessageError("sent sums of levels that no sensor has")
    covariance = _covariance(levels)
    if np.linalg.eigvalsh(covariance).min() < -FOUR_DIGITS * max(float(np.trace(covariance)), 0.0) - 1e-6:
        raise MessageError("sent sums of levels that no sensors have together")


def template(request: RangesRequest) -> RangesReply:
    """Nobody anywhere."""
    width = len(request.recipe.sensors)
    places = {name: np.zeros((width, len(grid)), dtype=np.int64) for name, (grid, _) in BOUNDS.items()}
    levels = LevelSums(0, 0, np.zeros(width), np.zeros((width, width)))
    return RangesReply(**places, first=np.zeros(len(POWERS), dtype=np.int64), settled=0, levels=levels)


def with_masked_ranges(
    cohort: Cohort, recipe: Recipe, min_clients: int | None, left_out: Callable[[Failure], None]
) -> Recipe:
    """The recipe with what its sensors usually do; as it is where too few clients can say it."""
    requests = dict.fromkeys(cohort.clients, RangesRequest(recipe))
    try:
        total = masked_total(cohort, requests, min_clients, left_out)
    except FederationError:
        return recipe
    return recipe.model_copy(update={"usual": merged(recipe, total)})


exchanges.add(
    Exchange(
        RangesRequest,
        RangesReply,
        13,
        Words(
            "ranges of the sensors",
            "rounded bounds of what each sensor does, and sums of the sensors' levels and of their products",
            "how far the sensors of this site's machines go, in powers of two and quarters of a deviation",
        ),
        answer,
        cost,
        check,
        template=template,
        only_masked=True,
    )
)
