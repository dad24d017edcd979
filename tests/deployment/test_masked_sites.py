"""A deployed run with masked sums: the bytes of one process that adds the same integers, no site's sum on the wire."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployments import SITES
from sites_here import MailboxHere

from fedprognos.deployment.contract import mode_of
from fedprognos.deployment.coordinator import handshake, site_transport
from fedprognos.deployment.coordinator.coordinator_service import DeployedRun, deployable
from fedprognos.deployment.coordinator.site_transport import SiteTransport
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.site.site_data import read_site_data
from fedprognos.deployment.site.site_service import SECRETS, Site
from fedprognos.deployment.steps.signed_steps import REPLY, read_reply
from fedprognos.errors import ConfigError
from fedprognos.evaluation import Results
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import run
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.experiment.scenario import EVERYONE
from fedprognos.federation.codec import ledger_line
from fedprognos.federation.federation_section import federation_options
from fedprognos.identity import identity_of
from fedprognos.report import write_report
from refusals import refuses

CHANGES = (
    "federation.methods=['fedavg', 'concat']",
    "federation.heads=['exact', 'mean']",
    "federation.mode='masked'",
    "federation.fedavg={rounds=2, epochs=1}",
    "data.sites=3",
    "data.units_per_site=4",
    "train.steps=4",
    "model.widths=[4]",
    "train.epochs=1",
    "recipe.stride=10",
    "evaluation.score_at='all'",
    "evaluation.baselines=[]",
    "evaluation.bootstrap=0",
    "evaluation.seeds=1",
)
ALONE = {
    *("SurveyReply", "MomentsReply", "RangesReply", "EvaluateReply", "OutputsReply", "PoolReply", "ResidualReply"),
    *("DistanceReply", "ScoreReply"),
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_transport, "CHECK_IN_S", 0.0)
    monkeypatch.setattr(handshake, "ASK_AGAIN_IN_S", 0.0)


@pytest.mark.long
def test_a_masked_deployment_has_the_bytes_of_one_process_and_shows_totals_only(tmp_path: Path) -> None:
    _, experiment, base = config.load("demo", CHANGES)
    sites = {}
    for name in SITES:
        folder = tmp_path / name
        folder.mkdir()
        options = SiteOptions(name=name, coordinator="x:1", min_units=1, max_leverage=1.0, splits="public")
        sites[name] = Site(folder, options, read_site_data(name, experiment, base), lambda text: None, write_report)
    mailbox = MailboxHere(sites)
    transport = SiteTransport(mailbox, SITES, 1 << 26)
    wanted = deployable(experiment, lambda text: None)
    place = RunFolder(tmp_path / "run", "demo", wanted, "deployed")
    said: list[str] = []
    DeployedRun("demo", wanted, place, transport, identity_of(tmp_path), 0.0, said.append, write_report).perform()
    inner = [read_reply(data)[1] for data in mailbox.replies if data.startswith(REPLY)]
    kinds = {ledger_line(data).kind for data in inner}
    assert {"MaskedReply", "UnmaskReply", "SurvivorsReply", "OutlineReply", "FitReply"} <= kinds
    assert not kinds & ALONE
    assert not list(tmp_path.rglob(SECRETS))  # forgotten when the run is over
    alone = run("demo", out=tmp_path / "alone", overrides=CHANGES, workers=1).folder
    expected = {p.relative_to(alone): p.read_bytes() for p in alone.rglob("weights.safetensors")}
    found = {p.relative_to(tmp_path / "run"): p.read_bytes() for p in (tmp_path / "run").rglob("weights.safetensors")}
    assert expected and found == expected
    theirs, ours = (Results.load(folder / "results.json").rows for folder in (alone, tmp_path / "run"))
    assert {row.test_client for row in ours} == {EVERYONE}  # no row for one site
    together = {(row.method, row.head): row.rmse for row in theirs if row.test_client == EVERYONE}
    assert {(row.method, row.head): row.rmse for row in ours} == pytest.approx(together, rel=1e-9)


def test_the_mode_is_masked_from_three_members_on_unless_replies_must_be_seen() -> None:
    kind = federation_options()
    plain = kind.model_validate({})
    assert mode_of(plain, 3) == "masked" and mode_of(plain, 2) == "checked"
    assert mode_of(kind.model_validate({"screen": 0.1}), 5) == "checked"
    assert mode_of(kind.model_validate({"fedavg": {"average": "krum"}}), 5) == "checked"
    assert mode_of(kind.model_validate({"mode": "checked"}), 5) == "checked"
    assert mode_of(kind.model_validate({"methods": ["local"]}), 5) == "checked"
    with refuses(ConfigError, "federation.mode", 3):
        mode_of(kind.model_validate({"mode": "masked"}), 2)
