"""Whatever an experiment asks for: deployed over TLS it ends with the bytes of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from deployments import DEPLOYED, PATIENCE_IN_S, SITES, deployment

from fedprognos.federation.federation_section import Wire
from fedprognos.networks import Bundle

LONG_IN_S = 3 * PATIENCE_IN_S
QUICK = (
    *("federation.fedavg={rounds=2, epochs=1}", "federation.fedprox={rounds=2, epochs=1}"),
    *("federation.fedma={rounds=2, width_limit=1.5}", "federation.reservoir={units=40}"),
)


@pytest.mark.long
def test_every_method_head_and_seed_ends_with_the_bytes_of_one_process(tmp_path: Path) -> None:
    changes = (f"federation.methods={DEPLOYED}", "federation.heads=['exact','mean','personal']", *QUICK)
    narrow = ("evaluation.seeds=2", "model.widths=[6, 5]", *QUICK)
    with deployment(tmp_path) as federation:
        federation.start_coordinator()
        for name in SITES:
            federation.start_site(name)
        done = federation.run(*changes, timeout_in_s=LONG_IN_S)
        assert done.returncode == 0, done.stdout + done.stderr + federation.said("coordinator")
        alone = federation.in_process(*changes)
        federation.compare(alone)
        for wire in get_args(Wire)[1:]:
            half = (*narrow, f"federation.wire='{wire}'")
            done = federation.run(*half, name=wire, timeout_in_s=LONG_IN_S)
            assert done.returncode == 0, done.stdout + done.stderr + federation.said("coordinator")
            federation.compare(federation.in_process(*half, name=wire), wire)

        for name in SITES:  # models trained earlier: those the sites trained by themselves just now
            file = federation.site[name] / "settings.toml"
            bundle = alone / "bundles" / "all" / "local" / "seed0" / name
            file.write_text(f"bundle = {json.dumps(str(bundle))}\n" + file.read_text())
            federation.processes[name].terminate()
            federation.processes[name].wait(PATIENCE_IN_S)
            federation.start_site(name)
        imported = (
            "federation.methods=['concat', 'fedma']",
            "federation.start='bundles'",
            f"federation.bundles={json.dumps(str(alone / 'bundles' / 'all' / 'local' / 'seed0'))}",
        )
        done = federation.run(*imported, name="imported")
        assert done.returncode == 0, done.stdout + done.stderr + federation.said("coordinator")
        federation.compare(federation.in_process(*imported, name="imported"), "imported")


@pytest.mark.long
def test_intervals_are_calibrated_over_the_network_as_in_one_process(tmp_path: Path) -> None:
    changes = ("evaluation.intervals='all'", "recipe.stride=10")
    with deployment(tmp_path, units=34) as federation:
        federation.start_coordinator()
        for name in SITES:
            federation.start_site(name)
        done = federation.run(*changes, timeout_in_s=LONG_IN_S)
        assert done.returncode == 0, done.stdout + done.stderr + federation.said("coordinator")
        alone = federation.in_process(*changes)
        federation.compare(alone)
        ours, theirs = (Bundle.load(folder / "bundle").calibration for folder in (federation.results, alone))
        assert ours is not None
        assert ours == theirs
        kept = Bundle.load(federation.site["plant-a"] / "results" / "small" / "bundle")
        assert kept.calibration == ours


@pytest.mark.long
def test_batteries_of_three_plants_end_with_the_bytes_of_one_process(tmp_path: Path) -> None:
    changes = (
        *("train.epochs=2", "train.patience=1", f"federation.methods={DEPLOYED}", "evaluation.bootstrap=0"),
        *("model.widths=[6]", "evaluation.baselines=[]", "federation.mode='checked'", *QUICK),
    )
    with deployment(tmp_path) as federation:
        federation.start_coordinator()
        for name in SITES:
            command = ("deploy", "site", str(federation.site[name]), "--columns", "plants-battery")
            federation.start_command(name, *command)
        done = federation.run(*changes, source="plants-battery", name="batteries", timeout_in_s=LONG_IN_S)
        assert done.returncode == 0, done.stdout + done.stderr + federation.said("coordinator")
        federation.compare(federation.in_process(*changes, source="plants-battery", name="batteries"), "batteries")


@pytest.mark.long
def test_sites_with_too_few_test_units_are_scored_on_what_training_kept_out(tmp_path: Path) -> None:
    changes = ("evaluation.score_at='last'",)
    with deployment(tmp_path) as federation:
        federation.start_coordinator()
        for name in SITES:
            federation.start_site(name)
        done = federation.run(*changes)
        assert done.returncode == 0, done.stdout + done.stderr + federation.said("coordinator")
        rows = json.loads((federation.results / "results.json").read_text())["rows"]
        assert {row["scored_on"] for row in rows} == {"validation"}
        assert {row["test_client"] for row in rows} == {*SITES, "all"}
        assert "too few test" in (federation.results / "report.html").read_text()
