"""What a client says of its fleet, before anything is made of it: moments, conditions and lengths that can be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MessageError
from fedprognos.features import Survey, SurveyTerms
from fedprognos.features.usual import FAR, QUARTER
from fedprognos.federation.secure.survey import MOST_CONDITIONS, OutlineReply

LARGEST_VALUE = 1e9
"""No column or label is larger, nor spread wider."""
MOST_ROWS = 10**9
"""No client has more rows, and a sum of so many counts cannot overflow."""
ROUNDING = 1e-6


def check_count(count: int, most: int) -> None:
    """Raise unless a number of points is possible."""
    if not 1 <= count <= most:
        raise MessageError(f"sent a sum of {min(count, MOST_ROWS)} points; it can have 1 to {most}")


def check_survey(terms: SurveyTerms, survey: Survey) -> None:
    """Raise where no fleet has these moments."""
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
        raise MessageError("sent levels of its sensors that cannot be")


def _check_condition(terms: SurveyTerms, key: tuple[float, ...]) -> None:
    if len(key) != len(terms.conditions) or not all(
        abs(value) <= LARGEST_VALUE and round(value, decimals) == value
        for value, decimals in zip(key, terms.conditions.values(), strict=True)
    ):
        raise MessageError("sent an operating condition that was not asked about")


def check_outline(terms: SurveyTerms, outline: OutlineReply) -> None:
    """Raise where no fleet has these conditions and lengths."""
    if len(outline.conditions) > MOST_CONDITIONS or min(outline.shortest, outline.shortest_in_s) < 0:
        raise MessageError(f"sent more than {MOST_CONDITIONS} conditions, or negative lengths")
    if max(abs(outline.level_high), abs(outline.level_low)) > LARGEST_VALUE:
        raise MessageError("sent levels that no plausible column has")
    for key in outline.conditions:
        _check_condition(terms, key)


def _check_moments(n: int, mean: NDArray[np.float64], m2: NDArray[np.float64], columns: int) -> None:
    check_count(n, MOST_ROWS)
    if mean.shape != (columns,) or m2.shape != (columns,):
        raise MessageError(f"sent moments of {mean.shape} and {m2.shape} columns instead of {columns}")
    if (np.abs(mean) > LARGEST_VALUE).any() or (m2 < 0).any() or (m2 > n * LARGEST_VALUE**2).any():
        raise MessageError("sent moments that no plausible column has")
