"""Moments as sums, for masked surveys: first which operating conditions there are, then the sums in each.

A survey's moments cannot be added as they are. Count, sum, scatter within a client and squared means can, and the
moments of all rows follow from them without losing digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import FederationError, MessageError
from fedprognos.features import Moments, Survey, SurveyTerms, survey
from fedprognos.federation.floors import Floors
from fedprognos.fleet import Fleet, Schema

MOST_CONDITIONS = 1000
ROUNDING = 1e-13
"""Clients' means that differ by less than this share are the same."""


@dataclass(frozen=True)
class OutlineRequest:
    """Send your columns, the operating conditions that you have enough rows of, and your shortest cycle."""

    activity: ClassVar[str] = "operating conditions"
    terms: SurveyTerms


@dataclass(frozen=True)
class OutlineReply:
    """What a survey says besides moments."""

    schema: Schema
    conditions: tuple[tuple[float, ...], ...]
    shortest: int = 0
    shortest_in_s: float = 0.0
    level_high: float = 0.0
    level_low: float = 0.0


@dataclass(frozen=True)
class MomentsRequest:
    """Send sums over your rows in each of these conditions, and over your labels."""

    activity: ClassVar[str] = "moments of the columns"
    terms: SurveyTerms
    columns: int
    conditions: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class PowerSums:
    """Sums (C,) over some rows: n times the mean, the scatter around the client's mean, n times the squared mean."""

    n: int
    total: FloatArray
    within: FloatArray
    squared: FloatArray

    @staticmethod
    def of(moments: Moments) -> PowerSums:
        """From moments."""
        return PowerSums(moments.n, moments.n * moments.mean, moments.m2, moments.n * np.square(moments.mean))

    def check(self, largest: float, rounding: float) -> None:
        """Refuse means beyond what columns can have, and squares that are too small for them."""
        if not all(np.isfinite(part).all() for part in (self.total, self.within, self.squared)):
            raise MessageError("sent sums that are no numbers")
        if (np.abs(self.total) > largest * self.n).any() or (self.within < -rounding * largest).any():
            raise MessageError("sent sums beyond what columns can have")
        least = np.square(self.total) / self.n
        if (self.squared < least - rounding * np.abs(least) - rounding).any():
            raise MessageError("sent sums of squares that are too small for their means")

    def moments(self) -> Moments:
        """Moments of all rows together."""
        mean = self.total / max(self.n, 1)
        between = self.squared - self.n * np.square(mean)
        between = np.where(between > ROUNDING * np.abs(self.squared), between, 0.0)
        return Moments(self.n, mean, np.maximum(self.within, 0.0) + between)


@dataclass(frozen=True, eq=False)
class MomentsReply:
    """Sums by the number of the condition, and of the labels."""

    cells: Mapping[int, PowerSums]
    labels: PowerSums


def outline(fleet: Fleet, request: OutlineRequest, floors: Floors) -> OutlineReply:
    """A client's answer; conditions with fewer rows or units than its floors are not in it."""
    found = surveyed(fleet, request.terms, floors)
    lengths = (found.shortest, found.shortest_in_s, found.level_high, found.level_low)
    return OutlineReply(found.schema, tuple(sorted(found.cells)), *lengths)


def moment_sums(fleet: Fleet, request: MomentsRequest, floors: Floors) -> MomentsReply:
    """A client's sums; conditions with fewer rows or units than its floors are not among them."""
    found = surveyed(fleet, request.terms, floors)
    known = {k: found.cells[key] for k, key in enumerate(request.conditions) if key in found.cells}
    return MomentsReply({k: PowerSums.of(one) for k, one in known.items()}, PowerSums.of(found.labels))


def surveyed(fleet: Fleet, terms: SurveyTerms, floors: Floors) -> Survey:
    """A client's survey, with nothing in it of fewer rows or units than its floors."""
    least = {"min_count": max(floors.rows, terms.min_count), "min_units": floors.units}
    return survey(fleet, terms.model_copy(update=least), floors.counted)


def moments_template(request: MomentsRequest) -> MomentsReply:
    """An answer of zeros."""
    zeros, one = np.zeros(request.columns), np.zeros(1)
    cells = {k: PowerSums(0, zeros, zeros, zeros) for k in range(len(request.conditions))}
    return MomentsReply(cells, PowerSums(0, one, one, one))


def moments_request(terms: SurveyTerms, outlines: Mapping[str, OutlineReply]) -> tuple[MomentsRequest, Schema]:
    """What to ask those whose columns are those of most, about all conditions that anybody has."""
    schema, _ = Counter(one.schema for one in outlines.values()).most_common(1)[0]
    conditions = sorted({key for one in outlines.values() if one.schema == schema for key in one.conditions})
    if not conditions or len(conditions) > MOST_CONDITIONS:
        raise FederationError(
            f"{len(conditions)} operating conditions; there can be 1 to {MOST_CONDITIONS}",
            hint="round settings to fewer decimals in recipe.conditions",
        )
    columns = len(schema.sensors) + len(schema.settings)
    return MomentsRequest(terms, columns, tuple(conditions)), schema


def merged_survey(
    request: MomentsRequest, schema: Schema, sums: MomentsReply, outlines: Mapping[str, OutlineReply]
) -> Survey:
    """All clients' survey as if it were one client's."""
    cells = {request.conditions[k]: one.moments() for k, one in sums.cells.items() if one.n > 0}
    ones = list(outlines.values())
    return Survey(
        schema,
        cells,
        0,
        sums.labels.moments(),
        min(one.shortest for one in ones),
        min(one.shortest_in_s for one in ones),
        min(one.level_high for one in ones),
        max(one.level_low for one in ones),
    )
