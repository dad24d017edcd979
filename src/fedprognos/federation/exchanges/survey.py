"""Survey: moments of columns and labels, from which clients come to a common recipe.

In the open a client sends its moments (SurveyRequest). Under masks moments cannot be added as they are: clients first
send which operating conditions they have (OutlineRequest), then sums in each condition (MomentsRequest). Count, sum,
scatter within a client and squared means can be added, and the moments of all rows follow without losing digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import ConfigError, FederationError, MessageError, RecipeError
from fedprognos.features import (
    FAR,
    QUARTER,
    Moments,
    Recipe,
    RecipeOptions,
    Survey,
    SurveyTerms,
    make_recipe,
    survey,
    survey_terms,
)
from fedprognos.federation.cohort import Cohort, OnLeftOut, gather, needed
from fedprognos.federation.exchanges import Cost, Exchange, Failure, OnEpoch, Words, exchanges
from fedprognos.federation.exchanges.import_model import recipe_of_imports
from fedprognos.federation.exchanges.ranges import with_masked_ranges
from fedprognos.federation.exchanges.wear import wear_columns
from fedprognos.federation.federation_section import FederationOptions
from fedprognos.federation.plausible import LARGEST_VALUE, MOST_ROWS, ROUNDING, check_count
from fedprognos.federation.totals import masked_total
from fedprognos.fleet import Fleet, Schema
from fedprognos.privacy import FINE_LIMBS, capped_surveys, doubted_surveys

if TYPE_CHECKING:
    from fedprognos.federation.client import Client

MOST_CONDITIONS = 1000
SAME_MEAN = 1e-13
"""Clients' means that differ by less than this share are the same."""


@dataclass(frozen=True)
class SurveyRequest:
    """Send the moments of your columns and labels."""

    terms: SurveyTerms


@dataclass(frozen=True, eq=False)
class SurveyReply:
    """Moments and sizes."""

    survey: Survey


@dataclass(frozen=True)
class OutlineRequest:
    """Send your columns, the operating conditions that you have enough rows of, and your shortest cycle."""

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
    def from_moments(moments: Moments) -> PowerSums:
        """The sums of one client."""
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
        """Moments of all rows together: scatter within clients plus scatter between their means."""
        mean = self.total / max(self.n, 1)
        between = self.squared - self.n * np.square(mean)
        # Where all means are equal, what is left of the difference is rounding, and may be negative.
        between = np.where(between > SAME_MEAN * np.abs(self.squared), between, 0.0)
        return Moments(self.n, mean, np.maximum(self.within, 0.0) + between)


@dataclass(frozen=True, eq=False)
class MomentsReply:
    """Sums by the number of the condition, and of the labels."""

    cells: Mapping[int, PowerSums]
    labels: PowerSums


def surveyed(client: Client, terms: SurveyTerms) -> Survey:
    """A client's survey, with nothing in it of fewer rows or units than its floors."""
    floors = client.floors
    least = {"min_count": max(floors.rows, terms.min_count), "min_units": floors.units}
    return survey(client.fleet, terms.model_copy(update=least), floors.counted)


def answer_survey(client: Client, request: SurveyRequest, on_epoch: OnEpoch | None) -> SurveyReply:
    """Moments in every condition with enough rows and units."""
    return SurveyReply(surveyed(client, request.terms))


def answer_outline(client: Client, request: OutlineRequest, on_epoch: OnEpoch | None) -> OutlineReply:
    """Conditions with enough rows and units, and lengths."""
    whole = surveyed(client, request.terms)
    lengths = (whole.shortest, whole.shortest_in_s, whole.level_high, whole.level_low)
    return OutlineReply(whole.schema, tuple(sorted(whole.cells)), *lengths)


def answer_moments(client: Client, request: MomentsRequest, on_epoch: OnEpoch | None) -> MomentsReply:
    """Sums in those of the conditions that have enough rows and units here."""
    whole = surveyed(client, request.terms)
    cells = {k: whole.cells[key] for k, key in enumerate(request.conditions) if key in whole.cells}
    sums = {k: PowerSums.from_moments(moments) for k, moments in cells.items()}
    return MomentsReply(sums, PowerSums.from_moments(whole.labels))


def cost(request: SurveyRequest | OutlineRequest | MomentsRequest, fleet: Fleet) -> Cost:
    """A few copies of the columns; levels keep some numbers for each row."""
    points = request.terms.level_points * 8.0 if request.terms.levels else 8.0
    return points * fleet.rows * (len(fleet.schema.sensors) + len(fleet.schema.settings) + 4), fleet.rows * 1e3


