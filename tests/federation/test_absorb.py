"""Absorption over clients: copies are recovered, sums are checked, many clients go in groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cohorts import cohort_of, plan_of

from fedprognos.errors import FederationError
from fedprognos.federation.heads import with_heads
from fedprognos.federation.messages import Failure, FitRequest, OutputsReply, Reply, Request
from fedprognos.federation.options import federation_options
from fedprognos.federation.strategies import absorb as module
from fedprognos.federation.strategies import strategies
from fedprognos.networks import Bundle, Network

ABSORB = strategies["absorb"]


def imported(folder: Path, networks: dict[str, Network], plan, **options):  # type: ignore[no-untyped-def]
    """Clients that bring these networks, and a plan to federate them."""
    bundles = {n: Bundle(plan.recipe, network).save(folder / "bundles" / n) for n, network in networks.items()}
    federation = federation_options().model_validate(
        {"start": "bundles", "bundles": str(folder), "heads": ["exact"], "absorb": options}
    )
    return cohort_of(folder, "".join(networks), bundles=bundles), replace(plan, federation=federation)


def outputs(network: Network, seed: int = 0) -> np.ndarray:
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(8, 20, network.spec.inputs)).astype(np.float32))
    with torch.no_grad():
        return network.module().body(x)[0].numpy()


@pytest.mark.parametrize(("widths", "cell"), [((5,), "lstm"), ((4,), "gru")])
def test_permuted_copies_are_absorbed_into_one_of_them(widths: tuple[int, ...], cell: str, tmp_path: Path) -> None:
    plan = plan_of(widths=widths, cell=cell)
    network = Network.seeded(plan.spec, 5)
    copies = {}
    for k, name in enumerate("abc"):
        order = np.random.default_rng(k).permutation(widths[0])
        copies[name] = network.slice({"recurrent.0": order})
    cohort, federated = imported(tmp_path, copies, plan, width=1.0)
    (round_,) = ABSORB.run(cohort, federated)
    (small,) = round_.models.values()
    assert small.spec == plan.spec
    assert not any(isinstance(request, FitRequest) for _, request in cohort.asked)
    # The same features in some order: each neuron of the small network is one of the original's.
    found, wanted = outputs(small), outputs(network)
    distance = np.abs(found[..., :, None] - wanted[..., None, :]).max(axis=(0, 1))
    assert sorted(distance.argmin(axis=1).tolist()) == list(range(widths[0]))
    assert distance.min(axis=1).max() < 1e-5


def test_networks_of_any_width_become_the_width_asked_for_and_the_record_tells_how(tmp_path: Path) -> None:
    plan = plan_of()
    networks = {n: Network.seeded(plan.spec.with_widths({"recurrent.0": 3 + k}), k) for k, n in enumerate("abc")}
    cohort, federated = imported(tmp_path, networks, plan, width=1.2)
    (round_,) = ABSORB.run(cohort, federated)
    ((clients, small),) = round_.models.items()
    assert small.spec.widths == (6,)  # 1.2 times the widest, which has 5
    record = round_.absorbed
    assert {name: len(own) for name, own in record.neurons.items()} == {"a": 3, "b": 4, "c": 5}
    whole, without = record.contributions
    assert all(loss >= whole - 1e-9 for loss in without.values())
    assert record.repeats.shape == (3, 3)
    judged = with_heads(cohort, federated, clients, small)["exact"]
    assert np.isfinite(judged.validation_rmse or np.nan)


def test_keeping_every_neuron_is_concat(tmp_path: Path) -> None:
    plan = plan_of()
    networks = {n: Network.seeded(plan.spec, k) for k, n in enumerate("abc")}
    cohort, federated = imported(tmp_path, networks, plan, width=3.0)
    (round_,) = ABSORB.run(cohort, federated)
    (same,) = round_.models.values()
    joint = Network.concat([networks[n] for n in "abc"])
    for name, tensor in joint.weights.items():
        np.testing.assert_allclose(same.weights[name], tensor, atol=1e-6)


def test_many_clients_are_absorbed_in_groups_so_that_no_message_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_NEURONS", 12)
    plan = plan_of(widths=(4,))
    networks = {n: Network.seeded(plan.spec, k) for k, n in enumerate("abcdef")}
    cohort, federated = imported(tmp_path, networks, plan, width=1.5, group_width=1.0)
    (round_,) = ABSORB.run(cohort, federated)
    (small,) = round_.models.values()
    assert small.spec.widths == (6,)
    widest = max(r.network.spec.hidden for _, r in cohort.asked if hasattr(r, "network"))
    assert widest <= 12


def test_sums_that_cannot_be_are_refused_and_their_client_named(tmp_path: Path) -> None:
    def change(client: str, request: Request, reply: Reply) -> Reply | Failure:
        if client == "b" and isinstance(reply, OutputsReply):
            return OutputsReply(tuple(replace(o, S=-o.S) for o in reply.layers))
        return reply

    left: list[Failure] = []
    plan = plan_of(left.append, epochs=1, min_clients=2)
    rounds = list(ABSORB.run(cohort_of(tmp_path, change=change), plan))
    assert rounds[0].models
    assert {(f.client, f.code) for f in left} == {("b", "message")}


def test_a_second_round_trains_on_and_absorbs_again(tmp_path: Path) -> None:
    cohort = cohort_of(tmp_path)
    rounds = list(ABSORB.run(cohort, plan_of(epochs=1, absorb={"rounds": 2, "width": 1.0})))
    assert [r.number for r in rounds] == [1, 2]
    assert "federated" in rounds[1].absorbed.neurons
    fits = [request for _, request in cohort.asked if isinstance(request, FitRequest)]
    assert {f.round for f in fits} == {1, 2}


def test_all_clients_must_answer_by_default(tmp_path: Path) -> None:
    def change(client: str, request: Request, reply: Reply) -> Reply | Failure:
        return Failure("b", "worker", "died") if client == "b" and isinstance(reply, OutputsReply) else reply

    with pytest.raises(FederationError, match="client b"):
        list(ABSORB.run(cohort_of(tmp_path, change=change), plan_of(epochs=1)))
