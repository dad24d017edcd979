"""Absorption over clients: copies are recovered, sums are checked, many clients go in groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cohorts import HereCohort, cohort_of, plan_of
from pydantic import ValidationError

from fedprognos.errors import FederationError
from fedprognos.experiment.match_summary import match_round
from fedprognos.federation import absorb_steps
from fedprognos.federation.codec import encode
from fedprognos.federation.exchanges import Failure, Reply, Request
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.exchanges.fit import FitReply, FitRequest
from fedprognos.federation.exchanges.outputs import OutputsReply, OutputsRequest
from fedprognos.federation.federation_section import federation_options
from fedprognos.federation.heads import with_heads
from fedprognos.federation.strategies import strategies
from fedprognos.federation.strategies.absorb import AbsorbOptions
from fedprognos.federation.totals import masked_total
from fedprognos.networks import Bundle, Network, NetworkSpec
from fedprognos.networks.head import mean_squared_error, solve_head
from refusals import refuses

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
    whole, without = record.whole, record.without
    assert all(loss >= whole - 1e-9 for loss in without.values())
    assert record.repeats.shape == (3, 3)
    judged = with_heads(cohort, federated, clients, small)["exact"]
    assert np.isfinite(judged.validation_rmse or np.nan)


def test_the_record_is_written_down_with_pairs_of_neurons_and_their_outputs(tmp_path: Path) -> None:
    plan = plan_of()
    networks = {n: Network.seeded(plan.spec, k % 2) for k, n in enumerate("abc")}  # a and c are the same
    cohort, federated = imported(tmp_path, networks, plan, width=2.0)
    (round_,) = ABSORB.run(cohort, federated)
    window = np.random.default_rng(1).normal(size=(1, 20, plan.spec.inputs)).astype(np.float32)
    told = match_round(round_, window).model_dump()["absorption"]
    assert told["neurons"] == {"a": 5, "b": 5, "c": 5}
    assert sum(told["kept"].values()) == 10
    assert told["repeats"][0][2] == pytest.approx(1.0, abs=1e-3)
    assert told["predicted"][10] == pytest.approx(told["whole"], rel=1e-2)
    assert {tuple(sorted((pair["absorbed"][0], pair["kept"][0]))) for pair in told["pairs"][:5]} == {("a", "c")}
    for pair in told["pairs"][:5]:
        assert pair["absorbed"][1] == pair["kept"][1]
        np.testing.assert_allclose(*pair["before"], atol=1e-3)
        np.testing.assert_allclose(pair["before"][0], pair["after"][0], atol=1e-2)


def test_keeping_every_neuron_is_concat(tmp_path: Path) -> None:
    plan = plan_of()
    networks = {n: Network.seeded(plan.spec, k) for k, n in enumerate("abc")}
    cohort, federated = imported(tmp_path, networks, plan, width=3.0)
    (round_,) = ABSORB.run(cohort, federated)
    (same,) = round_.models.values()
    joint = Network.concat([networks[n] for n in "abc"])
    for name, tensor in joint.weights.items():
        np.testing.assert_allclose(same.weights[name], tensor, atol=1e-6)


def in_groups(folder: Path, clients: str) -> tuple[HereCohort, Network]:
    plan = plan_of(widths=(4,))
    networks = {n: Network.seeded(plan.spec, k) for k, n in enumerate(clients)}
    cohort, federated = imported(folder, networks, plan, width=1.5)
    (round_,) = ABSORB.run(cohort, federated)
    (small,) = round_.models.values()
    return cohort, small


@pytest.mark.long
def test_with_many_clients_no_message_grows_and_each_client_is_asked_once_a_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absorb_steps, "MOST_NEURONS", 12)
    largest, asked = {}, {}
    for clients in ("abc", "abcdefghi", "abcdefghijklmnopqr"):
        cohort, small = in_groups(tmp_path / clients, clients)
        assert small.spec.widths == (6,)
        largest[clients] = max(len(data) for _, data in cohort.sent)
        asked[clients] = max(
            sum(isinstance(r, OutputsRequest) for name, r in cohort.asked if name == client) for client in clients
        )
    assert list(asked.values()) == [1, 2, 3]  # three clients fit at once, nine in groups, eighteen in groups of groups
    assert max(largest.values()) == largest["abc"]


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


def fits(cohort: HereCohort, round_: int) -> dict[str, FitRequest]:
    return {name: r for name, r in cohort.asked if isinstance(r, FitRequest) and r.round == round_}


def test_further_rounds_train_on_from_one_network_and_average_it(tmp_path: Path) -> None:
    cohort, trained = cohort_of(tmp_path), dict[str, FitReply]()

    def keep(client: str, request: Request, reply: Reply) -> Reply:
        if isinstance(request, FitRequest) and isinstance(reply, FitReply) and request.round == 2:
            trained[client] = reply
        return reply

    cohort.change = keep
    rounds = list(ABSORB.run(cohort, plan_of(epochs=1, absorb={"rounds": 2, "width": 1.0})))
    assert [r.number for r in rounds] == [1, 2]
    assert [r.absorbed is None for r in rounds] == [False, True]
    requests = list(fits(cohort, 2).values())
    assert {r.training.learning_rate for r in requests} == {0.025}  # half the rate of before
    assert len({encode(r) for r in requests}) == 1
    (network,) = rounds[1].models.values()
    total = sum(reply.windows for reply in trained.values())
    for name in network.weights:
        mean = sum(reply.windows * reply.weights[name].astype(float) for reply in trained.values()) / total
        np.testing.assert_allclose(network.weights[name], mean, atol=1e-6)


def test_clients_that_join_or_leave_between_rounds_change_who_trains_and_whose_rows_count(tmp_path: Path) -> None:
    cohort = cohort_of(tmp_path)
    cohort.absent = {"c"}
    rounds = ABSORB.run(cohort, plan_of(epochs=1, absorb={"rounds": 2, "width": 1.0}))
    first = next(rounds)
    cohort.absent = {"a"}
    second = next(rounds)
    assert (set(fits(cohort, 1)), set(fits(cohort, 2))) == ({"a", "b"}, {"b", "c"})
    assert (set(first.absorbed.neurons), *second.models) == ({"a", "b"}, ("b", "c"))


def test_of_some_clients_bodies_all_clients_rows_judge(tmp_path: Path) -> None:
    cohort = cohort_of(tmp_path)
    (round_,) = ABSORB.run(cohort, plan_of(epochs=1, participation=0.5))
    trained = set(fits(cohort, 1))
    assert len(trained) == 2
    assert set(round_.absorbed.neurons) == trained
    assert {name for name, r in cohort.asked if isinstance(r, OutputsRequest)} == {"a", "b", "c"}


def test_a_collapsed_client_gives_no_neurons(tmp_path: Path) -> None:
    def change(client: str, request: Request, reply: Reply) -> Reply:
        return replace(reply, collapsed=client == "b") if isinstance(reply, FitReply) else reply

    left: list[Failure] = []
    (round_,) = ABSORB.run(cohort_of(tmp_path, change=change), plan_of(left.append, epochs=1))
    assert set(round_.absorbed.neurons) == {"a", "c"}
    assert [(f.client, f.code) for f in left] == [("b", "collapsed")]


def test_all_clients_must_answer_by_default(tmp_path: Path) -> None:
    def change(client: str, request: Request, reply: Reply) -> Reply | Failure:
        return Failure("b", "worker", "died") if client == "b" and isinstance(reply, OutputsReply) else reply

    with refuses(FederationError, "client b"):
        list(ABSORB.run(cohort_of(tmp_path, change=change), plan_of(epochs=1)))


@pytest.mark.parametrize("method", ["concat", "absorb", "fedma"])
def test_where_steps_decide_the_epochs_told_are_those_that_were_trained(method: str, tmp_path: Path) -> None:
    plan = plan_of(widths=(3,), heads=["exact"])
    plan = replace(plan, train=plan.train.model_copy(update={"steps": 5, "epochs": 30, "batch_size": 16}))
    round_ = next(iter(strategies[method].run(cohort_of(tmp_path, "ab"), plan)))
    assert round_.epochs == max(len(epochs) for epochs in round_.history.values()) < 30


@pytest.mark.parametrize("change", [{"widths": (3, 4)}, {"input_width": 3}, {"reservoir": 6}, {"direct": 2}])
def test_a_model_of_another_shape_is_left_out_by_name(change: dict[str, object], tmp_path: Path) -> None:
    plan = plan_of(widths=(3,))
    odd = NetworkSpec(**{**plan.spec.model_dump(), **change})  # type: ignore[arg-type]
    networks = {"a": Network.seeded(plan.spec, 0), "b": Network.seeded(odd, 1), "c": Network.seeded(plan.spec, 2)}
    cohort, federated = imported(tmp_path, networks, plan)
    with refuses(FederationError, "client b"):
        list(ABSORB.run(cohort, federated))


def test_over_whole_lives_of_many_a_layers_sums_come_with_the_heads_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absorb_steps, "MANY_CLIENTS", 2)
    plan = plan_of(widths=(5,))
    plan = replace(plan, recipe=plan.recipe.model_copy(update={"life": True, "window": 1, "stride": 1}))
    networks = {n: Network.seeded(plan.spec, k) for k, n in enumerate("abc")}
    cohort, federated = imported(tmp_path, networks, plan, width=1.2)
    (round_,) = ABSORB.run(cohort, federated)
    assert not any(isinstance(request, OutputsRequest) for _, request in cohort.asked)
    (small,) = round_.models.values()
    assert small.spec.widths == (6,)
    sums = cohort.ask(dict.fromkeys("abc", OutputsRequest(plan.recipe, round_.absorbed.before, plan.seed, 0.3)))
    total = sum(reply.layers[0].S for reply in sums.values() if isinstance(reply, OutputsReply))
    np.testing.assert_allclose(round_.absorbed.sums.S, total, atol=1e-5 * np.abs(total).max())


@pytest.mark.long
@pytest.mark.parametrize(("clients", "width"), [(20, 64), (200, 64), (200, 128), (30, 130), (200, 130), (20, 300)])
def test_no_sums_grow_with_the_clients_however_wide_they_are(
    clients: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def body_of(width: int) -> Network:
        return Network.seeded(NetworkSpec(inputs=1, widths=(width,), cell="gru"), 0)

    def absorb_group(
        cohort: object, plan: object, wide: Network, members: object, target: int, alpha: float
    ) -> Network:
        asked.append(wide.spec.hidden)
        return body_of(target)

    monkeypatch.setattr(absorb_steps, "absorb_group", absorb_group)
    bodies = {(f"c{k:03d}",): body_of(width) for k in range(clients)}
    cohort = SimpleNamespace(clients=(), sums=None)
    left = absorb_steps.in_groups(cohort, None, bodies, width, 0.3)  # type: ignore[arg-type]
    assert max(asked) <= absorb_steps.MOST_NEURONS
    assert sum(body.spec.hidden for body in left.values()) <= absorb_steps.MOST_NEURONS
    assert sorted(name for members in left for name in members) == sorted(name for (name,) in bodies)


def test_a_group_that_is_narrow_enough_asks_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absorb_steps, "MOST_NEURONS", 8)
    plan = plan_of(widths=(2,))
    networks = {name: Network.seeded(plan.spec, k) for k, name in enumerate("abcde")}
    cohort, federated = imported(tmp_path, networks, plan)
    (round_,) = ABSORB.run(cohort, federated)
    asked = [request.network.spec.hidden for _, request in cohort.asked if isinstance(request, OutputsRequest)]
    assert sorted(asked) == [6] * 3 + [8] * 5  # a group of three; one of two has four neurons, which there is room for
    assert round_.models


def test_the_error_of_keeping_every_neuron_is_measured_on_what_was_kept_out(tmp_path: Path) -> None:
    plan = plan_of(widths=(5,))
    cohort, federated = imported(tmp_path, {"a": Network.seeded(plan.spec, 0)}, plan, width=0.6)
    federated = replace(federated, train=federated.train.model_copy(update={"validation_fraction": 0.3}))
    (round_,) = ABSORB.run(cohort, federated)
    assert round_.absorbed is not None
    assert set(round_.absorbed.measured) == {3, 5}
    assert round_.absorbed.width == 3


@pytest.mark.parametrize(
    ("alike", "fraction", "width"),
    [(True, 0.3, 6), (False, 0.3, 18), (False, 0.0, 6)],
    ids=["the narrowest is as good", "none is as good", "nothing to choose by"],
)
def test_of_several_widths_the_narrowest_as_good_as_all_neurons_is_taken(
    alike: bool, fraction: float, width: int, tmp_path: Path
) -> None:
    plan = plan_of(widths=(6,))
    networks = {name: Network.seeded(plan.spec, 0 if alike else k) for k, name in enumerate("abc")}
    cohort, federated = imported(tmp_path, networks, plan, width=[1.5, 1.0], alpha=0.3)
    federated = replace(federated, train=federated.train.model_copy(update={"validation_fraction": fraction}))
    (round_,) = ABSORB.run(cohort, federated)
    (small,) = round_.models.values()
    record = round_.absorbed
    assert record is not None
    assert small.spec.hidden == record.width == width
    as_good = [w for w, error in record.measured.items() if error <= 1.01 * record.measured[18]]
    assert not fraction or width == min(as_good)
    assert set(record.measured) == (set() if not fraction else {6, 18} if alike else {6, 9, 18})


def test_a_masked_sum_that_no_outputs_have_ends_the_step_and_is_forgotten(tmp_path: Path) -> None:
    plan = plan_of()
    cohort = cohort_of(tmp_path, "abc")
    request = OutputsRequest(plan.recipe, Network.seeded(plan.spec, 1), plan.seed, 0.3)
    (one,) = cohort.ask({"a": request}).values()
    assert isinstance(one, OutputsReply)
    layer = one.layers[0]
    impossible = OutputsReply((replace(layer, s=layer.s + 10 * layer.n),))
    forgotten: list[object] = []
    total = SimpleNamespace(total=lambda *_: (impossible, ("a", "b", "c")), forget=forgotten.append)
    cohort.sums = total  # type: ignore[assignment]
    with refuses(FederationError, "3 clients"):
        masked_total(cohort, dict.fromkeys("abc", request), None, lambda failure: None)
    assert len(forgotten) == 1


@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_of_several_alphas_the_one_whose_small_network_fits_best_is_taken(fraction: float, tmp_path: Path) -> None:
    plan = plan_of(widths=(6,))
    networks = {name: Network.seeded(plan.spec, k) for k, name in enumerate("abc")}

    def error(alpha: object) -> tuple[float, float]:
        folder = tmp_path / str(alpha)
        cohort, federated = imported(folder, networks, plan, width=1.0, alpha=alpha)
        federated = replace(federated, train=federated.train.model_copy(update={"validation_fraction": fraction}))
        (round_,) = ABSORB.run(cohort, federated)
        (small,) = round_.models.values()
        assert round_.absorbed is not None
        fit, _ = evaluate(cohort, federated, cohort.clients, small).head_statistics
        return mean_squared_error(fit, solve_head(fit, federated.federation.ridge)), round_.absorbed.alpha

    every = {alpha: error(alpha)[0] for alpha in (0.0, 0.3, 300.0)}
    assert len(set(every.values())) > 1
    assert error([0.0, 0.3, 300.0]) == (min(every.values()), min(every, key=lambda alpha: every[alpha]))


def test_two_groups_keep_as_many_neurons_as_the_last_sums_have_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absorb_steps, "MOST_NEURONS", 12)
    cohort, _ = in_groups(tmp_path, "abcde")  # twenty neurons: twelve and eight, each to six
    asked = [request.network.spec.hidden for _, request in cohort.asked if isinstance(request, OutputsRequest)]
    assert set(asked) == {12, 8}
    assert asked.count(12) == 3 + 5  # a group of three, and everybody at the end


def test_a_masked_sum_that_cannot_be_unmasked_says_so_and_nothing_else(tmp_path: Path) -> None:
    failure = FederationError("too few shares to unmask a sum")

    def fails(*_: object) -> None:
        raise failure

    plan = plan_of()
    cohort, forgotten = cohort_of(tmp_path, "abc"), list[object]()
    cohort.sums = SimpleNamespace(total=fails, forget=forgotten.append)  # type: ignore[assignment]
    request = OutputsRequest(plan.recipe, Network.seeded(plan.spec, 1), plan.seed, 0.3)
    with pytest.raises(FederationError) as raised:
        masked_total(cohort, dict.fromkeys("abc", request), None, lambda failure: None)
    assert str(raised.value) == str(failure)
    assert not forgotten


@pytest.mark.parametrize(
    ("alpha", "reason"), [([], "too_short"), ([0.3, -1], "greater_than_equal"), ("many", "tuple_type")]
)
def test_alpha_is_a_number_or_several(alpha: object, reason: str) -> None:
    assert AbsorbOptions.model_validate({"alpha": 2}).alpha == (2.0,)
    assert AbsorbOptions.model_validate({"alpha": [0.3, 3]}).model_dump()["alpha"] == [0.3, 3.0]
    with pytest.raises(ValidationError) as refused:
        AbsorbOptions.model_validate({"alpha": alpha})
    # One reason, not one for each form that it could have had.
    assert [error["type"] for error in refused.value.errors()] == [reason]
