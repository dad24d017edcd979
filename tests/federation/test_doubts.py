"""What tells a doubtful machine later on, the ranges of sensors and of the network's state, from every way to sum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cohorts import HereCohort, cohort_of, plan_of
from test_masked_runs import masked_cohort, open_cohort

from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.exchanges import Failure, exchanges
from fedprognos.federation.exchanges.distances import DistanceRequest, Unmeasured, measured_novelty
from fedprognos.federation.exchanges.ranges import RangesRequest
from fedprognos.federation.exchanges.survey import common_recipe
from fedprognos.federation.federation_section import federation_options
from fedprognos.federation.heads import Judged, with_heads
from fedprognos.fleet import Fleet
from fedprognos.networks import Network, NetworkSpec, Novelty, largest_distance, pieces
from fedprognos.networks.novelty import LIMIT, LIMIT_FACTOR
from fedprognos.privacy.floors import FloorError, Floors
from small_fleets import recipe_of, series_fleet

OPTIONS = RecipeOptions(window=8, cap=40, stride=2, conditions={"altitude": 0})
OWNERS = {name: series_fleet([50 + k for k in range(8)], seed=k, name=name) for k, name in enumerate("abc")}


def owners(folder: Path, masked: bool, fleets: dict[str, Fleet] = OWNERS) -> HereCohort:
    cohort = masked_cohort(folder) if masked else cohort_of(folder)
    for name, fleet in fleets.items():
        member = cohort.members[name].member
        cohort.members[name] = Client(name, fleet, ClientFolder(folder / name), member=member)
    return cohort


def recipe(folder: Path, masked: bool, fleets: dict[str, Fleet] = OWNERS) -> Recipe:
    left: list[Failure] = []
    made = common_recipe(owners(folder, masked, fleets), OPTIONS, federation_options()(), left.append)
    assert not left
    return made


def test_masked_owners_have_the_bounds_that_they_have_in_the_open(tmp_path: Path) -> None:
    """A client measures by its own moments in the open, by the common ones under masks: a step apart at most."""
    seen, masked = recipe(tmp_path / "open", masked=False).usual, recipe(tmp_path / "masked", masked=True).usual
    assert seen is not None and masked is not None
    assert (masked.still, masked.first) == (seen.still, seen.first)
    for name in ("low", "high"):
        np.testing.assert_allclose(getattr(masked, name), getattr(seen, name), atol=0.5)
    for name in ("reach", "jump", "motion"):
        ratio = np.array(getattr(masked, name)) / np.array(getattr(seen, name))
        assert ((ratio > 0.4) & (ratio < 2.5)).all(), name
    assert masked.joint is not None and seen.joint is not None
    assert masked.joint.units == seen.joint.units == 24
    np.testing.assert_allclose(masked.joint.covariance, seen.joint.covariance, atol=0.1)
    np.testing.assert_allclose(masked.joint.most, seen.joint.most, atol=1.0)


def test_one_owner_with_wide_sensors_widens_the_bounds_of_all_under_masks(tmp_path: Path) -> None:
    before = recipe(tmp_path / "as it was", masked=True).usual
    unit = OWNERS["b"].units[3]
    values = unit.sensors.copy()
    values[20, 0] += 300 * values[:, 0].std()
    odd = (*OWNERS["b"].units[:3], replace(unit, sensors=values), *OWNERS["b"].units[4:])
    fleet = replace(OWNERS["b"], units=odd)
    after = recipe(tmp_path / "odd", masked=True, fleets={**OWNERS, "b": fleet}).usual
    assert before is not None and after is not None
    assert after.reach[0] >= 8 * before.reach[0]
    assert after.reach[1:] == before.reach[1:]


def test_a_client_below_its_floors_tells_no_range_and_no_distance(tmp_path: Path) -> None:
    plan = plan_of()
    few = Floors(rows=20, units=9)
    client = Client("a", OWNERS["a"], ClientFolder(tmp_path), few)
    network = Network.seeded(plan.spec, 0)
    sums = with_heads(cohort_of(tmp_path), plan, "abc", network)["exact"].sums
    assert sums is not None
    for request in (RangesRequest(plan.recipe), DistanceRequest(plan.recipe, network, 0, sums.total)):
        with pytest.raises(FloorError):
            client.answer(request)


def test_sums_of_levels_stay_at_home_where_too_few_machines_are_behind_them(tmp_path: Path) -> None:
    client = Client("a", series_fleet([60] * 4, name="a"), ClientFolder(tmp_path))
    reply = client.answer(RangesRequest(plan_of().recipe))
    assert reply.levels is None  # type: ignore[union-attr]
    assert not reply.most.any()  # type: ignore[union-attr]


def test_places_that_no_clients_have_are_refused(tmp_path: Path) -> None:
    plan, cohort = plan_of(), cohort_of(tmp_path)
    exchange, request = exchanges["RangesRequest"], RangesRequest(plan.recipe)
    good = owners(tmp_path, masked=False).members["a"].answer(request)
    exchange.check(request, good, 1000)
    for name in ("still", "low", "first", "most"):
        for change in (-1, 1):
            places = getattr(good, name).copy()
            places.reshape(-1)[0] += change
            with pytest.raises(MessageError):
                exchange.check(request, type(good)(**{**vars(good), name: places}), 1000)
    levels = good.levels  # type: ignore[union-attr]
    for part, value in (("s", 100.0 * levels.n), ("S", -1.0), ("units", levels.n + 1)):
        broken = type(levels)(**{**vars(levels), part: value + 0 * getattr(levels, part)})
        with pytest.raises(MessageError):
            exchange.check(request, type(good)(**{**vars(good), "levels": broken}), 1000)
    network = Network.seeded(plan.spec, 0)
    sums = with_heads(cohort, plan, "abc", network)["exact"].sums
    assert sums is not None
    exchange, asked = exchanges["DistanceRequest"], DistanceRequest(plan.recipe, network, 0, sums.total)
    told = cohort.members["a"].answer(asked)
    exchange.check(asked, told, 1000)
    for wrong in (-told.clients, 0 * told.clients, told.clients[:-1], told.clients * 10**9):  # type: ignore[union-attr]
        with pytest.raises(MessageError):
            exchange.check(asked, type(told)(wrong), 1000)


@pytest.mark.parametrize("wrong", ["no machines", "negative variance", "no covariance", "two halves"])
def test_sums_of_levels_that_no_recipe_can_hold_are_refused(tmp_path: Path, wrong: str) -> None:
    """Under masks one member can make the total whatever it likes: it must not end the run of all."""
    exchange, request = exchanges["RangesRequest"], RangesRequest(plan_of().recipe)
    good = owners(tmp_path, masked=False).members["a"].answer(request)
    levels = good.levels
    changes: dict[str, dict[str, Any]] = {
        "no machines": {"units": 0},
        "negative variance": {"S": np.outer(levels.s, levels.s) / levels.n - 0.005 * levels.n * np.eye(len(levels.s))},
        "no covariance": {"S": levels.S + 500.0 * levels.n * (1 - np.eye(len(levels.s)))},
        "two halves": {"S": np.triu(levels.S)},
    }
    exchange.check(request, good, 1000)
    with pytest.raises(MessageError):
        exchange.check(request, replace(good, levels=replace(levels, **changes[wrong])), 1000)


@pytest.mark.parametrize("history", ["window", "life"])
@pytest.mark.parametrize("head", ["exact", "mean"])
@pytest.mark.parametrize("mode", ["checked", "open sums", "masked"])
@pytest.mark.parametrize("body", ["layers", "reservoir"])
def test_every_published_model_knows_how_far_its_features_went(
    tmp_path: Path, history: str, head: str, mode: str, body: str
) -> None:
    cohort = {"checked": cohort_of, "open sums": open_cohort, "masked": masked_cohort}[mode](tmp_path)
    plan = plan_of(heads=[head])
    if history == "life":
        fleet, options = series_fleet([90, 80, 70], seed=9), {"cap": 40, "conditions": {"altitude": 0}}
        plan = replace(plan, recipe=recipe_of(fleet, window=None, history="life", **options))
    layers = {"widths": (4,)} if body == "layers" else {"widths": (), "reservoir": 20}
    network = Network.seeded(NetworkSpec(inputs=plan.recipe.channels, **layers), 0)  # type: ignore[arg-type]
    judged = with_heads(cohort, plan, "abc", network).get(head) or Judged(network, None)
    novelty = measured_novelty(cohort, plan, "abc", judged)
    assert isinstance(novelty, Novelty), novelty
    module, largest, squares, count = judged.network.module().eval(), 0.0, 0.0, 0
    for member in cohort.members.values():
        for piece in pieces(module, member.windows(plan.recipe)):
            distances = novelty.distance(piece.features())
            count, squares = count + len(distances), squares + float(np.square(distances).sum())
        largest = max(largest, largest_distance(novelty, judged.network, member.windows(plan.recipe)))
    assert 0.4 < squares / count < 1.1  # directions that hardly move count less
    assert largest * LIMIT_FACTOR <= novelty.limit + 1e-4 or novelty.limit == LIMIT
    assert novelty.limit <= max(LIMIT, LIMIT_FACTOR * 2**0.25 * largest) + 1e-4


def test_where_too_few_can_be_added_up_the_reason_is_told(tmp_path: Path) -> None:
    plan = plan_of()
    masked = masked_cohort(tmp_path)
    assert isinstance(measured_novelty(masked, plan, "ab", Judged(Network.seeded(plan.spec, 0), None)), Unmeasured)
