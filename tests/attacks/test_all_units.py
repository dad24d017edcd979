"""Training once more on all units: sums over all of them minus those over the training units are of the test units."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_run import experiment_of
from test_two_runs import OTHERS, site_of

from fedprognos.deployment.contract import Contract
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.site.delivery import keep_delivery
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.deployment.site.site_service import Site
from fedprognos.deployment.steps.replay import StepRefusedError
from fedprognos.experiment import config
from fedprognos.federation.client import Client, ClientOfAllUnits
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.exchanges.distances import DistanceRequest
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.exchanges.outputs import OutputsRequest
from fedprognos.federation.exchanges.site_messages import ContractRequest, DeliverRequest
from fedprognos.fleet import Fleet
from fedprognos.networks import Bundle, Network, NetworkSpec, solve_head
from fedprognos.privacy.floors import Floors
from fedprognos.privacy.secret_split import SecretSplit
from small_fleets import recipe_of, series_fleet

FLEET = series_fleet([30 + k for k in range(24)], seed=5, name="a")
RECIPE = recipe_of(FLEET, window=8, cap=40, stride=1)
NETWORK = Network.seeded(NetworkSpec(inputs=RECIPE.channels, widths=(3,), direct=1), 1)
FLOORS = Floors(units=5, leverage=0.95, parts=True)


def clients(folder: Path, test_units: int, fleet: Fleet = FLEET) -> tuple[Client, ClientOfAllUnits]:
    """A client that evaluates on the last units, and the same for all units."""
    train = fleet.select(list(fleet)[: len(fleet) - test_units])
    trained = Client("a", train, ClientFolder(folder), FLOORS, split=SecretSplit(b"s"))
    return trained, ClientOfAllUnits(trained, fleet)


def asked(client: Client) -> EvaluateReply:
    reply = client.answer(EvaluateRequest(RECIPE, NETWORK, 1, 0.0, statistics=True))
    assert isinstance(reply, EvaluateReply)
    return reply


@pytest.mark.parametrize("test_units", [1, 4, 5, 8])
def test_sums_of_all_units_and_of_training_units_differ_by_the_floors_or_not_at_all(
    tmp_path: Path, test_units: int
) -> None:
    """The same body in both: a fixed random one, or an accomplice's that stands beside the honest ones."""
    before, after = (asked(client).fit for client in clients(tmp_path, test_units))
    assert before is not None
    assert after is not None
    assert (after.n - before.n >= 20) == (test_units >= 5)
    if test_units < 5:
        assert np.array_equal(after.hh, before.hh)
        assert np.array_equal(after.hy, before.hy)


def test_outputs_of_too_few_new_units_are_those_of_the_training_units(tmp_path: Path) -> None:
    request = OutputsRequest(RECIPE, NETWORK, 1, 0.0)
    few, many = (clients(tmp_path, units)[1].answer(request) for units in (4, 8))
    assert few.layers[0].n == clients(tmp_path, 4)[0].answer(request).layers[0].n
    assert many.layers[0].n > clients(tmp_path, 8)[0].answer(request).layers[0].n


def flagged_fleet(flag: float) -> Fleet:
    """In all units the flag is on in many rows, so that it tells nothing; among the new ones it is one machine's."""
    units = [
        replace(unit, sensors=np.column_stack([unit.sensors[:, 0], np.full(unit.rows, on)]))
        for unit, on in zip(FLEET, (flag if k == 23 else float(k < 10) for k in range(len(FLEET))), strict=True)
    ]
    schema = replace(FLEET.schema, sensors=(FLEET.schema.sensors[0], "flag"))
    return replace(FLEET, units=tuple(units), schema=schema)


def test_a_value_that_only_one_new_machine_has_does_not_leave_with_the_others(tmp_path: Path) -> None:
    flagged = flagged_fleet(1.0)
    recipe = recipe_of(flagged, window=8, cap=40, stride=1)
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(), direct=1), 1)
    request = EvaluateRequest(recipe, network, 1, 0.0, statistics=True)
    trained, everything = clients(tmp_path, 8, flagged)
    before, after = trained.answer(request).fit, everything.answer(request).fit
    assert np.array_equal(before.hh, after.hh)


def test_how_far_one_new_machine_goes_does_not_leave_where_its_sums_do_not(tmp_path: Path) -> None:
    """The limit of novelty is set by the machines that the sums are about."""
    flagged = flagged_fleet(9.0)
    recipe = recipe_of(flagged, window=8, cap=40, stride=1)
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(), direct=1), 1)
    trained, everything = clients(tmp_path, 8, flagged)
    sums = trained.answer(EvaluateRequest(recipe, network, 1, 0.0, statistics=True)).fit
    before, after = (client.answer(DistanceRequest(recipe, network, 1, sums)) for client in (trained, everything))
    assert np.array_equal(before.clients, after.clients)


