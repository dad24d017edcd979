"""Scores from sums are the scores of the predictions themselves, however they are spread over sites."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprognos.errors import MessageError
from fedprognos.evaluation import Points, ScoreSums, metrics, score, score_sums
from fedprognos.federation.codec import decode, encode
from refusals import refuses

VALUES = st.tuples(st.floats(0, 300), st.floats(0, 300), st.integers(0, 4))


@given(st.lists(VALUES, min_size=1, max_size=40), st.integers(1, 4), st.sampled_from(["rul", "soh"]), st.booleans())
def test_sums_of_sites_give_the_scores_of_all_predictions(
    values: list[tuple[float, float, int]], sites: int, task: str, intervals: bool
) -> None:
    truth, said = (np.array([v[k] for v in values]) for k in (0, 1))
    bounds = (said - 10, said + 20)
    site_of = np.arange(len(values)) % sites
    unit = np.array([v[2] for v in values]) * sites + site_of

    def of(scorer, mine):  # type: ignore[no-untyped-def]
        ends = tuple(end[mine] for end in bounds) if intervals else None
        return scorer(Points(truth[mine], said[mine], unit[mine], task=task, cap=125.0, bounds=ends))

    parts = [of(score_sums, mine) for s in range(sites) if (mine := site_of == s).any()]
    found = reduce(add, parts).scores()
    expected = of(score, np.ones(len(values), bool))
    assert expected.keys() - found.keys() == {"rmse_low", "rmse_high"}
    for name, value in found.items():
        if name == "r2":  # a difference of large sums
            exact = expected["r2"]
            assert exact is None or value is None or np.var(truth) < 1e-6 or value == pytest.approx(exact, 1e-4)
        elif name in metrics and not metrics[name].sums:  # over some of the points only: sites do not send it
            assert value is None
        else:
            assert value == (pytest.approx(expected[name]) if isinstance(value, float) else expected[name])


def test_intervals_are_counted_and_what_is_infinite_is_not_sent() -> None:
    truth = np.array([10.0, 20.0, 30.0])
    bounds = (truth - 1, truth + np.array([1.0, 3.0, -0.5]))
    found = score_sums(Points(truth, truth, np.arange(3), task="soh", bounds=bounds)).scores()
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["interval_width"] == pytest.approx((2 + 4 + 0.5) / 3)
    endless = score_sums(Points(truth, truth + 1e5, np.arange(3), task="rul", bounds=(truth, truth + np.inf)))
    assert not {"nasa", "width"} & set(endless.sums)
    assert endless.scores()["nasa_score"] is None
    assert endless.scores()["coverage"] == 1.0


def test_a_sum_that_one_site_lacks_is_not_known_of_all() -> None:
    some, other = (
        score_sums(Points(np.ones(3), np.zeros(3), np.arange(3), task="rul", cap=cap)) for cap in (5.0, None)
    )
    found = (some + other).scores()
    assert found["rmse_capped"] is None
    assert found["rmse"] == 1.0


@pytest.mark.parametrize(
    ("where", "value"),
    [
        *(("n", 0), ("n", -3), ("units", 9), ("units", 0)),
        *(("late", -1.0), ("late", 3.5), ("squared", -1.0), ("squared_capped", -0.1), ("inside", 7.0)),
        *(("error", float("nan")), ("error", float("inf")), ("Robert'); --", 1.0), ("x" * 41, 1.0), ("", 1.0)),
    ],
)
def test_sums_that_no_predictions_have_are_refused(where: str, value: float) -> None:
    good = score_sums(Points(np.ones(3), np.zeros(3), np.array([0, 0, 1]), task="rul", cap=5.0))
    fields = {"n": good.n, "units": good.units, "sums": dict(good.sums)}
    (fields if where in fields else fields["sums"])[where] = value  # type: ignore[index]
    with refuses(ValueError, where if where != "n" and where.isidentifier() and len(where) < 40 else ""):
        ScoreSums(**fields)  # type: ignore[arg-type]


def test_a_flood_of_sums_is_refused() -> None:
    with refuses(ValueError, 64):
        ScoreSums(3, 2, {f"sum_{k}": 1.0 for k in range(65)})


def test_sums_cross_the_wire_and_those_of_unknown_metrics_with_them() -> None:
    sums = score_sums(Points(np.ones(3), np.zeros(3), np.arange(3), task="soh"))
    mine = ScoreSums(sums.n, sums.units, {**sums.sums, "of_a_metric_that_only_this_site_has": 3.0})
    assert decode(encode(mine), (ScoreSums,)) == mine
    assert mine.scores() == sums.scores()
    impossible = ScoreSums(3, 3, {"error": 1.0})
    object.__setattr__(impossible, "sums", {"squared": -1.0})
    with refuses(MessageError, "squared"):
        decode(encode(impossible), (ScoreSums,))
