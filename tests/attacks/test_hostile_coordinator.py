"""Routes by which a malicious coordinator got rows, each tried against a bare client and against a site.

A bare client, as in runs on one machine, answers crafted networks: that is shown, so that these tests have teeth. A
site refuses all of it: what is not the agreed step is not answered, and what an engineer approved carelessly meets
floors, limits and the tripwire.
"""

from __future__ import annotations

import json
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_run import NAMES, SmallRun, Start, fleet_of
from tls_run import TlsWorld

from fedprognos.deployment.contract import Contract
from fedprognos.deployment.site import site_ledger as ledger
from fedprognos.deployment.site.approvals import Approvals
from fedprognos.deployment.site.site_ledger import SiteLedger, broken_at
from fedprognos.deployment.steps.fingerprint import Fingerprint, fingerprint_of
from fedprognos.deployment.steps.signed_steps import (
    REPLY,
    STEP,
    Note,
    StepHeader,
    open_step,
    read_reply,
    seal_reply,
    seal_step,
    sha256,
)
from fedprognos.errors import FederationError, MessageError
from fedprognos.evaluation import Results
from fedprognos.features import Recipe, SurveyTerms, build_windows
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode, envelope_of
from fedprognos.federation.exchanges import Failure, reply_kinds
from fedprognos.federation.exchanges.distances import DistanceRequest
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.exchanges.fit import FitRequest
from fedprognos.federation.exchanges.outputs import OutputsRequest
from fedprognos.federation.exchanges.personal import PersonalRequest, PoolRequest
from fedprognos.federation.exchanges.residuals import ResidualRequest
from fedprognos.federation.exchanges.scores import ScoreRequest
from fedprognos.federation.exchanges.site_messages import ContractRequest, DeliverRequest, HelloRequest, StepsMissing
from fedprognos.federation.exchanges.survey import SurveyRequest
from fedprognos.federation.limits import Limits
from fedprognos.identity import identity_of
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.model_options import Training
from fedprognos.privacy.floors import FloorError, Floors, least_effective_rows
from refusals import refuses
from small_fleets import recipe_of, series_fleet

FLEET = series_fleet([40] * 12, seed=5, name="a")
RECIPE = recipe_of(FLEET, window=8, cap=40, stride=1)


def gate(recipe: Recipe, threshold: float, size: float = 0.1) -> Network:
    """A network that lets windows through whose last row exceeds a threshold in its first channel.

    Neuron j then holds a small multiple of channel j of that row, the last neuron a constant: H'H of one window is it.
    """
    channels = recipe.channels
    n = channels + 1
    network = Network.seeded(NetworkSpec(inputs=channels, widths=(n,)), 0)
    ih, bias = np.zeros((4 * n, channels), np.float32), np.zeros(4 * n, np.float32)
    ih[:n, 0], bias[:n] = 4e4, -4e4 * threshold  # input gate
    bias[n : 2 * n] = -100.0  # forget everything
    ih[2 * n + np.arange(channels), np.arange(channels)] = size
    bias[2 * n + channels] = size  # the constant
    bias[3 * n :] = 100.0  # output gate open
    names = {k.rpartition(".")[2]: k for k in network.weights if k.startswith("recurrent")}
    changed = {
        names["weight_ih_l0"]: ih,
        names["weight_hh_l0"]: np.zeros_like(network.weights[names["weight_hh_l0"]]),
        names["bias_ih_l0"]: bias,
        names["bias_hh_l0"]: np.zeros(4 * n, np.float32),
    }
    return Network(network.spec, {**network.weights, **changed})


def steal_row(ask: Any) -> np.ndarray[Any, Any] | None:
    """Search for a threshold that one window exceeds, and read that window's last row out of H'H."""
    low, high = -6.0, 6.0
    constant = float(np.tanh(np.tanh(0.1)))
    for _ in range(40):
        middle = (low + high) / 2
        reply = ask(EvaluateRequest(RECIPE, gate(RECIPE, middle), 1, 0.0, statistics=True))
        if not isinstance(reply, EvaluateReply) or reply.fit is None:
            return None
        through = reply.fit.hh[-1, -2] / constant
        if abs(through - 1) < 1e-3:
            return np.asarray(np.arctanh(np.arctanh(reply.fit.hh[-1, : RECIPE.channels])) / 0.1)
        low, high = (middle, high) if through > 1 else (low, middle)
    return None