def check_survey(request: SurveyRequest, reply: SurveyReply, most_points: int) -> None:
    """Moments that a fleet can have."""
    terms, survey = request.terms, reply.survey
    columns = len(survey.schema.sensors) + len(survey.schema.settings)
    if not survey.cells or survey.withheld < 0 or survey.shortest < 0:
        raise MessageError("sent no moments, or negative counts")
    for key, moments in survey.cells.items():
        _check_condition(terms, key)
        _check_moments(moments.n, moments.mean, moments.m2, columns)
    labels = survey.labels
    _check_moments(labels.n, labels.mean, labels.m2, 1)
    if survey.schema.task == "rul" and not 0 <= labels.mean[0] <= (terms.cap or LARGEST_VALUE) * (1 + ROUNDING):
        raise MessageError("sent labels outside the range from 0 to the cap")
    if survey.schema.task == "soh" and (survey.shortest < 1 or not survey.shortest_in_s >= 0):
        raise MessageError("sent the length of a cycle that has no samples")
    usual, sensors = survey.usual, len(survey.schema.sensors)
    if usual is not None and not (len(usual.still) == sensors and max(*usual.high, -min(usual.low)) <= FAR + QUARTER):
        raise MessageError("sent impossible levels of its sensors")


def check_outline(request: OutlineRequest, reply: OutlineReply, most_points: int) -> None:
    """Conditions and lengths that a fleet can have."""
    if len(reply.conditions) > MOST_CONDITIONS or min(reply.shortest, reply.shortest_in_s) < 0:
        raise MessageError(f"sent more than {MOST_CONDITIONS} conditions, or negative lengths")
    if max(abs(reply.level_high), abs(reply.level_low)) > LARGEST_VALUE:
        raise MessageError("sent levels that no plausible column has")
    for key in reply.conditions:
        _check_condition(request.terms, key)


def check_moments(request: MomentsRequest, reply: MomentsReply, most_points: int) -> None:
    """Sums that columns and labels can have; they declare the number of points, so none bounds them."""
    for sums in (*reply.cells.values(), reply.labels):
        check_count(sums.n, MOST_ROWS)
        sums.check(LARGEST_VALUE, ROUNDING)


def _check_condition(terms: SurveyTerms, key: tuple[float, ...]) -> None:
    if len(key) != len(terms.conditions) or not all(
        abs(value) <= LARGEST_VALUE and round(value, decimals) == value
        for value, decimals in zip(key, terms.conditions.values(), strict=True)
    ):
        raise MessageError("sent an operating condition that was not asked about")


def _check_moments(n: int, mean: NDArray[np.float64], m2: NDArray[np.float64], columns: int) -> None:
    check_count(n, MOST_ROWS)
    if mean.shape != (columns,) or m2.shape != (columns,):
        raise MessageError(f"sent moments of {mean.shape} and {m2.shape} columns instead of {columns}")
    if (np.abs(mean) > LARGEST_VALUE).any() or (m2 < 0).any() or (m2 > n * LARGEST_VALUE**2).any():
        raise MessageError("sent moments that no plausible column has")


def moments_template(request: MomentsRequest) -> MomentsReply:
    """Zeros for every condition and for the labels."""
    zeros, label = np.zeros(request.columns), np.zeros(1)
    cells = {k: PowerSums(0, zeros, zeros, zeros) for k in range(len(request.conditions))}
    return MomentsReply(cells, PowerSums(0, label, label, label))


def common_recipe(cohort: Cohort, options: RecipeOptions, federation: FederationOptions, left_out: OnLeftOut) -> Recipe:
    """The recipe that all clients will use: from everybody's moments, or from the models that they import.

    Parameters
    ----------
    left_out
        Called with every client that could not answer; it may raise.
    """
    if federation.start == "bundles":
        return recipe_of_imports(cohort, federation, left_out)
    recipe = recipe_from_survey(cohort, options, left_out, federation)
    if options.columns != "all" and recipe.task == "rul":
        sensors = wear_columns(cohort, recipe, federation, left_out)
        if sensors != recipe.sensors:
            options = options.model_copy(update={"sensors": sensors})
            recipe = recipe_from_survey(cohort, options, left_out, federation)
    return recipe if cohort.sums is None else with_masked_ranges(cohort, recipe, federation.min_clients, left_out)


