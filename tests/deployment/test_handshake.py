"""The handshake: who fits, who is refused and why, and the messages themselves as recorded."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "attacks"))

from small_run import SmallRun

from fedprognos import __version__
from fedprognos.deployment.contract import Contract
from fedprognos.deployment.coordinator.coordinator_service import deployable, submit
from fedprognos.deployment.site import site_service
from fedprognos.deployment.steps.agreed_run import misfits
from fedprognos.errors import ConfigError, FederationError, MessageError, OutputError
from fedprognos.experiment import config
from fedprognos.features import SurveyTerms
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.exchanges.site_messages import (
    ContractReply,
    ContractRequest,
    DataTerms,
    HelloReply,
    HelloRequest,
    JoinReply,
    JoinRequest,
    RefusalRequest,
    StepsMissing,
)
from refusals import refuses
from small_fleets import series_fleet

RECORDED = Path(__file__).with_name("recorded")
EXPERIMENT = {
    "data": {"kind": "synthetic-engines"},
    "partition": {"by": "column", "column": "site"},
    "recipe": {"window": 10},
}


MESSAGES = {
    "hello_request": HelloRequest("engines"),
    "hello_reply": HelloReply("plant-a", "0.1.0", "0" * 64),
    "contract_request": ContractRequest("{}"),
    "contract_reply": ContractReply(True),
    "join_request": JoinRequest(
        "engines",
        DataTerms(SurveyTerms(drop=("mach",), conditions={"altitude": 0}, cap=125.0), window=30, short="pad"),
    ),
    "join_request_of_defaults": JoinRequest("engines", DataTerms(SurveyTerms())),
    "join_reply": JoinReply(series_fleet([30]).schema, "0" * 32),
    "steps_missing": StepsMissing(3),
    "refusal_request": RefusalRequest("engines", "its columns differ"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_recorded_with_this_version_is_understood_and_sent_as_the_same_bytes(name: str) -> None:
    recorded = (RECORDED / f"{name}.message").read_bytes()
    assert decode(recorded, tuple({type(message) for message in MESSAGES.values()})) == MESSAGES[name]
    assert encode(MESSAGES[name]) == recorded


def test_keys_at_their_default_are_not_sent_and_unknown_ones_are_refused_by_name() -> None:
    plain = encode(MESSAGES["join_request_of_defaults"])
    assert b"window" not in plain
    assert b"short" not in plain
    spoilt = encode(MESSAGES["join_request"]).replace(b"window", b"widows")
    with refuses(MessageError, "widows"):
        decode(spoilt, (JoinRequest,))


def test_a_site_is_sent_what_it_needs_to_check_its_data_and_no_more() -> None:
    options = RecipeOptions(window=30, short="pad", drop=("mach",), cap=125, stride=7, setting_inputs=True)
    assert DataTerms.from_recipe(options) == DataTerms(SurveyTerms(drop=("mach",), cap=125.0), 30, "pad")


def test_sites_that_do_not_fit_are_told_why() -> None:
    schema = series_fleet([30]).schema
    reasons = misfits({"a": schema, "b": schema, "c": replace(schema, sensors=("pressure", "humidity"))})
    assert "humidity" in reasons["c"]
    assert list(reasons) == ["c"]


def test_versions_that_do_not_fit_are_refused_at_the_handshake_with_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SmallRun(tmp_path)
    monkeypatch.setattr(site_service, "__version__", "9.9")
    with refuses(FederationError, "0 of 3", "9.9", __version__):
        run.perform()
    shown = [text for text in run.said if "9.9" in text and __version__ in text]
    assert len(shown) == 6  # by the coordinator about each site, and at each site


def test_a_contract_of_another_version_says_so_whatever_else_it_holds(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    run.perform()
    document = json.loads((tmp_path / "run" / "contract-done.json").read_text("utf-8"))
    with refuses(MessageError, "9.9", __version__):
        Contract.parse(json.dumps({**document, "version": "9.9", "of a later version": 1}, sort_keys=True))


def test_central_training_is_left_out_and_refused_alone() -> None:
    _, experiment, _ = config.load("plants")
    said: list[str] = []
    assert "central" not in deployable(experiment, said.append).federation.methods
    assert said
    only = config.load("plants", ["federation.methods=['central']"])[1]
    with refuses(ConfigError, "federation.methods"):
        deployable(only, said.append)


def test_several_scenarios_are_refused() -> None:
    partition = {"alike": {"by": "random", "clients": 3}, "by site": {"by": "column", "column": "site"}}
    with refuses(ConfigError, 2, "alike", "by site"):
        deployable(config.parse({**EXPERIMENT, "partition": partition}, "test"), lambda text: None)


def test_a_name_that_another_experiment_has_is_refused_when_it_is_queued(tmp_path: Path) -> None:
    experiment = config.load("plants")[1]
    assert submit(tmp_path, "plants", experiment) == submit(tmp_path, "plants", experiment)
    other = config.load("plants", ("train.epochs=3",))[1]
    with refuses(OutputError, "plants") as caught:
        submit(tmp_path, "plants", other)
    assert "--name" in str(caught.value)
    assert len(list((tmp_path / "queue").iterdir())) == 1


@pytest.mark.parametrize("preset", config.presets())
def test_what_is_queued_is_the_experiment_that_was_given(preset: str) -> None:
    experiment = config.load(preset)[1]
    assert config.parse(experiment.dump(), "queue").dump() == experiment.dump()


def test_a_deployed_experiment_claims_no_search() -> None:
    shown: list[str] = []
    changes = ("search=50", "evaluation.refit=true", "train.validation_fraction=0.2")
    _, experiment, _ = config.load("demo", changes)
    deployed = deployable(experiment, shown.append)
    assert (deployed.search, deployed.evaluation.refit) == (0, True)
    assert [key for key in ("search", "evaluation.refit") if any(text.startswith(key) for text in shown)] == ["search"]