def bare(folder: Path, **options: Any) -> Any:
    client = Client("a", FLEET, ClientFolder(folder), **options)
    return lambda request: decode(client.respond(encode(request)), reply_kinds())


def test_a_bare_client_gives_a_row_to_a_crafted_network_and_the_tripwire_does_not(tmp_path: Path) -> None:
    windows = build_windows(RECIPE, FLEET)
    row = steal_row(bare(tmp_path / "bare"))
    assert row is not None
    last = windows.features[windows.starts + windows.length - 1]
    assert np.abs(last - row).max(axis=1).min() < 1e-3  # to a thousandth of a deviation, it is a row
    assert steal_row(bare(tmp_path / "floor", floors=Floors(5000))) is None
    assert steal_row(bare(tmp_path / "wire", floors=Floors(units=5, leverage=0.95))) is None


def test_a_row_cannot_be_hidden_from_the_tripwire_by_making_it_small(tmp_path: Path) -> None:
    windows = build_windows(RECIPE, FLEET)
    first = np.sort(windows.features[windows.starts + windows.length - 1, 0])
    threshold = float(first[-2:].mean())
    apart = windows.select(np.arange(0, len(windows), 33))  # one window a unit
    every = float(np.sort(apart.batch(slice(None))[:, :, 0].ravel())[-2:].mean())
    floors = Floors(leverage=0.95)
    for size in (0.1, 1e-3, 1e-6):
        with pytest.raises(FloorError):
            floors.check_leverage(gate(RECIPE, threshold, size), windows)
        with pytest.raises(FloorError):
            floors.outputs(gate(RECIPE, every, size), apart)
    honest = Network.seeded(NetworkSpec(inputs=RECIPE.channels, widths=(6,)), 1)
    floors.check_leverage(honest, windows)


@pytest.mark.parametrize("through", [2, 3, 5, 8])
def test_a_gate_for_a_few_rows_is_seen_however_small_it_is(through: int) -> None:
    """An accomplice's body that lets a few rows through gave their sums: no single row has most of them."""
    windows = build_windows(RECIPE, FLEET)
    first = np.sort(windows.features[windows.starts + windows.length - 1, 0])
    threshold = float(first[-through - 1 : -through + 1].mean())
    for size in (0.1, 1e-3):
        with pytest.raises(FloorError):
            Floors(leverage=0.95).check_leverage(gate(RECIPE, threshold, size), windows)


def test_a_gate_that_is_hidden_in_another_column_is_seen() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 6))
    few = np.arange(400) % 67 == 0
    rows[:, 5] = rows[:, 4] + 1e-2 * few * rows[:, 0]  # alone, the column looks like any other
    hidden = np.concatenate([rows, np.ones((400, 1))], axis=1)
    honest = np.delete(hidden, 5, axis=1)
    assert least_effective_rows(hidden.T @ hidden, [hidden]) < 7
    assert least_effective_rows(honest.T @ honest, [honest[:150], honest[150:]]) > 100


def test_errors_of_a_single_window_stay(tmp_path: Path) -> None:
    """Stride 10^6 leaves one window a unit, and a fraction of 0.01 keeps one unit out: its error was sent."""
    recipe = RECIPE.model_copy(update={"stride": 10**6})
    fleet = series_fleet([40] * 60, seed=5, name="a")
    client = Client("a", fleet, ClientFolder(tmp_path))
    spec = NetworkSpec(inputs=recipe.channels, widths=(3,))
    reply = client.answer(FitRequest(recipe, Training(epochs=2), 0.01, 1, spec))
    assert [epoch.validation_rmse for epoch in reply.history] == [None, None]  # type: ignore[union-attr]
    assert client.answer(EvaluateRequest(recipe, Network.seeded(spec, 1), 1, 0.01)).validation is None  # type: ignore[union-attr]


