"""Two approved runs over nearly the same rows: what their sums differ by has the floors behind it, or nothing runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from small_run import SmallRun, experiment_of
from typer.testing import CliRunner

from fedprognos.cli import app
from fedprognos.deployment.contract import Contract
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.deployment.site.site_service import Site
from fedprognos.deployment.steps.replay import StepRefusedError
from fedprognos.experiment import config
from fedprognos.federation.codec import LedgerLine
from fedprognos.federation.exchanges.site_messages import ContractRequest
from fedprognos.fleet import Fleet
from small_fleets import cyclic_fleet, series_fleet

FLEET = series_fleet([30 + k for k in range(11)] + [90], seed=5, name="a")
FLEET.units[3].settings[17] = (20.4, 0.7)
"""Twelve machines; one of them lived much longer than all others, and one row of another has a setting of its own."""
OTHERS = {"b": "b" * 64, "c": "c" * 64}


def site_of(folder: Path, fleet: Fleet = FLEET, test: Fleet | None = None, **options: Any) -> Site:
    folder.mkdir(exist_ok=True)
    return Site(folder, SiteOptions(name="a", coordinator="x:1", **options), SiteData(fleet, test), lambda text: None)


def offered(site: Site, number: int, **recipe: Any) -> Contract:
    """A contract with such a recipe comes to a site."""
    shared = {"window": 8, "stride": 1, "cap": 40, "conditions": {}}
    changes = {"recipe": {**shared, **recipe}, "federation": {"mode": None}, "evaluation": {"seeds": number}}
    experiment = config.parse(experiment_of(changes), "test")
    contract = Contract.from_experiment(
        f"run {number}", str(number), experiment, {"a": site.identity.public, **OTHERS}, "d" * 64
    )
    site._open(ContractRequest(contract.text))
    return contract


def begin(site: Site, number: int, **recipe: Any) -> None:
    """An approved contract with such a recipe comes to its first step."""
    site._bind(site.approvals.approve(offered(site, number, **recipe).digest))


def approve(folder: Path, **settings: Any) -> str:
    """What `deploy approve --yes` says at a site with these settings."""
    text = tomli_w.dumps({"name": "a", "coordinator": "x:1", **settings})
    (folder / "settings.toml").write_text(text, "utf-8")
    result = CliRunner().invoke(app, ["deploy", "approve", str(folder), "--yes"])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("cap", "begins"), [(81, False), (25, True)], ids=["one machine", "many machines"])
def test_approving_shows_what_the_site_will_say(tmp_path: Path, cap: float, begins: bool) -> None:
    told = list[str]()
    site = site_of(tmp_path)
    site.tell = told.append
    begin(site, 1, cap=80)
    contract = offered(site, 2, cap=cap)
    shown = approve(tmp_path)
    entry = site.approvals.entry(contract.digest)
    assert entry is not None
    assert (entry.state == "approved") == begins
    told.clear()
    if begins:
        site._bind(entry)
        return
    with pytest.raises(StepRefusedError):
        site._bind(site.approvals.set_state(entry, "approved"))  # had it been approved all the same
    reasons = [text.partition("run 'run 2': ")[2] for text in told]
    assert reasons
    assert all(reason in " ".join(shown.split()) for reason in reasons)


def test_a_contract_is_compared_again_when_another_run_began_or_the_data_changed(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    waiting = offered(site, 2, cap=81)
    assert site.approvals.differences(waiting.digest) == []
    begin(site, 1, cap=80)
    assert site.approvals.differences(waiting.digest)
    assert "run 1" in approve(tmp_path)
    begin(site_of(tmp_path / "b"), 1)
    later = site_of(tmp_path / "b", changed(FLEET, 1))
    assert later.approvals.differences(offered(later, 3).digest)
    begin(site_of(tmp_path / "c"), 1, cap=80)
    lax = site_of(tmp_path / "c", min_units=1, min_count=20)
    other = offered(lax, 2, cap=60)
    assert lax.approvals.differences(other.digest) == []
    assert site_of(tmp_path / "c", min_count=10_000).approvals.differences(other.digest)  # other floors


def test_what_the_site_has_not_compared_cannot_be_approved(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    contract = offered(site, 1)
    (site.approvals.place(contract.digest) / "checked.json").write_text("{")
    approve(tmp_path)
    assert [entry.state for entry in site.approvals.entries()] == ["waiting"]
    site_of(tmp_path)  # started again
    approve(tmp_path)
    assert [entry.state for entry in site.approvals.entries()] == ["approved"]


def test_an_owner_who_allows_small_differences_sees_them_and_approves(tmp_path: Path) -> None:
    begin(site_of(tmp_path), 1, cap=80)
    offered(site_of(tmp_path), 2, cap=81)
    shown = approve(tmp_path, small_differences=True)
    assert "UNUSUAL" in shown
    assert "run 1" in shown
    assert [entry.state for entry in site_of(tmp_path).approvals.entries()] == ["running", "approved"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"cap": 80}, {"cap": 81}),  # the sums of labels differ by the one machine that lived so long
        ({"cap": None}, {"cap": 88}),
        ({"stride": 60}, {"stride": 61}),  # only that machine has a second window
        ({"window": 41, "short": "exclude"}, {"window": 41, "short": "pad"}),
        ({"conditions": {"altitude": 0}}, {"conditions": {"altitude": 1}}),  # one row goes from 20 to 20.4
    ],
    ids=["caps", "no cap", "strides", "short ones", "decimals"],
)
def test_a_second_run_that_differs_by_one_machine_is_refused(tmp_path: Path, first: Any, second: Any) -> None:
    fleet = series_fleet([60] * 11 + [40], seed=5, name="a") if "window" in first else FLEET
    site = site_of(tmp_path, fleet)
    begin(site, 1, **first)
    with pytest.raises(StepRefusedError):
        begin(site, 2, **second)
    begin(site_of(tmp_path, fleet, small_differences=True), 2, **second)


def test_runs_that_differ_in_many_machines_or_in_no_row_begin(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    for number, recipe in enumerate(({}, {"stride": 2}, {"window": 12}, {"cap": 25}, {"drop": ["temperature"]}), 1):
        begin(site, number, **recipe)


def changed(fleet: Fleet, number: int) -> Fleet:
    """So many machines have shown one more value of another kind."""
    units = [replace(u, sensors=u.sensors + 0.5) if k < number else u for k, u in enumerate(fleet)]
    return replace(fleet, units=tuple(units))


@pytest.mark.parametrize(
    ("later", "begins"),
    [
        (lambda fleet: fleet.select(fleet.ids[:-1]), False),  # a machine went
        (lambda fleet: changed(fleet, 4), False),
        (lambda fleet: changed(fleet, 5), True),
        (lambda fleet: fleet, True),
    ],
    ids=["one went", "four changed", "five changed", "the same"],
)
def test_a_run_on_data_that_changed_by_few_machines_is_refused(
    tmp_path: Path, later: Callable[[Fleet], Fleet], begins: bool
) -> None:
    """The moments of both runs differ by that machine's: its count, means and variances, exactly."""
    begin(site_of(tmp_path), 1)
    site = site_of(tmp_path, later(FLEET))
    for number in (1, 2):  # the same contract once more, or another one
        if begins:
            begin(site, number)
        else:
            with pytest.raises(StepRefusedError):
                begin(site, number)


