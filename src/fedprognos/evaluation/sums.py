"""Scores from sums: what a site can tell of its predictions without telling any of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation.metrics import Scores, nasa_score
from fedprognos.fleet import Task


@dataclass(frozen=True)
class ScoreSums:
    """Sums over predictions; those of several sites add up to the sums over all of them.

    Parameters
    ----------
    n, units
        Predictions and the units they are about.
    error, absolute, squared
        Predicted minus true, against raw labels.
    capped
        Squared errors against capped labels; None where nothing is capped.
    late
        Predictions above the truth.
    label, label_squared
        Of the labels, for R2.
    nasa
        NASA score; None where it does not apply.
    inside, width
        Labels inside their intervals, and the intervals' widths; None where there are no intervals.
    """

    n: int
    units: int
    error: float
    absolute: float
    squared: float
    capped: float | None
    late: int
    label: float
    label_squared: float
    nasa: float | None
    inside: int | None = None
    width: float | None = None

    def __post_init__(self) -> None:
        """Sums that no predictions have are refused: they may come from anybody."""
        counts = (self.units, self.late, self.inside or 0)
        squares = (self.absolute, self.squared, self.capped or 0.0, self.label_squared, self.width or 0.0)
        if not (self.units > 0 and all(0 <= c <= self.n for c in counts) and all(s >= 0 for s in squares)):
            raise ValueError("sums that no predictions have")

    def __add__(self, other: ScoreSums) -> ScoreSums:
        both = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        total: dict[str, Any] = {name: None if a is None or b is None else a + b for name, (a, b) in both.items()}
        return ScoreSums(**total)

    def scores(self) -> Scores:
        """The scores of all predictions together; intervals of the RMSE would need them unit by unit."""
        spread = self.label_squared - self.label**2 / self.n
        return Scores(
            rmse=float(np.sqrt(self.squared / self.n)),
            rmse_capped=None if self.capped is None else float(np.sqrt(self.capped / self.n)),
            mae=self.absolute / self.n,
            r2=1.0 - self.squared / spread if spread > 0 else None,
            bias=self.error / self.n,
            nasa_score=self.nasa,
            nasa_score_mean=None if self.nasa is None else self.nasa / self.n,
            late_rate=self.late / self.n,
            n_test=self.n,
            n_units=self.units,
        )

    def coverage(self) -> dict[str, Any]:
        """Share of labels inside their intervals and mean width, where there are intervals."""
        if self.inside is None:
            return {}
        return {"coverage": self.inside / self.n, "interval_width": None if self.width is None else self.width / self.n}


def score_sums(
    truth: FloatArray,
    prediction: FloatArray,
    units: int,
    *,
    task: Task,
    cap: float | None,
    interval: tuple[FloatArray, FloatArray] | None = None,
) -> ScoreSums:
    """Sums over some predictions, whose scores are those of :func:`fedprognos.evaluation.score`.

    >>> truth, said = np.array([10.0, 30.0, 50.0]), np.array([12.0, 29.0, 44.0])
    >>> sums = score_sums(truth, said, 2, task="rul", cap=40.0)
    >>> sums.scores().rmse == float(np.sqrt((4 + 1 + 36) / 3)), sums.scores().late_rate
    (True, 0.3333333333333333)
    """
    error = prediction - truth
    rul = task == "rul"
    nasa = nasa_score(truth, prediction) if rul else None
    inside, width = None, None
    if interval is not None:
        low, high = interval
        inside, width = int(((truth >= low) & (truth <= high)).sum()), float((high - low).sum())
    capped = float(np.square(prediction - np.minimum(truth, cap)).sum()) if rul and cap is not None else None
    return ScoreSums(
        n=len(truth),
        units=units,
        error=float(error.sum()),
        absolute=float(np.abs(error).sum()),
        squared=float(np.square(error).sum()),
        capped=capped,
        late=int((error > 0).sum()),
        label=float(truth.sum()),
        label_squared=float(np.square(truth).sum()),
        nasa=_finite(nasa),
        inside=inside,
        width=_finite(width),
    )


def _finite(value: float | None) -> float | None:
    """Infinite sums (a score beyond all bounds, an interval without end) cannot be told."""
    return None if value is None or not np.isfinite(value) else value