@pytest.mark.parametrize("units", [1, 4, 5])
def test_nothing_about_fewer_than_five_units_leaves_a_site_unless_it_has_one(tmp_path: Path, units: int) -> None:
    fleet = series_fleet([60] * units, seed=5, name="a")
    client = Client("a", fleet, ClientFolder(tmp_path), Floors(units=5), test=fleet)
    recipe, spec = recipe_of(fleet, window=8, cap=40), NetworkSpec(inputs=RECIPE.channels, widths=(3,))
    requests = (
        SurveyRequest(SurveyTerms(cap=40)),
        FitRequest(recipe, Training(epochs=1), 0.0, 1, spec),
        EvaluateRequest(recipe, Network.seeded(spec, 1), 1, 0.0, statistics=True),
        OutputsRequest(recipe, Network.seeded(spec, 1), 1, 0.0),
        PoolRequest(recipe, Network.seeded(spec, 1), 1, 0.0),
    )
    for request in requests:
        reply = decode(client.respond(encode(request)), reply_kinds())
        assert isinstance(reply, Failure) == (units == 4), request
    scores = decode(client.respond(encode(ScoreRequest(recipe, Network.seeded(spec, 1), 1, 0.3, "all"))), reply_kinds())
    assert (scores.test is None) == (units == 4)


HUGE = RECIPE.model_copy(update={"window": 20_000_000, "short": "pad"})


@pytest.mark.parametrize(
    ("recipe", "spec"),
    [
        (HUGE, NetworkSpec(inputs=RECIPE.channels, widths=(3,))),
        (RECIPE, NetworkSpec(inputs=RECIPE.channels, widths=(), reservoir=20_000)),
        (RECIPE, NetworkSpec(inputs=RECIPE.channels, widths=(15_000,))),
    ],
    ids=["a window of 20,000,000", "a reservoir of 20,000", "15,000 neurons"],
)
def test_work_beyond_the_limits_is_refused_from_shapes_alone(recipe: Recipe, spec: NetworkSpec) -> None:
    network = Network(spec, {})  # the weights are not looked at
    limits = Limits(4 << 30)
    for request in (
        EvaluateRequest(recipe, network, 1, 0.0, statistics=True),
        OutputsRequest(recipe, network, 1, 0.0),
        PoolRequest(recipe, network, 1, 0.0),
        PersonalRequest(recipe, network, 1, 0.0),
        *([] if not spec.widths else [FitRequest(recipe, Training(epochs=1), 0.0, 1, spec)]),
    ):
        with pytest.raises(MessageError):
            limits.check(request, FLEET)


def crafted(recipe: Recipe, network: Network, run: str) -> list[Any]:
    """Requests of every kind that the agreed run does not have, as the attacks used them."""
    spec, open_gate = network.spec, gate(recipe, 0.5)
    sparse = recipe.model_copy(update={"stride": 10**6})
    linear = Training(epochs=1, learning_rate=1e-12)
    return [
        EvaluateRequest(recipe, open_gate, 1, 0.3, statistics=True),
        EvaluateRequest(recipe, open_gate, 1, 0.3),
        OutputsRequest(recipe, open_gate, 1, 0.3),
        PoolRequest(recipe, open_gate, 1, 0.3),
        FitRequest(sparse, Training(epochs=1), 0.01, 1, spec),
        FitRequest(recipe, linear, 0.3, 1, None, open_gate),
        *(EvaluateRequest(recipe, network, 1, k / 60, statistics=True) for k in (20, 21)),
        *(SurveyRequest(SurveyTerms(cap=cap, conditions={"altitude": 0})) for cap in (1, 39, 41)),
        SurveyRequest(SurveyTerms(cap=40, conditions={"altitude": 4})),
        *(ScoreRequest(recipe, network.with_head(np.full(spec.features + 1, k)), 1, 0.3) for k in (0.0, 1.0)),
        FitRequest(recipe, Training(epochs=1), 0.3, 1, spec.with_widths({"recurrent.0": 15_000})),
        EvaluateRequest(HUGE, network, 1, 0.3),
        DeliverRequest(run, recipe, network, '{"method": "../../../out"}', "{}", None, 1, 0.3, 0),
    ]


def notes_of(data: bytes) -> list[tuple[Note, bytes]]:
    """The notes of a step with the replies that follow them."""
    header, replies = open_step(data)
    return [(note, replies[note.step, note.site]) for note in header.notes]


def with_body(frame: bytes, body: bytes) -> bytes:
    """A step that carries a request, as steps did before sites made theirs."""
    return frame + body