def test_units_to_be_tested_on_are_looked_at_by_themselves(tmp_path: Path) -> None:
    begin(site_of(tmp_path, test=FLEET), 1)
    begin(site_of(tmp_path, changed(FLEET, 6), FLEET), 2)
    with pytest.raises(StepRefusedError):
        begin(site_of(tmp_path, changed(FLEET, 12), changed(FLEET, 1)), 3)


@pytest.mark.parametrize(("more", "begins"), [(5, False), (20, True)])
def test_a_battery_needs_twenty_cycles_more(tmp_path: Path, more: int, begins: bool) -> None:
    whole = cyclic_fleet(1, 60).units[0]

    def first(cycles: int) -> Fleet:
        end = int(whole.cycles[cycles])  # type: ignore[index]
        part = replace(
            whole,
            time=whole.time[:end],
            sensors=whole.sensors[:end],
            settings=whole.settings[:end],
            target=whole.target[:cycles],  # type: ignore[index]
            cycles=whole.cycles[: cycles + 1],  # type: ignore[index]
            cycle_numbers=whole.cycle_numbers[:cycles],  # type: ignore[index]
        )
        return replace(cyclic_fleet(1, 60), units=(part,))

    recipe = {"window": None, "cap": None}
    begin(site_of(tmp_path, first(40)), 1, **recipe)
    if begins:
        begin(site_of(tmp_path, first(40 + more)), 2, **recipe)
    else:
        with pytest.raises(StepRefusedError):
            begin(site_of(tmp_path, first(40 + more)), 2, **recipe)


def test_what_is_kept_of_units_tells_nothing_without_the_sites_key(tmp_path: Path) -> None:
    for name in ("one", "two"):
        begin(site_of(tmp_path / name), 1)
    one, two = ((tmp_path / name).rglob("units.json") for name in ("one", "two"))
    kept = next(iter(one)).read_text("utf-8"), next(iter(two)).read_text("utf-8")
    assert "a-0" not in kept[0]
    assert kept[0] != kept[1]


def test_a_site_begins_so_many_runs_in_a_month(tmp_path: Path) -> None:
    site = site_of(tmp_path, max_runs_per_month=2)
    for number in (1, 2):
        begin(site, number)
        site.ledger.about = {"step": 1, "contract": str(number)}
        site.ledger.record(LedgerLine("JoinReply", 10))
    with pytest.raises(StepRefusedError):
        begin(site, 3)
    assert site.approvals.entries()[-1].state == "approved"


@pytest.mark.long
def test_a_coordinator_hears_no_more_than_that_it_is_refused(tmp_path: Path) -> None:
    """A whole run; then one more with the cap that only the longest life is above."""
    run = SmallRun(tmp_path, {"recipe": {"cap": 30}}, options={"max_leverage": 1.0}, units=12)
    run.perform()
    shutil.move(tmp_path / "run", tmp_path / "first")
    again = SmallRun(tmp_path, {"recipe": {"cap": 31, "window": 9}}, options={"max_leverage": 1.0}, units=12, name="b")
    again.perform()  # of c's machines one row each is above 30: it does not take part
    refused = {name: {str(line["refused"]) for line in again.lines(name) if "refused" in line} for name in "abc"}
    assert refused["a"] == refused["b"] == set()
    assert len(refused["c"]) == 1
    assert "labels" not in refused["c"].pop()
    assert any("labels" in text and "'small'" in text for text in again.said)
    assert not [text for text in again.said if text.startswith("left out c") and "labels" in text]
