"""What is measured, and how often, as an experiment says it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from fedprognos.evaluation.baselines import BaselineName, baselines
from fedprognos.options import Options


def _default_baselines() -> tuple[str, ...]:
    return tuple(name for name, baseline in baselines.items() if baseline.by_default)


class EvaluationOptions(Options):
    """What is measured, how often."""

    seeds: Annotated[int, Field(ge=1, le=1000)] = 3
    """Repetitions with other random numbers."""
    baselines: tuple[BaselineName, ...] = Field(default_factory=_default_baselines)
    """Simple rules to compare with."""
    score_at: Literal["auto", "last", "all"] = "auto"
    """Score each test unit at its last row or at all; auto = last where test units end before failure."""
    least_rows: PositiveInt = 1
    """Test units with fewer rows are left out, as the paper does with engines shorter than its window."""
    intervals: Literal["published", "all", "none"] = "published"
    """Make prediction intervals for the published model, which takes about one training more; or for every seed and
    scenario of its method, to see how well they hold; or none. Only models with an exact head have them."""
    refit: bool = False
    """Train the published model once more on all units, those of the test as well, and publish it with the error and
    the intervals of the evaluation. Test units that come in a file of their own stay out."""
    curves: bool = False
    """Test the model after every round, not only the chosen one, for curves of test errors over rounds."""
    best_on_test: bool = False
    """Also report the round that is best on the test data, marked as such (as the paper does)."""
    coverage: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    """Share of raw labels that intervals should hold; measured on the test units."""
    bootstrap: Annotated[int, Field(ge=0, le=100_000)] = 200
    """Resamples of the test units behind each interval; 0 = none."""