def test_a_coordinator_with_its_own_keys_gets_nothing_beyond_the_agreed_steps(start: Start) -> None:
    """At every step of an honest run it tries every attack as well; the run ends as if it had not."""
    with start("one") as undisturbed:
        undisturbed.perform()
    with start("two") as run:
        known, answered, honest = len(run.lines("a")), list[tuple[int, bytes]](), dict[int, bytes]()
        recipe = recipe_of(fleet_of("a", 6), window=8, cap=40, stride=3)
        network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(3,)), 1)
        messages = [encode(request) for request in crafted(recipe, network, run.name)]

        def attack(site: str, header: StepHeader, data: bytes) -> None:
            if site != "a":
                return
            notes, tried = notes_of(data), messages[header.step % 3 :: 3]
            steps = (header.step, header.step + 1, max(header.step - 1, 1))
            frames = [
                (step, seal_step(run.identity, header.contract, step, fingerprint_of(message), notes))
                for message in tried
                for step in steps
            ]
            frames += [(header.step, with_body(data, message)) for message in tried]
            frames += [(0, message) for message in tried]  # outside any contract
            answered.extend(zip((step for step, _ in frames), run.ask("a", *(f for _, f in frames)), strict=True))
            [honest[header.step]] = run.ask("a", data)

        run.mailbox.before = attack
        run.perform()
        assert len(answered) > 80
        for step, reply in answered:
            if reply.startswith(REPLY):  # the reply that it has already, to the bit
                assert reply == honest[step]
            else:
                assert type(decode(reply, (*reply_kinds(), StepsMissing))).__name__ in ("Failure", "StepsMissing")
        assert run.weights() == undisturbed.weights()
        lines = run.lines("a")
        assert broken_at(lines) is None
        assert sum("refused" in line for line in lines[known:]) > 40
        new = [line for line in lines[known:] if "step" in line and not line.get("repeat") and "refused" not in line]
        answers = [(line["contract"], line["step"]) for line in new if line["kind"] != StepsMissing.__name__]
        assert len(set(answers)) == len(answers)
        assert "REFUSED" in run.told("a")


def test_a_step_asked_twice_gets_the_same_bytes_whatever_comes_with_it(start: Start) -> None:
    with start() as run:
        known, replies = len(run.lines("a")), list[list[bytes]]()

        def again(site: str, header: StepHeader, data: bytes) -> None:
            if site != "a":
                return
            notes = [(note.model_copy(update={"code": "absent", "size": 0}), b"") for note, _ in notes_of(data)]
            other = seal_step(run.identity, header.contract, header.step, Fingerprint(kind="FitRequest"), notes)
            replies.append(run.ask("a", data, other, data))

        run.mailbox.before = again
        run.perform()
        assert replies
        assert all(len(set(same)) == 1 and same[0].startswith(REPLY) for same in replies)
        lines = [line for line in run.lines("a")[known:] if "step" in line and not line.get("repeat")]
        assert len({(line["contract"], line["step"]) for line in lines}) == len(lines)  # a run before may end late


def test_a_coordinator_that_came_to_another_request_is_told_so_and_changes_no_answer(start: Start) -> None:
    answers = dict[int, bytes]()
    with start("one") as honest:

        def remember(site: str, header: StepHeader, data: bytes) -> None:
            if site == "a":
                answers[header.step] = read_reply(honest.ask("a", data)[0])[1]

        honest.mailbox.before = remember
        honest.perform()
    with start("two") as run:
        refused, steps = list[bytes](), list[int]()

        def diverge(site: str, header: StepHeader, data: bytes) -> None:
            ours = header.fingerprint
            if site != "a" or ours.kind != EvaluateRequest.__name__ or steps:
                return
            name, norm = next((name, norm) for name, norm in ours.norms.items() if "head." not in name and norm)
            others = [
                {"kind": "OutputsRequest"},
                {"sum": ("batch", 0)},
                {"norms": {**ours.norms, name: norm * (1 + 1e-5)}},
                {"norms": {**ours.norms, name: 1e300}},
                {"norms": {}},
                {"shapes": {**ours.shapes, name: (1, 1)}},
                {"numbers": {**ours.numbers, "recipe": 1.01 * ours.numbers["recipe"]}},
            ]
            frames = [sealed(run, header, data, ours.model_copy(update=other)) for other in others]
            refused.extend(run.ask("a", *frames))
            rounded = ours.model_copy(update={"norms": {n: v * (1 + 1e-8) for n, v in ours.norms.items()}})
            [reply] = run.ask("a", sealed(run, header, data, rounded))
            assert read_reply(reply)[1] == answers[header.step]
            steps.append(header.step)

        run.mailbox.before = diverge
        run.perform()
        assert steps
        assert len(refused) == 7
        assert {decode(reply, reply_kinds()).code for reply in refused} <= {"diverged", "message"}


