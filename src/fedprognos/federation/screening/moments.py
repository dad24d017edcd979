"""Moments: what a client says of its columns and labels, against what most clients say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.features import Survey
from fedprognos.features.moments import Moments
from fedprognos.federation.messages import Failure

FAR = 10.0
"""A mean this many of the clients' median deviations from their median mean, or a deviation this many times theirs,
is not believed."""
SMALLEST = 0.01
"""The least deviation that is counted in, as a share of the mean: a column may be constant at most clients."""


def plausible_surveys(
    surveys: Mapping[str, Survey], cap: float | None
) -> tuple[dict[str, Survey], tuple[Failure, ...]]:
    """Surveys of the clients whose moments agree with most others', none counting too much; and who is left out."""
    names = sorted(surveys)
    doubted: dict[str, str] = {}
    if len(names) > 2:
        conditions = sorted({key for name in names for key in surveys[name].cells})
        for key in conditions:
            _doubt({n: surveys[n].cells[key] for n in names if key in surveys[n].cells}, "columns", doubted)
        _doubt({n: surveys[n].labels for n in names}, "labels", doubted)
    if len(doubted) * 2 >= len(names):  # no majority to go by
        doubted = {}
    failures = tuple(
        Failure(name, "harmful", f"moments of its {what} are far from the others'; left out")
        for name, what in sorted(doubted.items())
    )
    return capped_surveys({name: surveys[name] for name in names if name not in doubted}, cap), failures


def _doubt(moments: Mapping[str, Moments], what: str, doubted: dict[str, str]) -> None:
    if len(moments) < 3:
        return
    means, stds = (np.stack([getattr(one, part) for one in moments.values()]) for part in ("mean", "std"))
    middle = np.median(means, axis=0)
    scale: FloatArray = np.maximum(np.median(stds, axis=0), SMALLEST * np.abs(middle))
    wide = (stds > FAR * scale) | (np.abs(means - middle) > FAR * scale)
    for name, bad in zip(moments, wide.any(axis=1), strict=True):
        if bad:
            doubted.setdefault(name, what)


def capped_surveys(surveys: dict[str, Survey], cap: float | None) -> dict[str, Survey]:
    """Nobody's rows count more than so many times the median client's."""
    if cap is None:
        return surveys
    labels = {name: survey.labels.n for name, survey in surveys.items()}
    rows = {name: sum(one.n for one in survey.cells.values()) for name, survey in surveys.items()}
    most = [cap * float(np.median(list(sizes.values()))) for sizes in (labels, rows)]

    def lighter(survey: Survey, factor: float) -> Survey:
        if factor >= 1:
            return survey
        cells = {key: _scaled(one, factor) for key, one in survey.cells.items()}
        return replace(survey, cells=cells, labels=_scaled(survey.labels, factor))

    shares = {name: min(most[0] / labels[name], most[1] / rows[name]) for name in surveys}
    return {name: lighter(survey, shares[name]) for name, survey in surveys.items()}


def _scaled(moments: Moments, factor: float) -> Moments:
    n = max(round(moments.n * factor), 1)
    return Moments(n, moments.mean, moments.m2 * (n / moments.n))
