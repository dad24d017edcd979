"""Masked sums of real statistics: equal to plain ones whoever drops out when, and nothing of one site to be seen."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from test_secure import STEPS, MaskingCohort, vector_of

from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios
from fedprognos.features import build_windows, recipe_for
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.masked_sums import MaskedSums
from fedprognos.federation.totals import add_all
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.head import head_statistics
from fedprognos.privacy.mask_messages import MaskedReply
from fedprognos.privacy.masks import mask
from fedprognos.privacy.sum_vectors import Limbs, add, from_fixed, negated, to_fixed

pytestmark = pytest.mark.needs_data("cmapss")
CLIENTS = 5


@cache
def real() -> tuple[EvaluateRequest, dict[str, EvaluateReply]]:
    """A request for the statistics of a linear head on FD001, and the replies of five clients."""
    changes = ("recipe.stride=20", f"partition.clients={CLIENTS}")
    _, experiment, base = config.load("study-poisoning", changes)
    (scenario,) = scenarios(experiment, None, base).values()
    recipe = recipe_for(experiment.recipe, scenario.clients)
    spec = NetworkSpec(inputs=recipe.channels, widths=(), cell="lstm", reservoir=12, direct=1)
    network = Network(spec, {name: np.zeros(shape, np.float32) for name, shape in spec.shapes.items()})
    replies = {
        name: EvaluateReply(None, head_statistics(network, build_windows(recipe, fleet), recipe))
        for name, fleet in scenario.clients.items()
    }
    return EvaluateRequest(recipe, network, 0, 0.0, True), replies


def summed(drops: dict[str, str]) -> tuple[MaskingCohort, Any, tuple[str, ...]]:
    request, replies = real()
    names, left = tuple(sorted(replies)), list[Failure]()
    cohort = MaskingCohort(names, lambda name, _: replies[name], drops)
    total, members = MaskedSums("run", cohort.identities).total(cohort, dict.fromkeys(names, request), left.append)
    assert {failure.client for failure in left} == set(names) - set(members)
    return cohort, total, members


@pytest.mark.parametrize("step", [None, *STEPS])
def test_masked_and_plain_sums_of_real_statistics_are_equal_at_whatever_step_a_site_drops_out(step: str | None) -> None:
    _, replies = real()
    gone = sorted(replies)[2]
    _, total, members = summed({} if step is None else {gone: step})
    early = step is not None and STEPS.index(step) <= STEPS.index("masked")
    assert set(members) == set(replies) - ({gone} if early else set())
    plain = add_all({name: replies[name] for name in members}).fit
    assert plain is not None and total.fit.n == plain.n
    for part in ("hh", "hy"):
        mine, theirs = getattr(total.fit, part), getattr(plain, part)
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
    assert total.fit.yy == pytest.approx(plain.yy, rel=1e-9)


def uniform(words: Limbs) -> bool:
    bits = np.unpackbits(words.view(np.uint8))
    return bool(abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size))


def test_no_sum_of_one_site_can_be_told_from_all_that_the_coordinator_sees() -> None:
    """Not even when it takes away every mask that it can restore: pairs of survivors still hide each other."""
    request, replies = real()
    gone = sorted(replies)[0]
    cohort, _, members = summed({gone: "masked"})
    sent = {name: reply.masked.view(np.uint64) for name, reply in cohort.seen if isinstance(reply, MaskedReply)}
    assert set(sent) == set(members)
    for name, words in sent.items():
        vector = vector_of(request, replies[name])
        own = cohort.members[name]._batches["run/1"].own[0]
        bare = add(words, negated(mask(own, *words.shape)))
        for seen in (words, bare):
            assert uniform(seen) and uniform(seen[:, -1:].copy())  # the high words, too, which are zero in the sums
            assert not np.isin(seen, to_fixed(vector)).any()
            assert np.median(np.abs(from_fixed(seen) - vector)) > 1e12
    for left_out in members:  # nor can the sum of all but one be told, whose difference to the total would be that one
        rest = [name for name in members if name != left_out]
        total = sent[rest[0]]
        for name in rest[1:]:
            total = add(total, sent[name])
        plain = np.sum([vector_of(request, replies[name]) for name in rest], axis=0)
        assert uniform(total) and np.median(np.abs(from_fixed(total) - plain)) > 1e12
