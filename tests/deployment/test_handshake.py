"""The handshake: who fits, who is refused and why, and the messages themselves as recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sites_here import MailboxHere, site_here

from fedprognos.deployment import site_transport
from fedprognos.deployment.coordinator import submit
from fedprognos.deployment.deployed_run import deployable
from fedprognos.deployment.handshake import admit, members_so_far, misfits, wait_for_sites
from fedprognos.deployment.messages import DataTerms, HelloReply, HelloRequest, RefusalRequest
from fedprognos.deployment.site_data import SiteData, data_terms
from fedprognos.deployment.site_transport import SiteTransport
from fedprognos.errors import ConfigError, FederationError, MessageError, OutputError
from fedprognos.experiment import config
from fedprognos.features import SurveyTerms
from fedprognos.features.options import RecipeOptions
from fedprognos.federation.codec import decode, encode
from small_fleets import series_fleet

RECORDED = Path(__file__).with_name("recorded")
EXPERIMENT = {
    "data": {"kind": "synthetic-engines"},
    "partition": {"by": "column", "column": "site"},
    "recipe": {"window": 10},
}


def hello(name: str, fingerprint: str = "same", **schema: Any) -> HelloReply:
    return HelloReply(name, "1", replace(series_fleet([30]).schema, **schema), fingerprint)


MESSAGES = {
    "hello_request": HelloRequest(
        "engines",
        DataTerms(SurveyTerms(drop=("mach",), conditions={"altitude": 0}, cap=125.0), window=30, short="pad"),
    ),
    "hello_request_of_defaults": HelloRequest("engines", DataTerms(SurveyTerms())),
    "hello_reply": HelloReply("plant-a", "0.1.0", series_fleet([30]).schema, "0" * 32),
    "refusal_request": RefusalRequest("engines", "its columns differ"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_recorded_with_this_version_is_understood_and_sent_as_the_same_bytes(name: str) -> None:
    recorded = (RECORDED / f"{name}.message").read_bytes()
    kinds = (HelloRequest, HelloReply, RefusalRequest)
    assert decode(recorded, kinds) == MESSAGES[name]
    assert encode(MESSAGES[name]) == recorded


def test_keys_at_their_default_are_not_sent_and_unknown_ones_are_refused_by_name() -> None:
    plain = encode(MESSAGES["hello_request_of_defaults"])
    assert b"window" not in plain
    assert b"short" not in plain
    spoilt = encode(MESSAGES["hello_request"]).replace(b"window", b"widows")
    with pytest.raises(MessageError, match="unknown field 'widows'"):
        decode(spoilt, (HelloRequest,))


def test_a_site_is_sent_what_it_needs_to_check_its_data_and_no_more() -> None:
    options = RecipeOptions(window=30, short="pad", drop=("mach",), cap=125, stride=7, setting_inputs=True)
    assert data_terms(options) == DataTerms(SurveyTerms(drop=("mach",), cap=125.0), 30, "pad")


def test_sites_that_do_not_fit_are_told_why() -> None:
    replies = {"a": hello("a"), "b": hello("b"), "c": hello("c", sensors=("pressure", "humidity")), "d": hello("a")}
    reasons = misfits(replies, {"b": "other"})
    assert "humidity" in reasons["c"]
    assert "calls itself 'a'" in reasons["d"]
    assert "data changed" in reasons["b"]
    assert "a" not in reasons


def test_a_run_that_continues_keeps_its_sites_but_for_those_whose_data_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_transport, "LOOK_IN_S", 0.0)
    experiment = config.parse({**EXPERIMENT, "federation": {"min_clients": 2}}, "test")
    sites = {name: site_here(tmp_path / name, name) for name in "abc"}
    said: list[str] = []

    def admitted(names: str, experiment: config.Experiment = experiment) -> tuple[str, ...]:
        transport = SiteTransport(MailboxHere(sites), tuple("abc"), 1 << 20)
        here = wait_for_sites(transport, tuple(names), 2, 0.0, said.append)
        return admit(transport, here, "x", experiment, tmp_path, said.append)

    assert admitted("abc") == ("a", "b", "c")
    assert list(members_so_far(tmp_path)) == ["a", "b", "c"]
    assert admitted("ab") == ("a", "b", "c")  # c is away and may come back
    sites["c"] = site_here(tmp_path / "c", "c", data=SiteData(series_fleet([60, 58, 70], seed=9, name="c"), None))
    assert admitted("abc") == ("a", "b")
    assert "c is refused: its data changed" in said[-1]
    with pytest.raises(FederationError, match="2 of 3 sites can take part"):
        admitted("abc", config.parse(EXPERIMENT, "test"))


def test_central_training_is_left_out_and_refused_alone() -> None:
    _, experiment, _ = config.load("plants")
    said: list[str] = []
    assert "central" not in deployable(experiment, said.append).federation.methods
    assert said
    only = config.load("plants", ["federation.methods=['central']"])[1]
    with pytest.raises(ConfigError, match="all data in one place"):
        deployable(only, said.append)


def test_several_scenarios_are_refused() -> None:
    partition = {"alike": {"by": "random", "clients": 3}, "by site": {"by": "column", "column": "site"}}
    with pytest.raises(ConfigError, match="2 scenarios: alike, by site"):
        deployable(config.parse({**EXPERIMENT, "partition": partition}, "test"), lambda text: None)


def test_a_name_that_another_experiment_has_is_refused_when_it_is_queued(tmp_path: Path) -> None:
    experiment = config.load("plants")[1]
    assert submit(tmp_path, "plants", experiment) == submit(tmp_path, "plants", experiment)
    other = config.load("plants", ("train.epochs=3",))[1]
    with pytest.raises(OutputError, match="another experiment") as told:
        submit(tmp_path, "plants", other)
    assert "--name" in told.value.hint
    assert len(list((tmp_path / "queue").iterdir())) == 1


@pytest.mark.parametrize("preset", config.presets())
def test_what_is_queued_is_the_experiment_that_was_given(preset: str) -> None:
    experiment = config.load(preset)[1]
    assert config.parse(experiment.dump(), "queue").dump() == experiment.dump()
