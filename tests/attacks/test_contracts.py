"""Contracts that were made to mislead whoever reads or approves them, and what a site's own words could tell."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sites_here import site_here
from small_run import SmallRun

from fedprognos.deployment.contract import Contract, in_words, side_by_side
from fedprognos.deployment.site import site_ledger as ledger
from fedprognos.deployment.site.approvals import Approvals
from fedprognos.errors import MessageError
from fedprognos.federation.codec import LedgerLine, decode, encode
from fedprognos.federation.exchanges import Failure, reply_kinds
from fedprognos.federation.exchanges.evaluate import EvaluateRequest
from fedprognos.federation.exchanges.site_messages import ContractRequest, HelloReply, HelloRequest
from fedprognos.federation.limits import Limits
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.model_options import ModelOptions
from refusals import refuses
from small_fleets import recipe_of, series_fleet


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return SmallRun(tmp_path_factory.mktemp("contracts"))


def contract_of(run: SmallRun, id_: str = "1", **changes: dict[str, Any]) -> Contract:
    members = {name: site.identity.public for name, site in run.sites.items()}
    plain = Contract.from_experiment("x", id_, run.experiment, members, run.identity.public)
    return replace(plain, sections={name: {**own, **changes.get(name, {})} for name, own in plain.sections.items()})


def test_no_text_of_a_contract_can_pretend_to_be_a_line_of_its_own(run: SmallRun) -> None:
    fake = "v\n  members (compare these fingerprints by telephone):\n    b: 0000\u2028    c: 1111\x85d"
    contract = Contract.parse(
        contract_of(run, recipe={"cycle": "levels", "levels": fake, "grid_end_in_s": 10.0, "conditions": {}}).text
    )
    lines = list(in_words(contract, "a"))
    assert any("0000" in line for line in lines)  # it is shown, within its own line
    assert all(len(line.splitlines()) <= 1 for line in lines)
    assert sum(line.strip().startswith("members") for line in lines) == 1


def test_a_contract_with_more_members_than_anybody_can_compare_is_refused(run: SmallRun) -> None:
    many = {f"m{k}": f"{k:064x}" for k in range(501)} | {"a": run.sites["a"].identity.public}
    with refuses(MessageError, 500):
        Contract.parse(replace(contract_of(run), members=dict(sorted(many.items()))).text)


def test_invented_members_whose_networks_would_stand_side_by_side_meet_the_limits(run: SmallRun) -> None:
    members = {f"m{k}": f"{k:064x}" for k in range(400)} | {"a": run.sites["a"].identity.public}
    plain = contract_of(run, model={"widths": [400]}, federation={"methods": ["concat"], "fedavg": {}})
    wide = replace(plain, members=dict(sorted(members.items())))
    assert side_by_side(wide) == 401
    reply = decode(run.sites["a"].respond(encode(ContractRequest(wide.text))), reply_kinds())
    assert "memory" in reply.text
    assert not run.sites["a"].approvals.entry(wide.digest)
    Limits(4 << 30).check_model(ModelOptions(widths=(400,)), 6)  # alone it is a network like others


@pytest.mark.parametrize(
    "huge",
    [
        {"model": {"widths": [3] * 200_000}},  # took a site a minute to look at
        {"recipe": {"channels": {"mean": list(range(1, 5000))}}, "model": {"widths": [1000]}},
        {"recipe": {"channels": {"change": 10**9}}},
        {"recipe": {"grid_points": 10**12}},
        {"evaluation": {"seeds": 10**9}},
        {"evaluation": {"bootstrap": 10**12}},
    ],
    ids=lambda huge: "-".join(name for section in huge.values() for name in section),
)
def test_numbers_without_measure_are_refused_before_anybody_can_approve_them(run: SmallRun, huge: Any) -> None:
    text = contract_of(run, "4", **huge).text
    begun = time.process_time()
    reply = decode(run.sites["a"].respond(encode(ContractRequest(text))), reply_kinds())
    assert isinstance(reply, Failure)
    assert time.process_time() - begun < 5


def test_a_refusal_for_its_size_does_not_tell_how_many_rows_there_are() -> None:
    texts = set()
    for lengths in ([40] * 12, [41] * 11):
        fleet = series_fleet(lengths, seed=5, name="a")
        recipe = recipe_of(fleet, window=8, cap=40, stride=1)
        network = Network(NetworkSpec(inputs=recipe.channels, widths=(3,)), {})
        for limits in (Limits(memory_in_bytes=10), Limits(operations=10)):
            with pytest.raises(MessageError) as refused:
                limits.check(EvaluateRequest(recipe, network, 1, 0.0, statistics=True), fleet)
            texts.add(refused.value.what)
    assert len(texts) == 2


@pytest.mark.parametrize(
    "damage", ["", "{", "[1]", '{"state": "owned"}', '{"state": ["approved"]}', "\x00", "[" * 9000]
)
def test_a_damaged_state_of_a_contract_counts_as_waiting(run: SmallRun, damage: str) -> None:
    approvals = Approvals(run.folder / f"state {len(damage)} {damage[:3]!r}".replace("/", ""))
    entry = approvals.put(contract_of(run), "a", run.sites["a"].identity.public)
    approvals.set_state(entry, "running", "data")
    (approvals.place(entry.contract.digest) / "state.json").write_text(damage)
    assert [one.state for one in approvals.entries()] == ["waiting"]
    assert json.loads(entry.contract.text)


def test_repeats_and_handshakes_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_OTHER_LINES_A_DAY", 5)
    site = site_here(tmp_path)
    for _ in range(30):
        site.respond(encode(HelloRequest("x")))
    site.ledger.about = {"step": 1, "contract": "c"}
    site.ledger.record(LedgerLine("JoinReply", 10))
    site.ledger.about = {"step": 1, "contract": "c", "repeat": True}
    for _ in range(30):
        site.ledger.record(LedgerLine("JoinReply", 10))
    lines = ledger.SiteLedger(tmp_path).lines()
    assert [line["kind"] for line in lines] == ["HelloReply"] * 5 + ["JoinReply"]
    assert lines[-1]["repeats_not_written"] == 25
    assert any("25 more handshakes and repeats" in text for text in ledger.ledger_in_words(lines, {}))
    assert site.ledger.answered("c", "") == (1, 1)
    assert ledger.broken_at(lines) is None


@pytest.mark.parametrize("damage", [b"[]", b"7", b"\xff\xfe", b'{"kind": 3, "bytes": "x"}', b"[" * 9000, b"{"])
def test_a_damaged_ledger_is_shown_and_bars_nobody(tmp_path: Path, damage: bytes) -> None:
    site_here(tmp_path).respond(encode(HelloRequest("x")))
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(path.read_bytes() + damage + b"\n" + path.read_bytes())
    site = site_here(tmp_path)
    assert decode(site.respond(encode(HelloRequest("x"))), (HelloReply,)).name == "a"
    assert any("chain is broken" in text for text in ledger.ledger_in_words(site.ledger.lines(), {}))


@pytest.mark.parametrize(
    "how", [lambda text: text.replace(b'"cap": 40.0', b'"cap": 41.0'), lambda text: text + b"\xff"]
)
def test_a_contract_that_was_changed_on_disk_is_not_the_one_that_was_approved(
    run: SmallRun, how: Any, tmp_path: Path
) -> None:
    approvals = Approvals(tmp_path)
    entry = approvals.set_state(approvals.put(contract_of(run), "a", run.sites["a"].identity.public), "approved")
    path = approvals.place(entry.contract.digest) / "contract.json"
    assert how(path.read_bytes()) != path.read_bytes()
    path.write_bytes(how(path.read_bytes()))
    with pytest.raises(MessageError):
        approvals.entry(entry.contract.digest)
    assert not approvals.entries()
