"""The files in deploy/: they name metrics, commands and targets that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from services import running, small_bundle
from typer.testing import CliRunner

from fedprognos.cli import app
from fedprognos.deployment import STATUS, folder_registry
from fedprognos.federation import LEDGER
from small_fleets import series_fleet

DEPLOY = Path(__file__).parents[1] / "deploy"
METRIC = re.compile(r"\bfedprognos_\w+")
UNITS = sorted(DEPLOY.glob("*.service"))


def sites_and_coordinator(folder: Path) -> tuple[Path, Path]:
    """Folders as a coordinator with two sites and a site leave them."""
    coordinator, site = folder / "coordinator", folder / "site"
    (coordinator / "sites").mkdir(parents=True)
    presence = {"a": {"online": True, "last_seen": None}, "b": {"online": False, "last_seen": None}}
    status = {"experiment": "pumps", "phase": "round 2", "waiting_for": ["b"], "sites": presence}
    (coordinator / STATUS).write_text(json.dumps(status))
    site.mkdir()
    lines = [{"kind": "FitReply", "bytes": 100}, {"kind": "FitReply", "bytes": 50}]
    lines.append({"kind": "Refusal", "bytes": 7, "refused": "too few rows"})
    (site / LEDGER).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "Fit')
    return coordinator, site


def test_the_folders_of_a_deployment_give_their_metrics(tmp_path: Path) -> None:
    coordinator, site = sites_and_coordinator(tmp_path)
    registry = folder_registry(coordinator)
    assert registry.get_sample_value("fedprognos_up") == 0.0
    assert registry.get_sample_value("fedprognos_site_online", {"site": "a"}) == 1.0
    assert registry.get_sample_value("fedprognos_site_awaited", {"site": "b"}) == 1.0
    labels = {"experiment": "pumps", "phase": "round 2"}
    assert registry.get_sample_value("fedprognos_coordinator_activity", labels) == 1.0
    registry = folder_registry(site)
    assert registry.get_sample_value("fedprognos_ledger_sent_bytes_total") == 157.0
    with (site / LEDGER).open("a") as ledger:
        ledger.write('Reply", "bytes": 3}\n')
    answered = {"kind": "FitReply", "result": "answered"}
    assert registry.get_sample_value("fedprognos_ledger_messages_total", answered) == 3.0
    assert registry.get_sample_value("fedprognos_ledger_sent_bytes_total") == 160.0


def test_dashboard_and_rules_ask_for_metrics_that_there_are(tmp_path: Path) -> None:
    fleet = series_fleet([12])
    with running(small_bundle(fleet)) as client:
        text = client.get("/metrics").text
    text += "".join(generate_latest(folder_registry(folder)).decode() for folder in sites_and_coordinator(tmp_path))
    families = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    known = families | {f"{name}_bucket" for name in families} | {f"{name}_total" for name in families}
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    rules = yaml.safe_load((DEPLOY / "alert-rules.yml").read_text("utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert len(asked) > 15
    assert {name for expression in asked for name in METRIC.findall(expression)} - known == set()
    assert yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))["rule_files"] == ["alert-rules.yml"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_units_start_commands_that_there_are(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=\S+/fedprognos (.*)$", unit.read_text("utf-8"), re.MULTILINE)
    words = [word for word in line.split() if not word.startswith("/")]
    commands = words[: 2 if words[0] == "deploy" else 1]
    shown = CliRunner().invoke(app, [*commands, "--help"], env={"COLUMNS": "200"}).output
    assert all(option in shown for option in words if option.startswith("--"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    text = unit.read_text("utf-8").replace("/opt/fedprognos/bin/fedprognos", sys.executable)
    copy = tmp_path / unit.name.replace("@", "@site")
    copy.write_text(text)
    checked = subprocess.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    assert copy.name not in checked.stderr, checked.stderr


def test_containers_have_a_target_for_each_role() -> None:
    targets = set(re.findall(r"^FROM \S+ AS (\w+)", (DEPLOY / "Containerfile").read_text("utf-8"), re.MULTILINE))
    assert {"serve", "site", "coordinator"} <= targets
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    assert {service["build"]["target"] for service in compose["services"].values()} <= targets
