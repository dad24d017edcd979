"""Scores from sums are the scores of the predictions themselves, however they are spread over sites."""

from __future__ import annotations

from dataclasses import asdict
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprognos.evaluation import ScoreSums, score, score_sums

VALUES = st.tuples(st.floats(0, 300), st.floats(0, 300), st.integers(0, 4))


@given(st.lists(VALUES, min_size=1, max_size=40), st.integers(1, 4), st.sampled_from(["rul", "soh"]))
def test_sums_of_sites_give_the_scores_of_all_predictions(
    values: list[tuple[float, float, int]], sites: int, task: str
) -> None:
    truth, said = (np.array([v[k] for v in values]) for k in (0, 1))
    site_of = np.arange(len(values)) % sites
    unit = np.array([v[2] for v in values]) * sites + site_of
    parts = [
        score_sums(truth[mine], said[mine], len(np.unique(unit[mine])), task=task, cap=125.0)  # type: ignore[arg-type]
        for s in range(sites)
        if (mine := site_of == s).any()
    ]
    found = reduce(add, parts).scores()
    expected = score(truth, said, unit, task=task, cap=125.0)  # type: ignore[arg-type]
    for name, value in asdict(expected).items():
        if name == "r2":  # a difference of large sums
            assert (value is None) or found.r2 is None or np.var(truth) < 1e-6 or found.r2 == pytest.approx(value, 1e-4)
        else:
            assert getattr(found, name) == (pytest.approx(value) if isinstance(value, float) else value)


def test_intervals_are_counted_and_what_is_infinite_is_not_told() -> None:
    truth = np.array([10.0, 20.0, 30.0])
    bounds = (truth - 1, truth + np.array([1.0, 3.0, -0.5]))
    sums = score_sums(truth, truth, 3, task="soh", cap=None, interval=bounds)
    assert sums.coverage() == {"coverage": pytest.approx(2 / 3), "interval_width": pytest.approx((2 + 4 + 0.5) / 3)}
    endless = score_sums(truth, truth + 1e5, 3, task="rul", cap=None, interval=(truth, truth + np.inf))
    assert (endless.nasa, endless.width) == (None, None)
    assert endless.coverage()["coverage"] == 1.0


@pytest.mark.parametrize(
    "change", [{"n": 0}, {"n": -3}, {"units": 9}, {"late": -1}, {"squared": -1.0}, {"capped": -0.1}, {"inside": 7}]
)
def test_sums_that_no_predictions_have_are_refused(change: dict[str, float]) -> None:
    good = asdict(score_sums(np.ones(3), np.zeros(3), 2, task="rul", cap=5.0))
    with pytest.raises(ValueError, match="no predictions"):
        ScoreSums(**{**good, **change})