def recipe_from_survey(
    cohort: Cohort,
    options: RecipeOptions,
    left_out: OnLeftOut,
    federation: FederationOptions | None = None,
) -> Recipe:
    """A recipe from the moments that every client sends; a client that fits none of the others is left out and named.

    Such a client has other columns than most, or no recipe can be made with it and one can without it. With
    `federation.screen` moments that are far from most others' are left out, too.
    """
    federation = federation or FederationOptions()
    min_clients = federation.min_clients
    if cohort.sums is not None:
        return _recipe_from_masked_survey(cohort, options, left_out, min_clients)
    requests = dict.fromkeys(cohort.clients, SurveyRequest(survey_terms(options)))
    replies = gather(cohort, requests, SurveyReply, min_clients, left_out)
    surveys = {name: reply.survey for name, reply in replies.items()}
    least = needed(len(requests), min_clients)
    schema, _ = Counter(survey.schema for survey in surveys.values()).most_common(1)[0]
    others = [name for name, survey in surveys.items() if survey.schema != schema]
    if others and len(surveys) - len(others) >= least:
        for name in others:
            left_out(Failure(name, "columns", "its columns differ from those of most clients"))
            del surveys[name]
    if federation.screen:
        for name, what in doubted_surveys(surveys).items():
            left_out(Failure(name, "harmful", f"moments of its {what} are far from the others'; left out"))
            del surveys[name]
    surveys = capped_surveys(surveys, federation.weight_cap)
    try:
        return make_recipe(options, surveys)
    except (RecipeError, ConfigError):
        recipe_without = {name: _recipe_without(name, options, surveys) for name in surveys}
        possible = {name: recipe for name, recipe in recipe_without.items() if recipe is not None}
        if len(possible) != 1 or len(surveys) - 1 < least:
            raise
        ((name, recipe),) = possible.items()
        left_out(Failure(name, "moments", "no recipe can be made with its moments"))
        return recipe


def _recipe_without(name: str, options: RecipeOptions, surveys: Mapping[str, Survey]) -> Recipe | None:
    try:
        return make_recipe(options, {other: survey for other, survey in surveys.items() if other != name})
    except (RecipeError, ConfigError):
        return None


def _recipe_from_masked_survey(
    cohort: Cohort, options: RecipeOptions, left_out: OnLeftOut, min_clients: int | None
) -> Recipe:
    """A recipe from everybody's conditions and from totals of moments; columns that most do not have are left out."""
    terms = survey_terms(options)
    asked = dict.fromkeys(cohort.clients, OutlineRequest(terms))
    outlines = gather(cohort, asked, OutlineReply, min_clients, left_out)
    request, schema = moments_request(terms, outlines)
    for name, outline in outlines.items():
        if outline.schema != schema:
            left_out(Failure(name, "columns", "its columns differ from those of most clients"))
    same_columns = {name: outline for name, outline in outlines.items() if outline.schema == schema}
    sums = masked_total(cohort, dict.fromkeys(same_columns, request), min_clients, left_out)
    return make_recipe(options, {"everybody": merged_survey(request, schema, sums, same_columns)})


def moments_request(terms: SurveyTerms, outlines: Mapping[str, OutlineReply]) -> tuple[MomentsRequest, Schema]:
    """What to ask the clients that have the columns of most, about all conditions that any of them has."""
    schema, _ = Counter(outline.schema for outline in outlines.values()).most_common(1)[0]
    conditions = sorted(
        {key for outline in outlines.values() if outline.schema == schema for key in outline.conditions}
    )
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
    cells = {request.conditions[k]: cell.moments() for k, cell in sums.cells.items() if cell.n > 0}
    everyone = list(outlines.values())
    return Survey(
        schema,
        cells,
        0,
        sums.labels.moments(),
        min(outline.shortest for outline in everyone),
        min(outline.shortest_in_s for outline in everyone),
        min(outline.level_high for outline in everyone),
        max(outline.level_low for outline in everyone),
    )


MOMENTS = Words(
    "moments of the columns",
    "counts, means and variances of columns and labels, by operating condition, and rounded bounds of sensors",
    "the level and spread of every column",
)
exchanges.add(
    Exchange(
        SurveyRequest,
        SurveyReply,
        10,
        MOMENTS,
        answer_survey,
        cost,
        check_survey,
        declares=lambda reply, before: reply.survey.labels.n,
        only_masked=True,
    )
)
exchanges.add(
    Exchange(
        OutlineRequest,
        OutlineReply,
        11,
        Words(
            "operating conditions",
            "names of the columns, operating conditions with enough rows, the shortest cycle",
            "which conditions this site has",
        ),
        answer_outline,
        cost,
        check_outline,
    )
)
exchanges.add(
    Exchange(
        MomentsRequest,
        MomentsReply,
        12,
        MOMENTS,
        answer_moments,
        cost,
        check_moments,
        declares=lambda reply, before: reply.labels.n,
        template=moments_template,
        limbs=FINE_LIMBS,  # raw columns need a finer unit than scaled ones
        only_masked=True,
    )
)
