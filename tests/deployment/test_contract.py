"""A site answers the steps of an approved contract, each once, in their order; crashes change no byte."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "attacks"))

from small_run import EXPERIMENT, LAX, CrashError, SmallRun

from fedprognos.deployment.contract import Contract, in_words, unusual
from fedprognos.deployment.coordinator import handshake, site_transport
from fedprognos.deployment.coordinator.coordinator_service import UNSCORED
from fedprognos.deployment.site.approvals import Approvals
from fedprognos.deployment.site.site_ledger import SiteLedger, broken_at, ledger_in_words
from fedprognos.deployment.steps.signed_steps import StepHeader
from fedprognos.errors import FederationError, MessageError, RefusedByFloorsError
from fedprognos.evaluation import Results
from fedprognos.experiment import config
from fedprognos.federation.averages import aggregators
from fedprognos.federation.exchanges import exchanges, words_for
from fedprognos.federation.strategies import strategies
from fedprognos.identity import fingerprint
from fedprognos.networks import Bundle
from fedprognos.privacy import UnmaskRequest
from refusals import refuses

KEYS = {name: name * 64 for name in "abc"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_transport, "CHECK_IN_S", 0.0)
    monkeypatch.setattr(handshake, "ASK_AGAIN_IN_S", 0.0)


def contract_of(preset: str, *changes: str) -> Contract:
    experiment = config.load(preset, (*changes, "federation.methods=['fedavg']", "evaluation.baselines=[]"))[1]
    plain = experiment.model_copy(
        update={"evaluation": experiment.evaluation.model_copy(update={"best_on_test": False})}
    )
    return Contract.from_experiment("x", "1", plain, KEYS, "d" * 64)


@pytest.mark.parametrize("preset", ["demo", "demo-battery", "turbofan-fd001"])
def test_a_contract_says_the_whole_experiment_and_nothing_of_the_data(preset: str) -> None:
    contract = contract_of(preset)
    assert Contract.parse(contract.text).digest == contract.digest
    assert contract.experiment().train == config.load(preset)[1].train
    assert "kind" not in contract.sections
    words = "\n".join(in_words(contract, "a"))
    assert all(fingerprint(key) in words for key in KEYS.values())
    assert "UNUSUAL" not in words


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("recipe.stride=1000000", "stride"),
        ("train.validation_fraction=0.01", "validation_fraction"),
        ("recipe.cap=1", "cap"),
        ("recipe.conditions={altitude_in_kft = 9}", "conditions"),
        ("recipe.history=20000000", "history"),
        ("federation.min_clients=1", "min_clients"),
        ("train.learning_rate=1e-12", "learning rate"),
        ("evaluation.seeds=369", "seeds"),
    ],
)
def test_values_that_an_honest_experiment_hardly_has_are_called_by_name(change: str, word: str) -> None:
    assert any(word in text for text in unusual(contract_of("demo", change).experiment(), 3))


def test_a_contract_says_rounds_and_whatever_is_not_at_its_default() -> None:
    changes = ("federation.wire='float16'", "evaluation.score_at='all'", "federation.mode='checked'")
    words = "\n".join(in_words(contract_of("demo", *changes), "a"))
    assert "rounds = " in words and 'wire = "float16"' in words and 'score_at = "all"' in words
    assert "UNUSUAL" in words
    assert "UNUSUAL" not in "\n".join(in_words(contract_of("demo"), "a"))


def test_a_contract_shows_what_can_leave_in_the_words_of_the_exchanges() -> None:
    masked = "\n".join(in_words(contract_of("demo"), "a"))
    checked = "\n".join(in_words(contract_of("demo", "federation.mode='checked'"), "a"))
    for exchange in exchanges.values():
        words = exchange.words
        line = f"    {words.leaves} ({words.reveals})"
        if exchange.request is UnmaskRequest:
            assert line in masked and line not in checked
        elif words.about_data:
            assert checked.count(line) == 1
            assert (line in masked) == (not exchange.only_masked)
            if exchange.only_masked and exchange.template is not None:
                assert masked.count(f"    {words.leaves}, masked (") == 1
        else:
            assert line not in masked and line not in checked


def test_what_is_no_contract_or_unknown_here_is_refused() -> None:
    good = contract_of("demo").text
    for text in (
        "{}",
        "[",
        "[" * 100_000,
        good.replace('"fedavg"', '"fedmagic"'),
        good.replace('"mode": "masked"', '"mode": "open"', 1),
        good.replace('"mode": "masked"', '"mode": "checked"', 1),  # the experiment in it still says masked
        good.replace('"version": "', '"version": "9'),
        good.replace("a" * 64, "b" * 64),
        good.replace("a" * 64, "a" * 63 + "g"),
        good.replace('"stride"', '"strike"'),
        " " + good,
    ):
        with pytest.raises(MessageError):
            Contract.parse(text)


@pytest.mark.parametrize("mark", ["\\u202e", "\\u0085", "\\u009b2J", "\\u200b"])
def test_names_that_steer_a_screen_are_refused(mark: str) -> None:
    good = contract_of("demo").text
    with refuses(MessageError, 80):
        Contract.parse(good.replace('"b": "bbb', f'"b{mark}": "bbb'))


def test_a_site_that_confirmed_members_accepts_no_others(tmp_path: Path) -> None:
    contract, pins = contract_of("demo"), {name: fingerprint(KEYS[name]).replace(" ", "") for name in "bc"}
    with refuses(MessageError, "'c'"):
        Approvals(tmp_path, confirmed={"b": pins["b"]}).put(contract, "a", KEYS["a"])
    assert Approvals(tmp_path, confirmed=pins).put(contract, "a", KEYS["a"]).state == "waiting"


def test_a_checked_run_is_defended_where_its_experiment_sets_nothing_else() -> None:
    checked = contract_of("demo", "federation.mode='checked'").experiment().federation
    assert (checked.screen, checked.weight_cap) == (0.13, 3.0)
    fedavg = strategies["fedavg"]
    assert aggregators[checked.strategy_options("fedavg", fedavg.options).average].robust
    chosen = ("federation.mode='checked'", "federation.screen=0.5", "federation.fedavg.average='weighted'")
    changed = contract_of("demo", *chosen).experiment().federation
    assert (changed.screen, changed.weight_cap) == (0.5, 3.0)
    assert changed.strategy_options("fedavg", fedavg.options).average == "weighted"
    assert contract_of("demo", "federation.weight_cap=2.0").experiment().federation.weight_cap == 2.0
    assert contract_of("demo").experiment().federation.weight_cap is None  # masked: nobody sees who counts how much


def test_a_site_without_approval_says_nothing_about_its_data(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    run.mailbox.inner.approving, run.mailbox.at_most = False, 12
    with pytest.raises(CrashError):
        run.perform()
    assert {line.kind for line in run.sites["a"].ledger.ledger()} == {"HelloReply", "ContractReply"}
    assert any("UNUSUAL" not in text and "members" in text for text in run.said)


def test_a_finished_run_leaves_a_chained_ledger_and_can_not_be_run_again_without_approval(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    run.perform()
    ledger = SiteLedger(tmp_path / "a")
    lines = ledger.lines()
    assert broken_at(lines) is None
    steps = [line["step"] for line in lines if "step" in line]
    assert steps == sorted(set(steps))
    assert all(line["signature"] for line in lines if "step" in line)
    [digest] = {line["contract"] for line in lines if "contract" in line}
    words = "\n".join(ledger_in_words(lines, {digest: "small"}))
    assert f"Run 'small', contract {digest[:16]}" in words
    fits = words_for("FitReply")
    assert fits is not None
    assert re.search(rf"  2 times, \d+\.\d kB: {re.escape(fits.leaves)}.*{re.escape(fits.reveals)}", words)
    assert "complete" in words
    assert "REFUSED" not in words
    assert "Reply" not in words
    for change in (lines[:3] + lines[4:], [*lines[:2], {**lines[2], "bytes": 1}, *lines[3:]]):
        assert broken_at(change) is not None
    again = [run.sites["a"].respond(data) for site, data in run.mailbox.steps if site == "a"]
    assert sum(reply.startswith(b"fedprognos step reply") for reply in again) == 1  # the last, the very same bytes


LONGER = {"federation": {"fedavg": {"rounds": 8, "epochs": 1}}, "model": {"widths": [8]}}


@pytest.mark.long
@pytest.mark.parametrize("who", ["coordinator", "site", "both"])
@pytest.mark.parametrize("at", [1, 2, 4, 7])
def test_a_crash_at_any_step_changes_no_byte(tmp_path: Path, who: str, at: int) -> None:
    undisturbed = SmallRun(tmp_path / "one")
    undisturbed.perform()
    run = SmallRun(tmp_path / "two")
    crashed: list[int] = []

    def crash(site: str, header: StepHeader, data: bytes) -> None:
        if header.step == at and site == "b" and not crashed:
            crashed.append(at)
            if who in ("site", "both"):
                run.sites["a"], run.sites["b"] = run.site("a"), run.site("b")
            if who in ("coordinator", "both"):
                raise CrashError

    run.mailbox.before = crash
    if who == "site":
        run.perform()
    else:
        with pytest.raises(CrashError):
            run.perform()
        run.perform()
    assert crashed
    assert run.weights() == undisturbed.weights()
    for name in "abc":
        steps = [line for line in SiteLedger(tmp_path / "two" / name).lines() if "step" in line]
        assert not [line for line in steps if "refused" in line]
        new = [line["step"] for line in steps if not line.get("repeat")]
        assert len(new) == len(set(new))  # nothing was computed twice


@pytest.mark.long
def test_a_site_that_lacks_more_steps_than_fit_into_a_message_gets_them_in_parts(tmp_path: Path) -> None:
    limit = 30_000
    undisturbed = SmallRun(tmp_path / "one", changes=LONGER)
    undisturbed.perform()
    run = SmallRun(tmp_path / "two", changes=LONGER, largest_request=limit)
    lost: list[int] = []

    def lose(site: str, header: StepHeader, data: bytes) -> None:
        assert len(data) <= limit
        if header.step == 14 and not lost:
            (steps,) = (tmp_path / "two" / "b").rglob("steps")
            lost.extend(path.stat().st_size for path in steps.iterdir())
            shutil.rmtree(steps)
            run.sites["b"] = run.site("b")

    run.mailbox.before = lose
    run.perform()
    assert sum(lost) > 2 * limit
    assert run.weights() == undisturbed.weights()
    assert not [line for line in SiteLedger(tmp_path / "two" / "b").lines() if "refused" in line]


def test_a_site_whose_data_changed_in_a_run_refuses_to_continue(tmp_path: Path) -> None:
    run = SmallRun(tmp_path, changes={"federation": {"min_clients": None}})

    def change(site: str, header: StepHeader, data: bytes) -> None:
        if header.step == 4:
            run.sites["a"] = run.site("a", seed=9)

    run.mailbox.before = change
    with refuses(FederationError, "client a"):
        run.perform()
    assert any("data changed" in text for text in run.said)


def test_a_site_that_fails_in_a_step_is_left_out_and_the_others_follow(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    broken = run.sites["c"].client.answer

    def fail(request: object, *more: object) -> object:
        if type(request).__name__ == "FitRequest":
            raise OSError(28, "No space left on device")
        return broken(request, *more)  # type: ignore[arg-type]

    run.sites["c"].client.answer = fail  # type: ignore[method-assign, assignment]
    run.perform()
    assert run.weights()
    assert any("left out c" in text for text in run.said)


def test_the_contract_of_the_small_run_is_what_it_says(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    run.perform()
    contract = Contract.parse((tmp_path / "run" / "contract-done.json").read_text())
    assert contract.sections["recipe"]["stride"] == EXPERIMENT["recipe"]["stride"]
    assert contract.members == {name: site.identity.public for name, site in run.sites.items()}


def test_contracts_of_another_version_do_not_keep_a_site_from_new_ones(tmp_path: Path) -> None:
    approvals, contract = Approvals(tmp_path), contract_of("demo")
    old = replace(contract, version="0.0.1")
    (approvals.place(old.digest)).mkdir(parents=True)
    (approvals.place(old.digest) / "contract.json").write_text(old.text)
    assert approvals.put(contract, "a", KEYS["a"]).state == "waiting"
    assert [entry.contract for entry in approvals.entries()] == [contract]


def test_a_run_that_no_site_may_score_ends_and_says_so(tmp_path: Path) -> None:
    run = SmallRun(tmp_path, changes={"train": {"epochs": 1, "validation_fraction": 0.0}})  # and no test units
    run.perform()
    assert UNSCORED in run.said
    assert not any(text.startswith("report ") for text in run.said)
    assert run.weights()
    assert (tmp_path / "run" / "contract-done.json").is_file()


@pytest.mark.parametrize("mode", ["checked", pytest.param("masked", marks=pytest.mark.long)])
def test_a_method_that_floors_refuse_is_left_out_and_the_run_goes_on(tmp_path: Path, mode: str) -> None:
    """A reservoir of more columns than rows has rows that stand out; FedAvg's three neurons have none."""
    federation = {"methods": ["fedavg", "reservoir"], "reservoir": {"units": 300}, "mode": mode, "min_clients": None}
    options = {**LAX, "max_leverage": 0.95}
    run = SmallRun(tmp_path, changes={"federation": {**EXPERIMENT["federation"], **federation}}, options=options)
    run.perform()
    results = Results.load(tmp_path / "run" / "results.json")
    assert results.published == "fedavg"
    assert {row.method for row in results.rows} <= {"fedavg"}
    assert "Reservoir" in results.reason
    assert any("reservoir" in text and "floors" in text for text in run.said)
    assert run.weights()


