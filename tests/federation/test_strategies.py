"""Contract checks over every strategy in the registry, and what each promises by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cohorts import HereCohort, cohort_of, plan_of

from fedprognos.errors import ConfigError, FederationError
from fedprognos.experiment import config
from fedprognos.federation.exchanges import Failure, Reply, Request, reply_kinds
from fedprognos.federation.exchanges.fit import FitReply, FitRequest
from fedprognos.federation.federation_section import federation_options
from fedprognos.federation.heads import with_heads
from fedprognos.federation.plan import Round
from fedprognos.federation.strategies import Budget, fedma, strategies
from fedprognos.networks import Bundle, Network, NetworkSpec
from refusals import refuses

BUDGET = Budget(epochs=1, hidden_layers=1, heads=("exact",))
TRAINED = [name for name, strategy in strategies.items() if strategy.epochs(strategy.options(), BUDGET)]
SHARED = [name for name in TRAINED if strategies[name].federated]
SHAPES = [((5,), "lstm", None), ((4, 3), "gru", None), ((4,), "lstm", 6)]


def clients_for(name: str) -> str:
    return "a" if strategies[name].pooled else "abc"


def run(name: str, cohort: HereCohort, plan=None) -> list[Round]:  # type: ignore[no-untyped-def]
    return list(strategies[name].run(cohort, plan or plan_of()))


def only(round_: Round) -> Network:
    (network,) = round_.models.values()
    return network


def same(a: Network, b: Network) -> bool:
    return a.spec == b.spec and all(np.array_equal(a.weights[k], b.weights[k]) for k in a.weights)


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", strategies)
def test_every_round_gives_models_that_fit_their_network(name: str, shape, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    widths, cell, input_width = shape
    plan = plan_of(widths=widths, cell=cell, input_width=input_width)
    rounds = run(name, cohort_of(tmp_path, clients_for(name)), plan)
    assert [r.number for r in rounds] == list(range(1, len(rounds) + 1))
    for round_, clients, network in ((r, *entry) for r in rounds for entry in r.models.items()):
        network.check(name)
        assert (round_.epochs_of(clients) > 0) == (name in TRAINED)
        assert network.spec.cell == cell
        judged = with_heads(cohort_of(tmp_path / "x", clients_for(name)), plan, clients, network)
        assert set(judged) == {"exact", "mean"}
        assert all(f.validation_rmse is not None and np.isfinite(f.validation_rmse) for f in judged.values())


@pytest.mark.long
@pytest.mark.parametrize("name", strategies)
def test_the_same_seed_gives_the_same_bytes_whatever_the_order_of_clients(name: str, tmp_path: Path) -> None:
    first = run(name, cohort_of(tmp_path / "1", clients_for(name)))
    turned = cohort_of(tmp_path / "2", clients_for(name))
    turned.members = dict(reversed(turned.members.items()))
    again = run(name, turned)
    for a, b in zip(first, again, strict=True):
        assert list(a.models) == list(b.models)
        assert all(same(a.models[clients], b.models[clients]) for clients in a.models)
    other = run(name, cohort_of(tmp_path / "3", clients_for(name)), plan_of(seed=4))
    assert (name not in TRAINED) == same(next(iter(first[-1].models.values())), next(iter(other[-1].models.values())))


@pytest.mark.parametrize("name", SHARED)
def test_one_client_is_enough(name: str, tmp_path: Path) -> None:
    rounds = run(name, cohort_of(tmp_path, "a"))
    assert only(rounds[-1]).spec.widths == (5,)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fails", "nan", "shape", "extra"])
@pytest.mark.parametrize("name", SHARED)
def test_a_client_that_misbehaves_is_left_out_or_stops_the_run(name: str, kind: str, tmp_path: Path) -> None:
    def change(client: str, request: Request, reply: Reply) -> Reply | Failure:
        if client != "b" or not isinstance(reply, FitReply):
            return reply
        if kind == "fails":
            return Failure("b", "worker", "died")
        weights = dict(reply.weights)
        if kind == "extra":
            weights["more"] = np.zeros(1, np.float32)
        elif kind == "nan":
            weights["head.bias"] = np.array([np.nan], np.float32)
        else:
            weights["head.weight"] = np.zeros((1, 99), np.float32)
        return replace(reply, weights=weights)

    left: list[Failure] = []
    rounds = run(name, cohort_of(tmp_path / "1", change=change), plan_of(left.append, min_clients=2))
    assert rounds
    assert {f.client for f in left} == {"b"}
    only(rounds[-1]).check(name)
    with refuses(FederationError, "client b", "2 of 3", "federation.min_clients"):
        run(name, cohort_of(tmp_path / "2", change=change))


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedma"])
def test_only_a_share_of_the_clients_takes_part_in_a_round(name: str, tmp_path: Path) -> None:
    cohort = cohort_of(tmp_path, "abcdef")
    rounds = run(name, cohort, plan_of(participation=0.5, fedavg={"rounds": 3}, fedprox={"rounds": 3}))
    by_round: dict[int, set[str]] = {}
    for client, request in cohort.asked:
        if isinstance(request, FitRequest) and request.phase == "local":
            by_round.setdefault(request.round, set()).add(client)
    assert len(by_round) == len(rounds)
    assert all(len(who) == 3 for who in by_round.values())
    assert len(set(map(frozenset, by_round.values()))) > 1


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedma"])
@pytest.mark.parametrize("next_round", ["grown", "sliced"])
def test_clients_may_join_late_and_leave_early(name: str, next_round: str, tmp_path: Path) -> None:
    cohort = cohort_of(tmp_path)
    cohort.absent = {"c"}
    options = {"rounds": 3}
    plan = plan_of(fedavg=options, fedprox=options, fedma={**options, "next_round": next_round})
    seen = []
    for round_ in strategies[name].run(cohort, plan):
        seen.append(set(cohort.clients))
        cohort.absent = {"c"} if round_.number == 0 else set() if round_.number == 1 else {"a"}
        only(round_).check(name)
    assert seen == [{"a", "b"}, {"a", "b", "c"}, {"b", "c"}]


def test_fedavg_is_the_mean_weighted_by_data(tmp_path: Path) -> None:
    cohort = cohort_of(tmp_path)
    first = only(run("fedavg", cohort)[0])
    fits = [(n, d) for n, d in cohort.sent if b"FitReply" in d][:3]
    from fedprognos.federation.codec import decode

    replies = [decode(d, reply_kinds()) for _, d in fits]
    total = sum(r.windows for r in replies)
    for tensor, array in first.weights.items():
        expected = sum(r.windows / total * r.weights[tensor].astype(np.float64) for r in replies)
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-8)


def test_fedprox_holds_clients_near_the_federated_model(tmp_path: Path) -> None:
    def moved(mu: float) -> float:
        plan = plan_of(fedprox={"rounds": 1, "epochs": 3, "mu": mu})
        weights = only(run("fedprox", cohort_of(tmp_path / str(mu)), plan)[0]).weights
        start = plan.common_start().weights
        return float(sum(np.square(weights[k] - start[k]).sum() for k in weights))

    assert moved(100.0) < 0.2 * moved(1e-9)


def outputs(network: Network, seed: int = 0) -> np.ndarray:
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(16, 8, network.spec.inputs)).astype(np.float32))
    with torch.no_grad():
        return network.module()(x).numpy()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_concat_puts_out_the_mean_of_the_clients_outputs(shape, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    widths, cell, input_width = shape
    plan = plan_of(widths=widths, cell=cell, input_width=input_width)
    local = run("local", cohort_of(tmp_path / "1"), plan)[0].models
    joint = only(run("concat", cohort_of(tmp_path / "2"), plan)[0])
    assert joint.spec.widths == tuple(3 * w for w in widths)
    mean = np.mean([outputs(network) for network in local.values()], axis=0)
    np.testing.assert_allclose(outputs(joint), mean, atol=1e-5)


def test_single_keeps_the_body_whose_exact_head_does_best(tmp_path: Path) -> None:
    plan = plan_of()
    ((clients, network),) = run("single", cohort_of(tmp_path / "1"), plan)[-1].models.items()
    bodies = list(run("local", cohort_of(tmp_path / "2"), plan)[-1].models.values())
    everyone = cohort_of(tmp_path / "3")
    errors = [with_heads(everyone, plan, clients, body)["exact"].validation_rmse for body in bodies]
    assert same(network, bodies[int(np.argmin(np.array(errors, dtype=float)))])
    assert clients == ("a", "b", "c")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("signature", ["ih", "ih+hh"])
def test_three_permuted_copies_of_a_model_federate_into_that_model(shape, signature: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    widths, cell, input_width = shape
    plan = plan_of(widths=widths, cell=cell, input_width=input_width)
    network = Network.seeded(plan.spec, 5)
    bundles = {}
    for k, name in enumerate("abc"):
        rng = np.random.default_rng(k)
        permuted = network.slice({group: rng.permutation(n) for group, n in network.widths.items()})
        bundles[name] = Bundle(plan.recipe, permuted).save(tmp_path / "bundles" / name)
    section = federation_options().model_validate(
        {"start": "bundles", "bundles": str(tmp_path), "heads": ["exact"], "fedma": {"signature": signature}}
    )
    cohort = cohort_of(tmp_path, bundles=bundles)
    federated = only(run("fedma", cohort, replace(plan, federation=section))[0])
    assert federated.spec == plan.spec
    if len(widths) == 1 and input_width is None:  # nothing was retrained in between
        np.testing.assert_allclose(outputs(federated), outputs(network), atol=1e-5)


def test_models_of_different_widths_federate_in_one_exchange(tmp_path: Path) -> None:
    plan = plan_of()
    bundles = {}
    for k, name in enumerate("abc"):
        network = Network.seeded(plan.spec.with_widths({"recurrent.0": 4 + k}), k)
        bundles[name] = Bundle(plan.recipe, network).save(tmp_path / "bundles" / name)
    section = federation_options().model_validate({"start": "bundles", "bundles": str(tmp_path), "heads": ["exact"]})
    for name in ("concat", "fedma"):
        cohort = cohort_of(tmp_path / name, bundles=bundles)
        ((clients, network),) = run(name, cohort, replace(plan, federation=section))[0].models.items()
        judged = with_heads(cohort, replace(plan, federation=section), clients, network)["exact"]
        assert 6 <= network.spec.widths[0] <= 15
        assert not any(isinstance(r, FitRequest) for _, r in cohort.asked)
        assert np.isfinite(judged.validation_rmse or np.nan)


def test_models_of_another_recipe_are_refused(tmp_path: Path) -> None:
    plan = plan_of()
    other = plan.recipe.model_copy(update={"label_mean": 1.0})
    network = Network.seeded(plan.spec, 0)
    bundles = {n: Bundle(other, network).save(tmp_path / "bundles" / n) for n in "abc"}
    section = federation_options().model_validate({"start": "bundles", "bundles": str(tmp_path)})
    with refuses(FederationError, "client a"):
        run("concat", cohort_of(tmp_path, bundles=bundles), replace(plan, federation=section))


def test_growth_is_limited_and_sliced_back(tmp_path: Path) -> None:
    fixed = run("fedma", cohort_of(tmp_path / "1"), plan_of(fedma={"width_limit": 1.0}))
    assert [only(r).spec.widths for r in fixed] == [(5,), (5,)]
    limited = run("fedma", cohort_of(tmp_path / "2"), plan_of(fedma={"width_limit": 1.5, "next_round": "sliced"}))
    assert all(5 <= only(r).spec.widths[0] <= 7 for r in limited)


def test_a_fedma_round_of_q_layers_asks_each_client_q_times(tmp_path: Path) -> None:
    for widths, input_width in (((5,), None), ((4, 3), None), ((4,), 6)):
        cohort = cohort_of(tmp_path / f"{widths}{input_width}")
        plan = plan_of(widths=widths, input_width=input_width, fedma={"rounds": 1})
        run("fedma", cohort, plan)
        asked = [r for n, r in cohort.asked if n == "a"]
        assert len(asked) == plan.spec.layers
        # Frozen layers are not sent back: the last phase returns the head alone.
        last = [d for n, d in cohort.sent if n == "a"][-1]
        assert len(last) < 1500


def test_collapsed_clients_are_kept_out_and_reported(tmp_path: Path) -> None:
    def change(client: str, request: Request, reply: Reply) -> Reply | Failure:
        return replace(reply, collapsed=True) if client == "c" and isinstance(reply, FitReply) else reply

    left: list[Failure] = []
    rounds = run("concat", cohort_of(tmp_path, change=change), plan_of(left.append))
    assert only(rounds[0]).spec.widths == (10,)
    assert [(f.client, f.code) for f in left] == [("c", "collapsed")]

    def all_collapsed(client: str, request: Request, reply: Reply) -> Reply | Failure:
        return replace(reply, collapsed=True) if isinstance(reply, FitReply) else reply

    left.clear()
    rounds = run("concat", cohort_of(tmp_path / "2", change=all_collapsed), plan_of(left.append))
    assert only(rounds[0]).spec.widths == (15,)
    assert {f.client for f in left} == {"a", "b", "c"}


def test_central_refuses_several_clients_and_names_are_checked(tmp_path: Path) -> None:
    with refuses(ConfigError, "central"):
        run("central", cohort_of(tmp_path))
    with refuses(ConfigError, "'fedm'", "'fedma'"):
        strategies["fedm"]


def test_the_solver_of_an_experiment_reaches_the_matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    _, experiment, _ = config.load("plants", ("federation.fedma.solver='lapx'",))
    network = Network.seeded(NetworkSpec(inputs=2, widths=(3,)), 0)
    used: list[object] = []
    monkeypatch.setattr(fedma, "match_recurrent", lambda clients, **given: used.append(given["solver"]))
    sizes = dict.fromkeys("ab", 1.0)
    fedma.bbp_map(network.anatomy.layers[0], dict.fromkeys("ab", network), sizes, experiment.federation.fedma, 0)
    assert used == ["lapx"]
