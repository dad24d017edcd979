"""What leaves a client, and what does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cohorts import cohort_of, common_recipe, plan_of, small_fleets

from fedprognos.features import SurveyTerms, build_windows, hold_out
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.exchanges import Failure, reply_kinds
from fedprognos.federation.exchanges.evaluate import EvaluateRequest
from fedprognos.federation.exchanges.fit import FitRequest
from fedprognos.federation.exchanges.import_model import ImportRequest
from fedprognos.federation.exchanges.personal import PersonalReply, PoolReply, personal_heads
from fedprognos.federation.exchanges.residuals import ResidualReply, ResidualRequest
from fedprognos.federation.exchanges.survey import SurveyRequest
from fedprognos.federation.heads import with_heads
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import Fleet, Unit
from fedprognos.networks import Network, predict
from fedprognos.networks.calibration import POINTS, HeadSums
from fedprognos.networks.head import HeadStatistics, add_all, exact_head, head_statistics, solve_head
from fedprognos.privacy.floors import Floors
from fedprognos.privacy.secret_split import RESERVE, reserved, stream
from small_fleets import CYCLIC, SERIES, cyclic_unit, series_fleet

PLAN = plan_of(heads=["exact", "mean", "personal"])


NETWORK = Network.seeded(PLAN.spec, 0)


def residual_request(ranges=(10.0, 20.0), edges=(0.0,), **more):  # type: ignore[no-untyped-def]
    return ResidualRequest(PLAN.recipe, NETWORK, 0, 0.0, np.array(ranges), np.array(edges), **more)


def everything_sent(folder: Path) -> tuple[dict[str, Fleet], list[tuple[str, bytes]]]:
    """All messages of a whole federation: survey, every strategy, every head, residuals, failures."""
    cohort = cohort_of(folder)
    cohort.ask(dict.fromkeys("abc", SurveyRequest(SurveyTerms(conditions={"altitude": 0}))))
    for name in ("local", "fedavg", "concat", "fedma"):
        for round_ in strategies[name].run(cohort, PLAN):
            for clients, network in round_.models.items():
                shared = with_heads(cohort, PLAN, clients, network)["exact"]
                personal_heads(cohort, PLAN, shared.network, cohort.clients)
    edges = np.linspace(-40, 40, 9)
    cohort.ask(dict.fromkeys("abc", residual_request(edges=edges)))
    cohort.ask(dict.fromkeys("abc", ImportRequest()))
    return small_fleets(), cohort.sent


def test_no_row_no_unit_no_time_is_in_any_message(tmp_path: Path) -> None:
    fleets, sent = everything_sent(tmp_path)
    assert {"SurveyReply", "FitReply", "EvaluateReply", "PoolReply", "PersonalReply", "Failure"} <= {
        json.loads(json.loads(d[8 : 8 + int.from_bytes(d[:8], "little")])["__metadata__"]["fedprognos"])["kind"]
        for _, d in sent
    }
    for client, data in sent:
        for unit in fleets[client]:
            assert unit.id.encode() not in data
            for value in unit.sensors.ravel()[::7]:
                assert np.float64(value).tobytes() not in data
                assert repr(float(value)).encode() not in data
            scaled, _ = PLAN.recipe.scale(unit.sensors, unit.settings)
            for row in scaled[::5]:
                assert row.tobytes() not in data


def test_no_duration_of_a_cycle_is_told_as_it_stands(tmp_path: Path) -> None:
    unit = cyclic_unit("secret", 30, 1)
    client = Client("a", Fleet("f", CYCLIC, (unit,)), ClientFolder(tmp_path))
    data = client.respond(encode(SurveyRequest(SurveyTerms())))
    for time in unit.time:
        assert time == 0 or (np.float64(time).tobytes() not in data and repr(float(time)).encode() not in data)


def test_the_ledger_lists_every_message_that_left(tmp_path: Path) -> None:
    _, sent = everything_sent(tmp_path)
    for name in "abc":
        lines = ClientFolder(tmp_path / name).ledger()
        mine = [data for client, data in sent if client == name]
        assert [line.bytes for line in lines] == [len(data) for data in mine]
        fits = [line for line in lines if line.kind == "FitReply"]
        assert all("/weights/head.bias" in line.tensors for line in fits)
        assert all(line.tensors == {} for line in lines if line.kind == "PersonalReply")


def test_full_errors_stay_in_the_owners_log(tmp_path: Path) -> None:
    bad = common_recipe().model_copy(update={"window": 999, "short": "exclude"})
    client = cohort_of(tmp_path).members["a"]
    reply = decode(client.respond(encode(replace(fit_request(), recipe=bad))), reply_kinds())
    assert isinstance(reply, Failure)
    assert reply.code == "recipe"
    assert "999" not in reply.text
    assert "70" not in reply.text
    assert "longest: 70 rows" in (ClientFolder(tmp_path / "a").last_error() or "")


def fit_request() -> FitRequest:
    return FitRequest(PLAN.recipe, PLAN.train.training(), 0.3, 0, spec=PLAN.spec)


@pytest.mark.parametrize(
    "request_",
    [
        replace(fit_request(), spec=PLAN.spec.with_widths({"recurrent.0": 5000})),
        replace(fit_request(), training=PLAN.train.training(10**7)),
        replace(fit_request(), frozen=2),
        replace(fit_request(), spec=None, start=Network(PLAN.spec, {"head.bias": np.zeros(1, np.float32)})),
        residual_request(edges=np.arange(1e4)),
        residual_request(edges=[1.0, 1.0]),
        residual_request(ranges=np.arange(1e3)),
        residual_request(ranges=[[1.0, 2.0]]),
        residual_request(stretch=0.5),
        residual_request(sums=HeadSums(HeadStatistics(900, 900.0, np.eye(2), np.ones(2)), 0.1)),
        EvaluateRequest(PLAN.recipe, Network(PLAN.spec, {}), 0, 0.3),
    ],
    ids=[
        *("huge network", "endless", "all frozen", "tensors missing", "fine edges", "flat edges", "many ranges"),
        *("ranges of ranges", "flattered", "another head", "no weights"),
    ],
)
def test_requests_are_checked_before_they_are_answered(request_, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    reply = decode(cohort_of(tmp_path).members["a"].respond(encode(request_)), reply_kinds())
    assert isinstance(reply, Failure)
    assert reply.client == "a"


def test_statistics_of_few_are_not_told(tmp_path: Path) -> None:
    tiny = Client("t", series_fleet([26], conditions=1, name="t"), ClientFolder(tmp_path))
    recipe = common_recipe().model_copy(update={"stride": 2, "condition_keys": ((0.0,),), "mean": ((0.0, 0.0),),
                                                "std": ((1.0, 1.0),)})  # fmt: skip
    asked = EvaluateRequest(recipe, NETWORK, 0, 0.3, statistics=True)
    reply = decode(tiny.respond(encode(asked)), reply_kinds())
    assert isinstance(reply, Failure)
    assert reply.code == "floor" and "20" in reply.text
    few = Client("f", series_fleet([40] * 4, name="f"), ClientFolder(tmp_path / "f"), Floors(units=5))
    reply = decode(few.respond(encode(residual_request())), reply_kinds())
    assert reply.code == "floor" and "20" in reply.text and "5" in reply.text


@pytest.mark.parametrize(("units", "reserve"), [(9, 0), (10, 5), (50, 5), (51, 6), (80, 8)])
def test_a_reserve_is_a_tenth_of_the_units_and_never_fewer_than_the_floor(
    units: int, reserve: int, tmp_path: Path
) -> None:
    client = Client("f", series_fleet([40] * units, name="f"), ClientFolder(tmp_path / "f"), Floors(units=5))
    reply = client.answer(residual_request(ranges=(), edges=(), only_reserve=True))
    assert isinstance(reply, ResidualReply)
    assert (int(reply.units[0]), int(reply.counts.sum())) == (reserve, reserve * POINTS)


def test_every_unit_tells_as_many_residuals(tmp_path: Path) -> None:
    client = Client("m", series_fleet([40] * 30, seed=4, name="many"), ClientFolder(tmp_path))
    reply = client.answer(residual_request(ranges=(), edges=(-1.0, 0.0, 1.0)))
    assert isinstance(reply, ResidualReply)
    assert reply.counts.shape == (1, 4)
    assert reply.counts.sum() == 30 * POINTS
    assert reply.units.tolist() == [30]


@pytest.mark.parametrize("bounds", [(1e-6,), (20.0, 20.1, 20.2, 20.3), (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0)])
def test_no_range_tells_of_fewer_units_than_the_floor(bounds: tuple[float, ...], tmp_path: Path) -> None:
    fleet = series_fleet([30 + k for k in range(25)], seed=4, name="many")
    client = Client("m", fleet, ClientFolder(tmp_path), Floors(units=5, parts=True))
    reply = client.answer(residual_request(ranges=bounds))
    assert isinstance(reply, ResidualReply)
    assert reply.counts.sum() == 25 * POINTS
    told = reply.counts.sum(axis=1) > 0
    assert (reply.units[told] >= 5).all()
    assert (reply.counts[reply.counts > 0] >= 20).all()
    assert (reply.units[~told] == 0).all()


def test_the_reserve_is_not_learnt_from(tmp_path: Path) -> None:
    client = cohort_of(tmp_path).members["c"]
    whole, rest = (client.answer(replace(fit_request(), without_reserve=without)) for without in (False, True))
    assert rest.windows < whole.windows  # type: ignore[union-attr]
    windows = build_windows(PLAN.recipe, client.fleet)
    reserve = reserved(windows, client.split_seed(0, "reserve", RESERVE), client.floors)
    kept, apart = (set(windows.unit[part].tolist()) for part in (~reserve, reserve))
    assert not kept & apart
    assert kept | apart == set(windows.unit.tolist())
    assert set(client.learnt_from(PLAN.recipe, 0, without_reserve=True).unit.tolist()) == kept


def test_the_exact_head_is_the_head_of_the_pooled_features(tmp_path: Path) -> None:
    """Predictions of the head solved from sums equal those of one solved on all rows at once."""
    plan = plan_of(heads=["exact"], widths=(6,))
    cohort = cohort_of(tmp_path)
    ((clients, network),) = next(iter(strategies["concat"].run(cohort, plan))).models.items()
    federated = with_heads(cohort, plan, clients, network)["exact"].network
    module = network.module()
    fits, helds, windows = [], [], []
    for name, fleet in small_fleets().items():
        own = build_windows(plan.recipe, fleet)
        fit, held = hold_out(own, 0.3, stream(plan.seed, name, 0, "validation"), "rul")
        fits.append(head_statistics(network, fit, plan.recipe))
        if held is not None and len(held) >= 20:
            helds.append(head_statistics(network, held, plan.recipe))
        else:
            fits[-1] = head_statistics(network, own, plan.recipe)
        windows.append(own)
    strength = exact_head(add_all(fits), add_all(helds) if helds else None, 1e-4).strength
    # The plain way: stack all features, solve the ridge problem by least squares on an augmented matrix.
    import torch

    features, targets = [], []
    for own in windows:
        with torch.no_grad():
            x = torch.from_numpy(own.batch(np.arange(len(own))))
            features.append(module.run(x, 0, network.spec.layers - 1).numpy().astype(np.float64))
        targets.append(plan.recipe.encode(own.labels))
    h = np.concatenate(features)
    h = np.concatenate([h, np.ones((len(h), 1))], axis=1)
    y = np.concatenate(targets)
    spread = np.square(h[:, :-1] - h[:, :-1].mean(axis=0)).sum(axis=0)
    penalty = np.sqrt(strength * spread)[:, None] * np.eye(h.shape[1])[:-1]
    plain = np.linalg.lstsq(np.concatenate([h, penalty]), np.concatenate([y, np.zeros(len(penalty))]), rcond=None)[0]
    ours = federated.head
    solved = solve_head(add_all([*fits, *helds]), strength)
    assert np.abs(h @ solved - h @ plain).max() < 1e-6
    assert np.abs(h @ ours - h @ plain).max() < 1e-4  # the network's own weights are float32


def test_a_personal_head_is_at_its_owners_level_and_never_leaves(tmp_path: Path) -> None:
    cohort = cohort_of(tmp_path)
    ((clients, network),) = next(iter(strategies["fedavg"].run(cohort, PLAN))).models.items()
    shared = with_heads(cohort, PLAN, clients, network)["exact"].network
    before = len(cohort.sent)
    keys = personal_heads(cohort, PLAN, shared, cohort.clients)
    replies = [decode(d, reply_kinds()) for _, d in cohort.sent[before:]]
    assert {type(r) for r in replies} == {PoolReply, PersonalReply}
    last = [d for (_, d), r in zip(cohort.sent[before:], replies, strict=True) if isinstance(r, PersonalReply)]
    assert all(len(d) < 400 for d in last)
    bias = []
    for name, fleet in small_fleets().items():
        windows = build_windows(PLAN.recipe, fleet)
        own = shared.with_head(ClientFolder(tmp_path / name).load_head(keys[name]))
        truth = PLAN.recipe.capped(windows.labels)
        bias.append([(predict(one, windows, PLAN.recipe) - truth).mean() for one in (shared, own)])
    before_, after = np.abs(bias).mean(axis=0)
    assert after < 0.5 * before_  # every client's own level


def test_a_client_with_no_usable_unit_fails_and_says_so(tmp_path: Path) -> None:
    censored = Unit(
        "u", np.arange(1.0, 40), np.random.default_rng(0).normal(size=(39, 2)), np.zeros((39, 2)), failed=False
    )
    client = Client("z", Fleet("z", SERIES, (censored,)), ClientFolder(tmp_path))
    reply = decode(client.respond(encode(SurveyRequest(SurveyTerms()))), reply_kinds())
    assert isinstance(reply, Failure)
    assert "no unit has a known rul" in (client.folder.last_error() or "")