def test_a_run_whose_only_method_is_refused_ends_and_says_why(tmp_path: Path) -> None:
    federation = {**EXPERIMENT["federation"], "methods": ["reservoir"], "reservoir": {"units": 300}}
    run = SmallRun(tmp_path, changes={"federation": federation}, options={**LAX, "max_leverage": 0.95})
    with refuses(RefusedByFloorsError, "0 of 3", code="floors"):
        run.perform()


@pytest.mark.parametrize("mode", ["checked", pytest.param("masked", marks=pytest.mark.long)])
def test_columns_that_wear_and_heads_that_clients_choose_work_deployed(tmp_path: Path, mode: str) -> None:
    federation = {**EXPERIMENT["federation"], "heads": ["exact", "choice"], "mode": mode, "min_clients": None}
    run = SmallRun(tmp_path, {"federation": federation, "recipe": {**EXPERIMENT["recipe"], "columns": "wear"}})
    run.perform()
    choices = Bundle.load(tmp_path / "run" / "bundle").provenance["choices"]
    assert set(choices) == set("abc")
    for name in "abc":
        asked = {line.get("request") for line in run.lines(name)}
        assert {"WearRequest", "ChoiceRequest"} <= asked
        assert not [line for line in run.lines(name) if "refused" in line or line["kind"] == "Failure"]
        wear = {line["kind"] for line in run.lines(name) if line.get("request") == "WearRequest"}
        assert wear == ({"MaskedReply"} if mode == "masked" else {"WearReply"})