def sealed(run: SmallRun, header: StepHeader, data: bytes, fingerprint: Fingerprint) -> bytes:
    """The same step with another fingerprint."""
    return seal_step(run.identity, header.contract, header.step, fingerprint, notes_of(data))


def test_a_step_needs_the_coordinator_s_signature_of_all_that_it_says(start: Start) -> None:
    with start() as run:
        refused = list[bytes]()

        def alter(site: str, header: StepHeader, data: bytes) -> None:
            if site != "a" or header.step != 3:
                return
            stranger = identity_of(run.place("b"))
            notes = notes_of(data)
            frames = [seal_step(stranger, header.contract, 3, header.fingerprint, notes)]
            signed = header.model_dump()
            for change in ({"step": 4}, {"fingerprint": {**signed["fingerprint"], "numbers": {}}}, {"notes": []}):
                document = json.dumps({**signed, **change}).encode()
                body = b"".join(reply for _, reply in notes) if "notes" not in change else b""
                frames.append(STEP + len(document).to_bytes(8, "little") + document + body)
            refused.extend(run.ask("a", *frames))

        run.mailbox.before = alter
        run.perform()
        assert len(refused) == 4
        assert {decode(reply, reply_kinds()).code for reply in refused} == {"message"}
        assert run.weights()


def test_messages_that_nobody_signed_fill_neither_disk_nor_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MAX_OTHER_LINES_A_DAY", 20)
    site = SmallRun(tmp_path).sites["a"]
    strange = make_dataclass("K" * 300_000, [("experiment", str)], frozen=True)("x")
    for message in [encode(strange)] * 50 + [encode(HelloRequest("e" * 3_000_000))]:
        assert isinstance(decode(site.respond(message), reply_kinds()), Failure)
    site.respond(encode(HelloRequest("small")))
    lines = SiteLedger(tmp_path / "a").lines()
    assert [line["kind"] for line in lines] == ["Failure"] * 20 + ["HelloReply"]
    assert (tmp_path / "a" / "ledger.jsonl").stat().st_size < 50_000
    assert broken_at(lines) is None
    assert any("REFUSED: 31 more requests" in text for text in ledger.ledger_in_words(lines, {}))
    with pytest.raises(MessageError):
        envelope_of(encode(HelloRequest("e" * 5_000_000)))


def test_a_contract_of_a_huge_network_is_refused_before_anybody_can_approve_it(start: Start) -> None:
    with start(changes={"model": {"widths": [15_000]}}) as run:
        members = {name: identity_of(run.place(name)).public for name in NAMES}
        contract = Contract.from_experiment("x", "1", run.experiment, members, run.identity.public)
        [reply] = run.ask("a", encode(ContractRequest(contract.text)))
        assert "parameters" in decode(reply, reply_kinds()).text
        assert Approvals(run.place("a")).entry(contract.digest) is None


def test_a_delivery_of_a_huge_network_is_refused(tmp_path: Path) -> None:
    huge = Network(NetworkSpec(inputs=RECIPE.channels, widths=(15_000,)), {})
    with refuses(MessageError, "parameters"):
        site = SmallRun(tmp_path).sites["a"]
        site._answer(DeliverRequest("x", RECIPE, huge, "{}", "{}", None, 1, 0.3, 0), site.client)


FORGERIES = (
    *("another's key", "changed reply", "reply of another step", "reply of another site"),
    *("invented member", "left out"),
)


