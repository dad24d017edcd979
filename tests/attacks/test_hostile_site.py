"""One broken or hostile site ends no run: it is named and left out, and nothing that it sent is remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hostile_replies import LIES, LyingTransport
from small_run import SmallRun

from fedprognos.deployment.site.site_ledger import SiteLedger
from fedprognos.deployment.steps.signed_steps import REPLY, read_reply, seal_reply
from fedprognos.errors import FederationError
from fedprognos.features import Moments, survey_terms
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode, ledger_line
from fedprognos.federation.cohort import MessageCohort, gather
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.choice import ChoiceRequest, chosen_heads
from fedprognos.federation.exchanges.fit import FitReply
from fedprognos.federation.exchanges.personal import head_name, personal_heads
from fedprognos.federation.exchanges.residuals import ResidualRequest
from fedprognos.federation.exchanges.scores import ScoreReply, ScoreRequest
from fedprognos.federation.exchanges.survey import OutlineReply, OutlineRequest, SurveyReply, common_recipe
from fedprognos.federation.exchanges.wear import WearReply, WearRequest, wear_columns
from fedprognos.federation.federation_section import federation_options
from fedprognos.federation.heads import with_heads
from fedprognos.federation.plan import Plan
from fedprognos.federation.reply_journal import ReplyJournal
from fedprognos.federation.strategies import strategies
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.calibration import EDGES, prediction_ranges
from fedprognos.networks.model_options import TrainOptions
from fedprognos.privacy.floors import Floors
from small_fleets import series_fleet

RECIPE = RecipeOptions(window=8, cap=40, stride=3, conditions={"altitude": 0})
OUTLINE = OutlineRequest(survey_terms(RECIPE))
QUICK = {"fedavg": {"rounds": 1, "epochs": 1}, "heads": ["exact", "mean"], "min_clients": 2}


def members(folder: Path) -> dict[str, Client]:
    lengths = {"a": [20] * 21, "b": [24] * 21, "c": [22] * 21}
    fleets = {n: series_fleet(rows, seed=k, name=n) for k, (n, rows) in enumerate(lengths.items())}
    return {n: Client(n, fleet, ClientFolder(folder / n), test=fleet) for n, fleet in fleets.items()}


def everything(transport: LyingTransport, journal: ReplyJournal, left: list[Failure]) -> None:
    """Every kind of request, as a run asks them."""
    declared: dict[str, int] = {}
    cohort = MessageCohort(transport, journal=journal, scope="x", declared=declared)
    federation = federation_options().model_validate(QUICK)
    recipe = common_recipe(cohort, RECIPE, federation, left.append)
    gather(cohort, dict.fromkeys("abc", OUTLINE), OutlineReply, 2, left.append)
    train = TrainOptions(epochs=1, batch_size=64, learning_rate=0.05, validation_fraction=0.3)
    plan = Plan(recipe, NetworkSpec(inputs=recipe.channels, widths=(3,)), train, federation, 1, left_out=left.append)
    for method in ("fedavg", "absorb"):
        for round_ in strategies[method].run(cohort, plan):
            for clients, network in round_.models.items():
                with_heads(cohort, plan, clients, network)
    wear_columns(cohort, recipe, federation, left.append)
    personal_heads(cohort, plan, network, cohort.clients)
    chosen_heads(cohort, plan, network, cohort.clients, network.head, head_name("chosen"))
    ranges = np.array(prediction_ranges(recipe), dtype=np.float64)
    residuals = ResidualRequest(recipe, network, 1, 0.3, ranges, np.array(EDGES))
    replies = cohort.ask(dict.fromkeys(cohort.clients, residuals)).values()
    left += [reply for reply in replies if isinstance(reply, Failure)]
    gather(cohort, dict.fromkeys("abc", ScoreRequest(recipe, network, 1, 0.3)), ScoreReply, 2, left.append)


@pytest.mark.long
@pytest.mark.parametrize("lie", LIES)
def test_a_reply_that_cannot_be_true_costs_its_sender_its_place_and_nobody_else(tmp_path: Path, lie: str) -> None:
    kind, change = LIES[lie]
    left: list[Failure] = []
    journal = ReplyJournal(tmp_path / "answers")
    transport = LyingTransport(members(tmp_path), "b", kind, change)
    everything(transport, journal, left)
    assert transport.lied
    assert {failure.client for failure in left} == {"b"}
    kept = {path.read_bytes() for path in (tmp_path / "answers").iterdir()}
    assert lie == "other columns" or not kept & set(transport.sent)
    assert all(len(failure.text) <= 400 for failure in left)


def test_the_same_command_goes_well_once_the_site_is_repaired(tmp_path: Path) -> None:
    journal, left = ReplyJournal(tmp_path / "answers"), list[Failure]()
    everything(LyingTransport(members(tmp_path), "b", *LIES["statistics of another shape"]), journal, left)
    assert left
    left.clear()
    everything(LyingTransport(members(tmp_path), "nobody", *LIES["weights of 1e30"]), journal, left)
    assert not left


def test_replies_of_another_kind_are_failures_that_name_their_senders(tmp_path: Path) -> None:
    cohort, left = MessageCohort(LyingTransport(members(tmp_path), "nobody", FitReply, lambda r: r)), list[Failure]()
    with pytest.raises(FederationError):
        gather(cohort, dict.fromkeys("abc", OUTLINE), ScoreReply, 2, left.append)
    assert [failure.client for failure in left] == ["a", "b", "c"]


def test_a_reply_too_large_to_be_relayed_costs_its_sender_its_place_and_nobody_else(tmp_path: Path) -> None:
    run = SmallRun(tmp_path, limit_in_mb=1)
    honest = run.sites["c"].respond

    def inflated(data: bytes) -> bytes:
        sealed = honest(data)
        if not sealed.startswith(REPLY) or ledger_line(read_reply(sealed)[1]).kind != FitReply.__name__:
            return sealed
        header, reply = read_reply(sealed)
        trained = decode(reply, (FitReply,))
        large = encode(replace(trained, weights={**trained.weights, "more": np.zeros(240_000, np.float32)}))
        return seal_reply(run.sites["c"].identity, header.contract, header.step, "c", large)

    run.sites["c"].respond = inflated  # type: ignore[method-assign]
    run.perform()
    assert run.weights()
    assert max(len(data) for _, data in run.mailbox.steps) < 1 << 19  # nobody else was sent it
    assert not [line for line in SiteLedger(tmp_path / "a").lines() if "refused" in line]


def test_who_claims_a_thousand_times_its_rows_does_not_own_the_recipe(tmp_path: Path) -> None:
    def claim(reply: SurveyReply) -> SurveyReply:
        n, mean, m2 = reply.survey.labels.n, reply.survey.labels.mean, reply.survey.labels.m2
        return SurveyReply(replace(reply.survey, labels=Moments(1000 * n, mean + 5, 1000 * m2)))

    federation = federation_options().model_validate({**QUICK, "weight_cap": 3.0})
    means = []
    for liar in ("nobody", "b"):
        cohort = MessageCohort(LyingTransport(members(tmp_path / liar), liar, SurveyReply, claim))
        means.append(common_recipe(cohort, RECIPE, federation, lambda failure: None).label_mean)
    assert 1 < means[1] - means[0] < 3.5  # of 5


def test_who_claims_a_thousand_times_its_rows_in_every_condition_does_not_own_the_scaling(tmp_path: Path) -> None:
    """Its labels are as many as before: the cap must look at both."""

    def claim(reply: SurveyReply) -> SurveyReply:
        cells = {key: Moments(1000 * m.n, m.mean + 50, 1000 * m.m2) for key, m in reply.survey.cells.items()}
        return SurveyReply(replace(reply.survey, cells=cells))

    federation = federation_options().model_validate({**QUICK, "weight_cap": 3.0})
    means = []
    for liar in ("nobody", "b"):
        cohort = MessageCohort(LyingTransport(members(tmp_path / liar), liar, SurveyReply, claim))
        means.append(common_recipe(cohort, RECIPE, federation, lambda failure: None).mean[0][0])
    assert 10 < means[1] - means[0] < 35  # of 50


def test_an_honest_client_of_short_lives_may_let_units_count_alike(tmp_path: Path) -> None:
    """A unit then counts for more points than it has rows."""
    federation = federation_options().model_validate({**QUICK, "alike": True})
    cohort = MessageCohort(LyingTransport(members(tmp_path), "nobody", SurveyReply, lambda reply: reply))
    left: list[Failure] = []
    recipe = common_recipe(cohort, RECIPE, federation, left.append)
    spec = NetworkSpec(inputs=recipe.channels, widths=(3,))
    plan = Plan(recipe, spec, TrainOptions(), federation, 1, left_out=left.append)
    assert "exact" in with_heads(cohort, plan, "abc", Network.seeded(spec, 1))
    assert not left


def test_who_claims_a_thousand_times_its_units_does_not_choose_the_columns(tmp_path: Path) -> None:
    """A liar says that nothing wears but its favourite column; with a cap on weights the others outvote it."""

    def claim(reply: WearReply) -> WearReply:
        favourite = np.zeros_like(reply.sums.total)
        favourite[-1] = 1.0
        n = 15 * reply.sums.n  # no more than the points it declared
        return WearReply(replace(reply.sums, n=n, total=n * favourite, products=n * np.outer(favourite, favourite)))

    columns = {}
    for cap in (None, 3.0):
        federation = federation_options().model_validate({**QUICK, "weight_cap": cap})
        for liar in ("nobody", "b"):
            cohort = MessageCohort(LyingTransport(members(tmp_path / f"{liar}{cap}"), liar, WearReply, claim))
            recipe = common_recipe(cohort, RECIPE, federation, lambda failure: None)
            columns[liar, cap] = wear_columns(cohort, recipe, federation, lambda failure: None)
    assert columns["b", None] != columns["nobody", None]
    assert columns["b", 3.0] == columns["nobody", 3.0]


def test_wear_of_fewer_units_than_the_floor_does_not_leave(tmp_path: Path) -> None:
    """Units whose label never changes do not count: those that are left may be one machine."""
    fleet = series_fleet([60] * 6, seed=3, name="a")
    cohort = MessageCohort(
        LyingTransport({"a": Client("a", fleet, ClientFolder(tmp_path))}, "nobody", FitReply, lambda r: r)
    )
    federation = federation_options().model_validate(QUICK)
    recipe = common_recipe(cohort, RECIPE, federation, lambda failure: None)
    honest = Client("a", fleet, ClientFolder(tmp_path), Floors(units=5)).answer(WearRequest(recipe))
    assert honest.sums.n == 6
    few = Client("a", fleet, ClientFolder(tmp_path), Floors(units=5))
    windows = few.windows(recipe)
    few._windows = (few._windows[0], replace(windows, labels=np.where(windows.unit < 2, windows.labels, 99.0)))  # type: ignore[index]
    sums = few.answer(WearRequest(recipe)).sums
    assert (sums.n, sums.total.any(), sums.products.any()) == (0, False, False)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "another"},
        {"strength": 0.0},
        {"strength": -1.0},
        {"strength": 1e300},
        {"share": -0.1},
        {"share": 1.5},
        {"neurons": (0, 10**6)},
        {"neurons": (2, 1)},
        {"fitted": np.zeros(99)},
        {"head": "../../elsewhere"},
        {"head": "f" * 31},
    ],
    ids=str,
)
def test_a_hostile_question_for_a_choice_is_refused_and_writes_nothing(
    tmp_path: Path, change: dict[str, object]
) -> None:
    client = members(tmp_path)["a"]
    cohort = MessageCohort(LyingTransport({"a": client}, "nobody", FitReply, lambda r: r))
    federation = federation_options().model_validate({**QUICK, "min_clients": 1})
    recipe = common_recipe(cohort, RECIPE, federation, lambda failure: None)
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(3,)), 1)
    request = ChoiceRequest(recipe, network, 1, 0.3, network.head, head=head_name("good"))
    good, bad = cohort.ask({"a": request}), cohort.ask({"a": replace(request, **change)})
    assert not isinstance(good["a"], Failure)
    assert isinstance(bad["a"], Failure)
    assert [path.stem for path in (tmp_path / "a" / "heads").iterdir()] == [head_name("good")]
    assert not (tmp_path / "elsewhere").exists()
