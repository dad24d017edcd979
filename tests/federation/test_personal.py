"""Personal heads through the messages: on a method without a network, and on the real batteries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cohorts import HereCohort, cohort_of, plan_of

from fedprognos.errors import MessageError
from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios
from fedprognos.features import build_windows, recipe_for
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.cohort import gather
from fedprognos.federation.exchanges.personal import (
    PersonalRequest,
    PooledSlopes,
    PoolReply,
    PoolRequest,
    personal_heads,
)
from fedprognos.federation.plan import Plan
from fedprognos.federation.strategies import strategies
from fedprognos.networks import Network, NetworkSpec, predict
from fedprognos.networks.pooling import CentredSums, Grid


def linear(plan: Plan, cohort: HereCohort) -> Network:
    (round_,) = strategies["direct"].run(cohort, plan)
    (network,) = round_.models.values()
    return network


def test_slopes_come_back_from_the_wire_as_they_were() -> None:
    plan = plan_of()
    network = Network.seeded(NetworkSpec(inputs=plan.recipe.channels, widths=(), direct=1), 0)
    slopes = PooledSlopes(np.array([0.0, 2.0]), {0: np.ones((2, 3, 2)), 3: np.zeros((2, 3, 2))})
    back = decode(encode(PersonalRequest(plan.recipe, network, 0, 0.0, slopes)), (PersonalRequest,)).slopes
    assert back is not None
    assert sorted(back.shared) == [0, 3]
    np.testing.assert_array_equal(back.shared[0], slopes.shared[0])
    sums = CentredSums(30, np.arange(3.0), np.arange(2.0))
    reply = decode(encode(PoolReply((None, sums))), (PoolReply,))
    assert reply.fits[0] is None
    np.testing.assert_array_equal(reply.fits[1].scatter, sums.scatter)


def test_a_head_without_a_network_is_at_its_owners_level(tmp_path: Path) -> None:
    cohort, plan = cohort_of(tmp_path), plan_of(heads=["personal"])
    network = linear(plan, cohort)
    assert network.spec.widths == ()
    keys = personal_heads(cohort, plan, network, cohort.clients)
    for name, client in cohort.members.items():
        windows = build_windows(plan.recipe, client.fleet)
        own = network.with_head(client.folder.load_head(keys[name]))
        error = predict(own, windows, plan.recipe) - plan.recipe.capped(windows.labels)
        assert np.sqrt(np.square(error).mean()) < np.std(plan.recipe.capped(windows.labels))


@pytest.mark.parametrize(
    "change",
    [
        {"freedoms": np.array([-1.0, 0.0])},
        {"freedoms": np.zeros((2, 2))},
        {"shared": {0: np.zeros((2, 3, 16))}},
        {"shared": {3: np.zeros((2, 3, 7))}},
        {"shared": {3: np.zeros((2, 3, 16)), 9: np.zeros((2, 3, 16))}},
    ],
)
def test_slopes_that_fit_nothing_are_refused(tmp_path: Path, change: Mapping[str, object]) -> None:
    cohort, plan = cohort_of(tmp_path), plan_of()
    network = linear(plan, cohort)
    assert network.spec.features == 16
    good = PooledSlopes(np.array([0.0, 1.0]), {3: np.zeros((2, 3, 16))})
    request = PersonalRequest(plan.recipe, network, 0, 0.0, good)
    cohort.members["a"].answer(request)
    with pytest.raises(MessageError):
        cohort.members["a"].answer(replace(request, slopes=replace(good, **change)))


def test_sums_of_another_shape_are_a_failure_of_their_sender(tmp_path: Path) -> None:
    def crooked(name, request, reply):  # type: ignore[no-untyped-def]
        if name != "b":
            return reply
        return PoolReply((*reply.fits[:-1], CentredSums(50, np.zeros(3), np.zeros(2))))

    cohort, plan = cohort_of(tmp_path, change=crooked), plan_of()
    request = PoolRequest(plan.recipe, linear(plan, cohort), 0, 0.0)
    failures: list[str] = []
    good = gather(cohort, dict.fromkeys("abc", request), PoolReply, 2, lambda one: failures.append(one.client))
    assert (sorted(good), failures) == (["a", "c"], ["b"])


@pytest.mark.needs_data("nasa-battery")
def test_real_batteries_are_extrapolated_by_a_linear_head_alone(tmp_path: Path) -> None:
    _, experiment, folder = config.load("battery-tuned")
    found = scenarios(experiment, None, folder)["all"]
    cohort = HereCohort({n: Client(n, f, ClientFolder(tmp_path / n)) for n, f in found.clients.items()})
    recipe = recipe_for(experiment.recipe, found.clients)
    assert recipe.level_bounds == (3.89, 3.5)
    spec = NetworkSpec(inputs=recipe.channels, widths=(4,))
    plan = Plan(recipe, spec, experiment.train, experiment.federation, 0)
    network = linear(plan, cohort)
    assert network.spec.features == 38
    keys = personal_heads(cohort, plan, network, cohort.clients)
    rmse = {}
    for name in cohort.clients:
        windows = build_windows(recipe, found.tests[name])
        own = network.with_head(cohort.members[name].folder.load_head(keys[name]))
        rmse[name] = float(np.sqrt(np.square(predict(own, windows, recipe) - windows.labels).mean()))
    expected = {"B0006": 0.0134, "B0007": 0.0060, "B0018": 0.0051}  # in Ah
    assert rmse == pytest.approx(expected, abs=0.0004)
    assert max(len(data) for _, data in cohort.sent) < 40_000
    assert len(encode(cohort.asked[-1][1])) < 300_000
    assert len(Grid.for_columns(38).strengths) * len(Grid.for_columns(38).freedoms) == 182
