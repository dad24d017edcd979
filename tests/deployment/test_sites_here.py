"""A deployed run without its processes: it publishes and writes what one process does, whatever is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployments import DEPLOYED, SITES, same_results
from sites_here import MailboxHere

from fedprognos.deployment.coordinator import handshake, site_transport
from fedprognos.deployment.coordinator.coordinator_service import DeployedRun, deployable
from fedprognos.deployment.coordinator.site_transport import SiteTransport
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.site.site_data import read_site_data
from fedprognos.deployment.site.site_service import Site
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import run
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.identity import identity_of
from fedprognos.networks import Bundle
from fedprognos.report import write_report

ROUNDS = (
    *("federation.fedavg={rounds=2, epochs=1}", "federation.fedprox={rounds=2, epochs=1}"),
    *("federation.fedma={rounds=2, width_limit=1.5}", "evaluation.baselines=[]", "evaluation.bootstrap=0"),
    "federation.mode='checked'",
)
ENGINES = (
    "data.units_per_site=4",
    "data.sites=3",
    "model.widths=[6]",
    "train.epochs=1",
    "recipe.stride=10",
    "evaluation.score_at='all'",
)
BATTERIES = ("data.units_per_site=2", "model.widths=[5]", "train.epochs=1", "train.patience=1")
ALL = f"federation.methods={DEPLOYED}"
MANY = "data.units_per_site=20"  # fewer units tell too little of their residuals


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_transport, "CHECK_IN_S", 0.0)
    monkeypatch.setattr(handshake, "ASK_AGAIN_IN_S", 0.0)


def deploy(folder: Path, preset: str, changes: tuple[str, ...], bundles: Path | None = None) -> Path:
    """Run a preset with its clients as sites; the coordinator's folder."""
    _, experiment, base = config.load(preset, changes)
    sites = {}
    for name in SITES:
        (folder / name).mkdir(parents=True)
        bundle = None if bundles is None else str(bundles / name)
        lax = {"min_units": 1, "max_leverage": 1.0, "splits": "public"}  # as in one process
        options = SiteOptions(name=name, coordinator="x:1", bundle=bundle, **lax)
        data = read_site_data(name, experiment, base)
        sites[name] = Site(folder / name, options, data, lambda text: None, write_report)
    transport = SiteTransport(MailboxHere(sites), SITES, 1 << 26)
    said: list[str] = []
    wanted = deployable(experiment, said.append)
    place = RunFolder(folder / "run", preset, wanted, "deployed")
    DeployedRun(preset, wanted, place, transport, identity_of(folder), 0.0, said.append, write_report).perform()
    assert not [text for text in said if "did not receive the model" in text]
    return folder / "run"


@pytest.mark.long
@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("plants", (ALL, "federation.heads=['exact', 'mean', 'personal']", *ENGINES, *ROUNDS)),
        ("plants-battery", (ALL, *BATTERIES, *ROUNDS)),
        (
            "plants",
            ("federation.methods=['fedma']", "federation.wire='bfloat16'", MANY, *ROUNDS, *ENGINES[1:]),
        ),
    ],
    ids=["every method and head", "batteries", "half precision with intervals"],
)
def test_a_deployed_run_ends_with_the_bytes_of_one_process(
    tmp_path: Path, preset: str, changes: tuple[str, ...]
) -> None:
    alone = run(preset, out=tmp_path / "alone", overrides=changes, seeds=1, workers=1).folder
    deployed = deploy(tmp_path / "deployed", preset, (*changes, "evaluation.seeds=1"))
    same_results(alone, deployed)
    assert (deployed / "report.html").is_file()
    ours, theirs = (Bundle.load(folder / "bundle").calibration for folder in (deployed, alone))
    assert ours == theirs
    assert (ours is not None) == (MANY in changes)


@pytest.mark.long
def test_imported_models_are_federated_as_in_one_process(tmp_path: Path) -> None:
    changes = (*ENGINES, *ROUNDS)
    local = run("plants", out=tmp_path / "l", overrides=(*changes, "federation.methods=['local']"), seeds=1, workers=1)
    bundles = local.folder / "bundles" / "all" / "local" / "seed0"
    start = ("federation.methods=['concat', 'fedma']", "federation.start='bundles'", f"federation.bundles='{bundles}'")
    alone = run("plants", out=tmp_path / "alone", overrides=(*changes, *start), seeds=1, workers=1).folder
    same_results(alone, deploy(tmp_path / "deployed", "plants", (*changes, *start, "evaluation.seeds=1"), bundles))
