"""Totals: replies added up, whatever their order; what cannot be added is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cohorts import cohort_of, plan_of
from every_message import every_request
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import FederationError, FedprognosError, MessageError
from fedprognos.federation.exchanges import exchange_for
from fedprognos.federation.exchanges.evaluate import ErrorSums, EvaluateReply
from fedprognos.federation.exchanges.outputs import OutputsReply, OutputsRequest
from fedprognos.federation.exchanges.residuals import ResidualReply
from fedprognos.federation.exchanges.wear import WearRequest
from fedprognos.federation.totals import add_all, total
from fedprognos.networks import HeadStatistics
from refusals import refuses

SUMMED = [request for request in every_request() if getattr(exchange_for(request), "template", None)]


def statistics(rng: np.random.Generator, rows: int, width: int = 3) -> HeadStatistics:
    h = np.concatenate([rng.normal(size=(rows, width)), np.ones((rows, 1))], axis=1)
    y = rng.normal(size=rows)
    return HeadStatistics(rows, float(y @ y), h.T @ h, h.T @ y)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 6))
def test_totals_are_sums_and_do_not_depend_on_the_order_of_replies(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    replies = {
        f"c{k}": EvaluateReply(
            ErrorSums(k + 1, 1.0 * k, 2.0 * k, 3.0 * k) if rng.random() < 0.7 else None,
            statistics(rng, 5),
            statistics(rng, 4) if rng.random() < 0.5 else None,
        )
        for k in range(count)
    }
    found = add_all(replies)
    again = add_all(dict(reversed(replies.items())))
    assert found.fit is not None and again.fit is not None
    assert found.fit.hh.tobytes() == again.fit.hh.tobytes()
    np.testing.assert_allclose(found.fit.hy, sum(r.fit.hy for r in replies.values() if r.fit), rtol=1e-12, atol=1e-12)
    known = [r.validation for r in replies.values() if r.validation is not None]
    assert (found.validation is None) == (not known)
    if found.validation is not None:
        assert found.validation.n == sum(one.n for one in known)
    assert (found.held is None) == all(r.held is None for r in replies.values())


def test_replies_of_other_shapes_are_not_added() -> None:
    rng = np.random.default_rng(0)
    with refuses(FederationError, "ndarray"):
        add_all({"a": EvaluateReply(None, statistics(rng, 5, 3)), "b": EvaluateReply(None, statistics(rng, 5, 4))})
    ones = np.ones((2, 3), dtype=np.int64)
    with pytest.raises(FederationError):
        add_all({"a": ResidualReply(ones, ones[:, 0], 1.0), "b": ResidualReply(ones[:1], ones[:1, 0], 1.0)})
    with refuses(FederationError, "errors.jsonl"):
        add_all({})


def test_a_total_of_a_cohort_is_the_sum_of_its_replies(tmp_path: Path) -> None:
    plan, cohort = plan_of(), cohort_of(tmp_path)
    request = OutputsRequest(plan.recipe, plan.common_start(), plan.seed, 0.3)
    asked = dict.fromkeys(cohort.clients, request)
    found = total(cohort, asked, OutputsReply, None, plan.left_out)
    each = [reply for reply in cohort.ask(asked).values() if isinstance(reply, OutputsReply)]
    assert found.layers[0].n == sum(reply.layers[0].n for reply in each) > 0
    np.testing.assert_allclose(found.layers[0].S, sum(reply.layers[0].S for reply in each), rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, -1.0, 0.5, 2.0**60, -(2.0**60)])
@pytest.mark.parametrize(
    "request_",
    [r for r in every_request() if getattr(exchange_for(r), "template", None)],
    ids=lambda r: type(r).__name__,
)
def test_whatever_a_member_makes_of_a_total_it_is_read_or_refused_in_words(request_: Any, value: float) -> None:
    """Under masks a member can turn every number of a total into any other, also the counts of parts."""
    exchange = exchange_for(request_)
    assert exchange is not None
    with contextlib.suppress(FedprognosError, ValueError, ArithmeticError):  # what `masked_total` expects
        total_ = exchange.unvector(request_, np.full(exchange.vector_length(request_), value), 3)
        exchange.check(request_, total_, 1000)


def test_a_total_without_a_part_that_every_reply_has_is_refused() -> None:
    request = next(one for one in every_request() if isinstance(one, WearRequest))
    exchange = exchange_for(request)
    assert exchange is not None
    with pytest.raises(MessageError):
        exchange.unvector(request, np.zeros(exchange.vector_length(request)), 3)
