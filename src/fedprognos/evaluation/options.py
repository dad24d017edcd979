"""What is measured, and how often, as an experiment says it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from fedprognos.options import Options


class EvaluationOptions(Options):
    """What is measured, how often."""

    seeds: PositiveInt = 3
    yardsticks: tuple[Literal["constant", "last", "age", "ridge", "boosting"], ...] = (
        "constant",
        "last",
        "age",
        "ridge",
    )
    points: Literal["auto", "last", "all"] = "auto"
    """Score each test unit at its last row or at all; auto = last where test units end before failure."""
    folds: Annotated[int, Field(ge=0, le=20)] = 0
    """Train the published method so many times more, each time without some of the units, and make prediction
    intervals from the errors on those; 0 = no intervals."""
    best_on_test: bool = False
    """Also report the round that is best on the test data, marked as such (as the paper does)."""
    coverage: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    """Share of raw labels that intervals should hold; measured on the test units."""
    bootstrap: Annotated[int, Field(ge=0)] = 200
    """Resamples of the test units behind each interval; 0 = none."""
