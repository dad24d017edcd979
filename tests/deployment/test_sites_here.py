"""A deployed run without its processes: it publishes and writes what one process does, whatever is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployments import SITES, same_results
from fedprognos.deployment.flower.cohort import FlowerCohort
from fedprognos.deployment.flower.deployed_run import DeployedRun
from fedprognos.deployment.flower.folders import SiteSettings
from fedprognos.deployment.flower.gathering import deployable
from fedprognos.deployment.flower.holdings import read_holdings
from fedprognos.deployment.flower.parcels import Sent
from fedprognos.deployment.flower.site import Service
from flwr.supercore.task_identity import TaskIdentity
from sites_here import Grid

from fedprognos.deployment.flower import cohort as cohort_module
from fedprognos.experiment import config
from fedprognos.experiment.run import run
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.federation.strategies import STRATEGIES
from fedprognos.networks import Bundle
from fedprognos.report import write_report

ROUNDS = (
    *("federation.fedavg={rounds=2, epochs=1}", "federation.fedprox={rounds=2, epochs=1}"),
    *("federation.fedma={rounds=2, width_limit=1.5}", "evaluation.baselines=[]", "evaluation.bootstrap=0"),
)
ENGINES = (
    "data.units_per_site=4",
    "model.widths=[6]",
    "train.epochs=1",
    "recipe.stride=10",
    "evaluation.score_at='all'",
)
BATTERIES = ("data.units_per_site=2", "model.widths=[5]", "train.epochs=1", "train.patience=1")
ALL = f"federation.methods={[method for method in STRATEGIES if method != 'central']}"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    monkeypatch.setattr(cohort_module, "LOOK_IN_S", 0.0)


def deploy(folder: Path, preset: str, changes: tuple[str, ...], bundles: Path | None = None) -> Path:
    """Run a preset with its clients as sites; the coordinator's folder."""
    _, experiment, base = config.load(preset, changes)
    services = {}
    for name in SITES:
        (folder / name).mkdir(parents=True)
        (folder / name / "tasks.secret").write_text("s")
        bundle = None if bundles is None else str(bundles / name)
        settings = SiteSettings(name=name, coordinator="x:1", bundle=bundle)
        services[name] = Service(folder / name, settings, read_holdings(name, experiment, base), lambda text: None)
    grid, sent = Grid(services), Sent()

    def make_cohort(members: tuple[str, ...]) -> FlowerCohort:
        return FlowerCohort(grid, grid.keys, members, limit_in_bytes=1 << 26, sent=sent)  # type: ignore[arg-type]

    said: list[str] = []
    wanted = deployable(experiment, said.append)
    place = RunFolder(folder / "run", preset, wanted, "deployed")
    DeployedRun(preset, wanted, place, make_cohort, SITES, 0.0, said.append, write_report).perform()
    assert not [text for text in said if "has not got the model" in text]
    return folder / "run"


@pytest.mark.long
@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("demo", (ALL, "federation.heads=['exact', 'mean', 'personal']", *ENGINES, *ROUNDS)),
        ("demo-battery", (ALL, *BATTERIES, *ROUNDS)),
        (
            "demo",
            ("federation.methods=['fedma']", "federation.wire='bfloat16'", "evaluation.folds=2", *ROUNDS, *ENGINES[1:]),
        ),
    ],
    ids=["every method and head", "batteries", "half precision with intervals"],
)
def test_a_deployed_run_ends_with_the_bytes_of_one_process(
    tmp_path: Path, preset: str, changes: tuple[str, ...]
) -> None:
    if "evaluation.folds=2" in changes:
        changes = (*changes, "data.units_per_site=20")  # fewer units tell nothing of their residuals
    alone = run(preset, out=tmp_path / "alone", overrides=changes, seeds=1, workers=1).folder
    deployed = deploy(tmp_path / "deployed", preset, (*changes, "evaluation.seeds=1"))
    same_results(alone, deployed)
    assert (deployed / "report.html").is_file()
    ours, theirs = (Bundle.load(folder / "bundle").calibration for folder in (deployed, alone))
    assert ours == theirs
    assert (ours is not None) == ("evaluation.folds=2" in changes)


def test_models_that_sites_bring_are_federated_as_in_one_process(tmp_path: Path) -> None:
    changes = (*ENGINES, *ROUNDS)
    local = run("demo", out=tmp_path / "l", overrides=(*changes, "federation.methods=['local']"), seeds=1, workers=1)
    bundles = local.folder / "bundles" / "all" / "local" / "seed0"
    start = ("federation.methods=['concat', 'fedma']", "federation.start='bundles'", f"federation.bundles='{bundles}'")
    alone = run("demo", out=tmp_path / "alone", overrides=(*changes, *start), seeds=1, workers=1).folder
    same_results(alone, deploy(tmp_path / "deployed", "demo", (*changes, *start, "evaluation.seeds=1"), bundles))


def test_several_settings_are_refused_at_the_door(tmp_path: Path) -> None:
    _, experiment, _ = config.load("turbofan")
    with pytest.raises(config.ConfigError, match="2 settings: heterogeneous, homogeneous"):
        deployable(experiment, lambda text: None)