@pytest.mark.parametrize("how", FORGERIES)
def test_outcomes_that_members_did_not_sign_are_refused(start: Start, how: str) -> None:
    with start() as run:
        refused = list[bytes]()

        def forge(site: str, header: StepHeader, data: bytes) -> None:
            given = notes_of(data)
            by_b = [note for note, _ in given if note.site == "b" and note.size]
            if site != "a" or not by_b or header.step != 4:
                return
            notes = []
            for note, honest in given:
                changed, reply = note, honest
                if note is by_b[-1] and how in ("another's key", "reply of another step", "reply of another site"):
                    key = run.identity if how == "another's key" else identity_of(run.place("b"))
                    step = note.step - (how == "reply of another step")
                    signer = "c" if how == "reply of another site" else "b"
                    signature = read_reply(seal_reply(key, header.contract, step, signer, reply))[0].signature
                    changed = note.model_copy(update={"signature": signature})
                if note is by_b[-1] and how == "changed reply":
                    reply = reply[:-4] + bytes(4)
                    changed = note.model_copy(update={"reply": sha256(reply)})
                if note is by_b[-1] and how == "invented member":
                    notes.append((note.model_copy(update={"site": "mallory"}), reply))
                if not (note.site == "b" and how == "left out"):
                    notes.append((changed, reply))
            frame = seal_step(run.identity, header.contract, header.step, header.fingerprint, notes)
            refused.extend(run.ask("a", frame))

        run.mailbox.before = forge
        run.perform()
        assert refused
        assert all(not reply.startswith(REPLY) for reply in refused)
        assert run.weights()


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": {"stride": 10**6}, "train": {"epochs": 1, "validation_fraction": 0.5}},
        {"recipe": {"window": 20_000_000, "short": "pad"}},
    ],
    ids=["one window a unit", "a window of 20,000,000"],
)
def test_a_hostile_contract_that_was_approved_meets_floors_and_limits(
    start: Start, changes: dict[str, dict[str, Any]]
) -> None:
    with start(changes=changes, options={}) as run:  # a site's own defaults
        known = len(run.lines("a"))
        with pytest.raises(FederationError):
            run.perform()
        kinds = {line["kind"] for line in run.lines("a")[known:]}
        assert not kinds & {"FitReply", "EvaluateReply", "OutputsReply", "ScoreReply"}
        assert "UNUSUAL" in run.told("a")


def test_an_approved_contract_that_keeps_one_window_out_gets_no_error_of_it(start: Start) -> None:
    changes = {"recipe": {"stride": 10**6}, "train": {"epochs": 1, "validation_fraction": 0.01}}
    with start(changes=changes, options={}, units=21) as run:
        run.perform()
        results = Results.load(run.folder / "run" / "results.json")
        assert results.history
        assert {row.validation_rmse for row in results.history} == {None}
        assert not results.rows


@pytest.mark.soak
def test_real_sites_live_and_take_no_more_memory_than_they_may(real_sites: TlsWorld) -> None:
    """After the attacks above, the window of 20,000,000 and the 15,000 neurons among them."""
    for name in NAMES:
        assert real_sites.alive(name)
        assert real_sites.most_memory_in_mb(name) < 1500


def test_budgets_end_a_run_that_asks_too_much(tmp_path: Path) -> None:
    run = SmallRun(tmp_path, options={"min_units": 1, "max_leverage": 1.0, "max_answers_per_run": 3})
    with pytest.raises(FederationError):
        run.perform()
    steps = [line for line in SiteLedger(tmp_path / "a").lines() if "step" in line and "refused" not in line]
    assert len(steps) == 3


def test_sums_over_networks_of_others_are_counted_by_seed_and_have_a_budget(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "all", options={"min_units": 1, "max_leverage": 1.0})
    run.perform()
    ledger = SiteLedger(tmp_path / "all" / "a")
    [contract] = {line["contract"] for line in ledger.lines() if line.get("contract")}
    summed = (DistanceRequest, EvaluateRequest, OutputsRequest, PoolRequest, ResidualRequest, ScoreRequest)
    kinds = [kind.__name__ for kind in summed]
    asked = [line for line in ledger.lines() if line.get("request") in kinds]
    assert list(ledger.sums_by_seed(contract).values()) == [len(asked)]
    assert len(asked) > 1
    strict = SmallRun(tmp_path / "one", options={"min_units": 1, "max_leverage": 1.0, "max_sums_per_seed": 1})
    with pytest.raises(FederationError):
        strict.perform()
    [contract] = {line["contract"] for line in SiteLedger(tmp_path / "one" / "a").lines() if line.get("contract")}
    assert list(SiteLedger(tmp_path / "one" / "a").sums_by_seed(contract).values()) == [1]


def test_a_member_whose_confirmed_key_differs_is_refused(tmp_path: Path) -> None:
    run = SmallRun(tmp_path, options={"min_units": 1, "max_leverage": 1.0, "members": {"b": "0" * 32}})
    run.experiment = replace_min_clients(run)
    with pytest.raises(FederationError):
        run.perform()
    assert any("REFUSED" in text and "'b'" in text for text in run.said)


def replace_min_clients(run: SmallRun) -> Any:
    federation = run.experiment.federation.model_copy(update={"min_clients": None})
    return run.experiment.model_copy(update={"federation": federation})