def test_nobody_trains_on_more_test_points_than_it_declared_for_training(tmp_path: Path) -> None:
    trained, everything = clients(tmp_path, 16)
    assert asked(everything).fit.n == asked(trained).fit.n  # type: ignore[union-attr]


# --- two runs -------------------------------------------------------------------------------------


def split_site(folder: Path, fleet: Fleet, test: list[int], **options: Any) -> Site:
    """A site whose test units are those with these numbers."""
    folder.mkdir(exist_ok=True)
    units = list(fleet)
    train = fleet.select([unit for k, unit in enumerate(units) if k not in test])
    data = SiteData(train, fleet.select([units[k] for k in test]), None, fleet)
    return Site(folder, SiteOptions(name="a", coordinator="x:1", **options), data, lambda text: None)


def begin(site: Site, number: int, refit: bool = True, **recipe: Any) -> None:
    """An approved contract comes to its first step."""
    shared = {"window": 8, "stride": 1, "cap": 25, "conditions": {}}
    changes = {
        "recipe": {**shared, **recipe},
        "federation": {"mode": None},
        "evaluation": {"seeds": number, "refit": refit},
    }
    members = {"a": site.identity.public, **OTHERS}
    experiment = config.parse(experiment_of(changes), "test")
    contract = Contract.from_experiment(f"run {number}", str(number), experiment, members, "d" * 64)
    site._open(ContractRequest(contract.text))
    site._bind(site.approvals.approve(contract.digest))


def test_all_units_of_a_second_run_may_not_differ_by_one_machine(tmp_path: Path) -> None:
    """Training and test units differ by five and more, all units by one: whoever has both sums has that machine."""
    fewer = FLEET.select(list(FLEET)[:-1])
    begin(split_site(tmp_path / "one", fewer, list(range(8))), 1)
    with pytest.raises(StepRefusedError):
        begin(split_site(tmp_path / "one", FLEET, list(range(8, 16))), 2)
    begin(split_site(tmp_path / "two", fewer, list(range(8))), 1, refit=False)
    begin(split_site(tmp_path / "two", FLEET, list(range(8, 16))), 2, refit=False)


def test_training_units_of_a_second_run_may_not_be_all_but_one_of_the_first(tmp_path: Path) -> None:
    begin(split_site(tmp_path, FLEET, list(range(8))), 1)
    with pytest.raises(StepRefusedError):
        begin(split_site(tmp_path, FLEET, [0]), 2)


def test_a_cap_that_only_one_test_machine_is_above_is_seen(tmp_path: Path) -> None:
    """The training units are the same in both runs; of all units one lived so long."""
    begin(split_site(tmp_path / "one", FLEET, list(range(16, 24))), 1, cap=51)
    with pytest.raises(StepRefusedError):
        begin(split_site(tmp_path / "one", FLEET, list(range(16, 24))), 2, cap=52)
    begin(site_of(tmp_path / "two", FLEET.select(list(FLEET)[:16])), 1, cap=51)
    begin(site_of(tmp_path / "two", FLEET.select(list(FLEET)[:16])), 2, cap=52)


# --- poison ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [0.0, 1e3])
def test_a_model_that_was_poisoned_after_its_evaluation_is_not_used(tmp_path: Path, poison: float) -> None:
    site = split_site(tmp_path, FLEET, list(range(16, 24)), max_leverage=1.0)
    everything = Client("a", FLEET, ClientFolder(tmp_path / "x"))
    head = solve_head(everything.answer(EvaluateRequest(RECIPE, NETWORK, 1, 0.0, statistics=True)).fit, 1e-3)
    honest = NETWORK.with_head(head)
    request = DeliverRequest(
        "x",
        RECIPE,
        honest,
        '{"method": "concat", "head": "exact", "round": 1, "trained_on": "all units"}',
        "{}",
        None,
        1,
        0.2,
        0,
        refitted=honest.with_head(head + poison),
    )
    delivery = keep_delivery(site.folder, site.client, site.data, request, site.identity)
    kept = Bundle.load(delivery.place / "bundle")
    assert ("bundle" in delivery.not_refitted) == (poison > 0)
    assert ("trained_on" in kept.provenance) == (poison == 0)
    assert np.abs(kept.network.head - head.astype(np.float32)).max() < 1.0
    assert "own" not in delivery.not_refitted
