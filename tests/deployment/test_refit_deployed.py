"""A deployed run trains its published model once more on all units of its sites, as a run on one machine does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from deployments import SITES, same_results
from sites_here import MailboxHere

from fedprognos.deployment.contract import Contract
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

LAX: dict[str, Any] = {"min_units": 1, "max_leverage": 1.0, "splits": "public"}
"""As in one process."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_transport, "CHECK_IN_S", 0.0)
    monkeypatch.setattr(handshake, "ASK_AGAIN_IN_S", 0.0)


def table(path: Path, machines: int = 24) -> Path:
    """Machines of three plants that get hotter until they fail."""
    rng = np.random.default_rng(0)
    lives = []
    for k in range(machines):
        rows = int(rng.integers(25, 40))
        heat = 20 + 30 * (np.arange(rows) / rows) ** 2 + rng.normal(size=rows)
        life = {"machine": f"m{k:02d}", "hour": np.arange(1, rows + 1), "heat": heat, "plant": SITES[k % 3]}
        lives.append(pd.DataFrame(life))
    pd.concat(lives).to_csv(path, index=False)
    return path


def experiment_of(folder: Path, mode: str = "checked", **changes: Any) -> dict[str, Any]:
    path = folder / "fleet.csv"
    sections: dict[str, Any] = {
        "data": {"kind": "table", "path": str(path if path.is_file() else table(path)), "unit": "machine",
                 "time": "hour", "sensors": ["heat"], "site": "plant"},
        "partition": {"by": "column", "column": "site"},
        "recipe": {"history": "life", "cap": 25.0},
        "model": {"widths": [4]},
        "train": {"steps": 6},
        "federation": {"methods": ["concat"], "heads": ["exact", "choice"], "mode": mode},
        "evaluation": {"seeds": 1, "bootstrap": 0, "intervals": "none", "baselines": [], "refit": True},
    }  # fmt: skip
    for name, keys in changes.items():
        sections[name] = {**sections[name], **keys} if isinstance(keys, dict) else keys
    return sections


def sites_of(folder: Path, document: dict[str, Any], **options: Any) -> dict[str, Site]:
    """The clients of an experiment as sites in this process."""
    _, experiment, base = config.load(document)
    sites = {}
    for name in SITES:
        (folder / name).mkdir(parents=True, exist_ok=True)
        settings = SiteOptions(name=name, coordinator="x:1", **(options or LAX))
        sites[name] = Site(folder / name, settings, read_site_data(name, experiment, base), lambda text: None)
    return sites


def deploy(folder: Path, document: dict[str, Any], mailbox: Any) -> Path:
    """Run an experiment with the sites of a mailbox; the coordinator's folder."""
    wanted = deployable(config.load(document)[1], lambda text: None)
    place = RunFolder(folder / "run", "experiment", wanted, "deployed")
    transport = SiteTransport(mailbox, SITES, 1 << 26)
    arguments = (transport, identity_of(folder), 0.0, lambda text: None, write_report)
    DeployedRun("experiment", wanted, place, *arguments).perform()
    return folder / "run"


def weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["checked", "masked"])
@pytest.mark.parametrize("method", ["concat", "fedavg", "reservoir", "absorb"])
def test_the_model_to_use_has_the_bytes_of_one_machine(tmp_path: Path, mode: str, method: str) -> None:
    changes = {"federation": {"methods": [method], "fedavg": {"rounds": 2, "epochs": 1}, "mode": mode}}
    document = experiment_of(tmp_path, **changes)
    document["federation"]["heads"] = ["exact", "choice"]
    alone = run(document, out=tmp_path / "alone", workers=1).folder
    owned = {name: weights(alone / "owners" / name) for name in SITES}
    for path in sorted((alone / "owners").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    deployed = deploy(tmp_path / "d", document, MailboxHere(sites_of(tmp_path / "d", document)))
    if mode == "checked":
        same_results(alone, deployed)
    assert weights(deployed / "bundle") == weights(alone / "bundle")
    assert weights(deployed / "bundle") != weights(deployed / "bundles" / "all" / method / "seed0")
    ours, theirs = (Bundle.load(folder / "bundle") for folder in (deployed, alone))
    assert {**ours.provenance, "units": 24} == theirs.provenance
    for name in SITES:  # what an owner ends with is what its site has
        kept = tmp_path / "d" / name / "results" / "experiment"
        assert weights(kept / "bundle") == weights(alone / "bundle")
        assert weights(kept / "chosen") == owned[name]
        choice = json.loads((kept / "choice.json").read_text())
        assert choice["use"] in choice["errors"]


@pytest.mark.long
def test_a_contract_says_that_all_units_are_trained_on(tmp_path: Path) -> None:
    document = experiment_of(tmp_path)
    sites = sites_of(tmp_path / "d", document)
    deploy(tmp_path / "d", document, MailboxHere(sites))
    (entry,) = sites["plant-a"].approvals.entries()
    assert isinstance(entry.contract, Contract)
    assert entry.contract.experiment().evaluation.refit
    kinds = [str(line["request"]) for line in sites["plant-a"].ledger.lines() if "request" in line]
    assert kinds.count("FitRequest") == 2
