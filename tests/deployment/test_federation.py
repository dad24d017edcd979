"""Three sites and a coordinator over TLS on loopback end with the weights of one process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from deployments import PATIENCE_IN_S, SITES, deployment

from fedprognos.deployment.processes import listening
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.networks import Bundle, Trust


@pytest.mark.long
def test_three_sites_end_with_the_weights_of_one_process_and_leave_nothing_running(tmp_path: Path) -> None:
    with deployment(tmp_path) as federation:
        federation.start_coordinator()
        for name in SITES:
            federation.start_site(name)
        alone = federation.in_process()
        done = federation.run()
        assert done.returncode == 0, done.stdout + done.stderr + federation.said("coordinator")
        expected = (alone / "bundle" / "weights.safetensors").read_bytes()
        assert (federation.results / "bundle" / "weights.safetensors").read_bytes() == expected

        trust = Trust.from_file(federation.results / "trust.toml")
        published = Bundle.load(federation.results / "bundle", trust)
        assert published.signed_by == ("coordinator",)
        for name in SITES:
            kept = federation.site[name] / "results" / "small"
            assert (kept / "bundle" / "weights.safetensors").read_bytes() == expected
            own = Bundle.load(kept / "bundle")  # a site's own remembers its table besides
            assert (own.recipe, own.provenance) == (published.recipe, published.provenance)
            assert published.table is None
            assert Bundle.load(kept / "personal").provenance["head"] == "personal"
            assert (kept / "report.html").is_file()
            rows = json.loads((kept / "results.json").read_text())["rows"]
            assert {row["method"] for row in rows} == {"fedma", "fedma+personal"}

        federation.compare(alone)
        report = (federation.results / "report.html").read_text()
        assert "FedMA" in report
        assert "cycles off" in report  # the answer, in the measure of the labels
        ledger = ClientFolder(federation.results / "sites" / "all" / "plant-a").ledger()
        # One layer to match and the head: one fit, one evaluation; then one message for the scores.
        kinds = Counter(line.kind for line in ledger if line.kind != "ContractReply")
        once = (
            "HelloReply",
            "JoinReply",
            "SurveyReply",
            "FitReply",
            "EvaluateReply",
            "DistanceReply",
            "ScoreReply",
            "DeliverReply",
        )
        assert kinds == {**dict.fromkeys(once, 1), "EvaluateReply": 2}  # checked mode screens, too
        assert ledger == ClientFolder(federation.site["plant-a"]).ledger()  # what came is what left
        units = set(pd.read_csv(tmp_path / "pooled.csv")["unit"].astype(str))
        assert len(units) == 18
        for path in federation.coordinator.rglob("*"):  # results, logs and Flower's database
            if path.is_file():
                held = path.read_bytes()
                assert not [unit for unit in units if unit.encode() in held], path
        own = (federation.site["plant-a"] / "results" / "small" / "predictions").glob("*.csv")
        assert units & set(pd.concat(map(pd.read_csv, own))["unit"].astype(str))  # the site's own report has them
        assert published.provenance["train_clients"] == list(SITES)

        for name in (*SITES, "coordinator"):
            federation.processes[name].terminate()
        for name in (*SITES, "coordinator"):
            assert federation.processes[name].wait(PATIENCE_IN_S) == 130, federation.said(name)
        assert federation.left_over() == []
        assert not listening("127.0.0.1", federation.port)
        for folder in (federation.coordinator, *federation.site.values()):
            leftovers = {p.name for p in folder.iterdir()}
            assert not leftovers & {"running.json", "running.lock", "status.json", "tensors"}
