"""One of everything that can be added, from outside the package, run to a report; CONTRIBUTING shows these files."""

from __future__ import annotations

from pathlib import Path

import pytest
from my_aggregator import MIDRANGE
from my_baseline import MEDIAN
from my_cell import PLAIN
from my_channel import HIGHEST
from my_history import THINNED
from my_mechanism import ROUNDED
from my_metric import WITHIN
from my_partition import ALTERNATING
from my_reader import PUMPS
from my_section import PUMP_NOTES
from my_strategy import TRUST

import fedprognos as fp
from fedprognos.errors import ConfigError
from fedprognos.experiment.tuning import tune
from fedprognos.features import build_windows
from refusals import refuses

HERE = Path(__file__).parent
MINE = fp.Extras(
    strategies=[TRUST],
    cells=[PLAIN],
    readers=[PUMPS],
    channels=[HIGHEST],
    histories=[THINNED],
    partitions=[ALTERNATING],
    aggregators=[MIDRANGE],
    metrics=[WITHIN],
    baselines=[MEDIAN],
)
EXPERIMENT = {
    "title": "pumps",
    "data": {"kind": "pumps", "pumps": 8},
    "partition": {"by": "alternating"},
    "recipe": {"history": "thinned", "window": 5, "channels": {"highest": 1}},
    "model": {"cell": "plain", "widths": [4]},
    "train": {"epochs": 2, "learning_rate": 0.01},
    "federation": {
        "methods": ["local", "trust", "fedma"],
        "heads": ["mean"],
        "trust": {"power": 3},
        "fedma": {"average": "midrange", "width_limit": 1.0, "signature": "ih"},
    },
    "evaluation": {"seeds": 1, "baselines": ["constant", "median"], "bootstrap": 0},
}


def test_one_of_each_from_outside_reaches_the_report(tmp_path: Path) -> None:
    done = fp.run(EXPERIMENT, out=tmp_path / "run", extras=MINE, report_sections=[PUMP_NOTES])
    frame = done.results.frame()
    assert {"trust", "fedma", "median", "local"} <= set(frame["method"])
    assert frame["within"].notna().all()
    assert done.bundle.network.spec.cell == "plain"
    assert done.report is not None
    page = done.report.read_text("utf-8")
    assert all(text in page for text in ("Trust", "Median life", "About the pumps", "within 10 %"))
    with MINE.on_shelves():  # a row at a time shows the network what the whole table does
        fleet, predictor = PUMPS.read(PUMPS.options(), None).fleet, fp.Predictor.from_bundle(done.bundle)
        unit, stream = fleet.units[0], predictor.stream()
        rows = [dict(zip(fleet.schema.sensors, row, strict=True)) for row in unit.sensors]
        fed = [stream.feed(unit.id, t, row).health for t, row in zip(unit.time, rows, strict=True)]
        whole = build_windows(predictor.recipe, fleet.select([unit]))
        known = [health.value for health in fed if health.value is not None]
        assert known == pytest.approx(predictor.windows(whole.batch(slice(None))), rel=1e-6)
        assert len(whole) == unit.rows - 8  # five rows, every other of nine
    assert "trust" not in fp.registry.strategies  # what a call brings is gone when it ends
    with refuses(ConfigError, "'trust'"):
        fp.registry.strategies["trust"]


def test_a_strategy_from_outside_is_tuned_over_the_values_it_declares(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    space = ("layers=[1]", "neurons=[3, 4]", "train.learning_rate=[0.01]")
    found = tune(EXPERIMENT, trials=3, method="trust", space=space, out=tmp_path / "search", extras=MINE)
    assert found.space["federation.trust.power"] == (1.0, 2.0, 3.0)
    assert [trial.state for trial in found.trials] == ["complete"] * 3
    assert found.trials[0].values["federation.trust.power"] == 3.0  # the experiment's own value is tried first
    assert "[federation.trust]" in (tmp_path / "search" / "best.toml").read_text("utf-8")


def test_a_privacy_mechanism_from_outside_noises_sums_and_its_account_reaches_report_and_bundle(tmp_path: Path) -> None:
    private = {
        **EXPERIMENT,
        "partition": {"by": "column", "column": "site"},
        "recipe": {"window": 10},
        "model": {"widths": [4]},
        "train": {"validation_fraction": 0},
        "federation": {
            "methods": ["reservoir"],
            "heads": ["exact"],
            "reservoir": {"units": 4},
            "privacy": {"epsilon": 20, "mechanism": "rounded"},
        },
        "evaluation": {"seeds": 2, "baselines": ["constant"], "bootstrap": 0},
    }
    done = fp.run(private, out=tmp_path / "run", readers=[PUMPS], mechanisms=[ROUNDED])
    account = done.bundle.provenance["privacy"]
    assert account["epsilon"] == pytest.approx(20, rel=1e-3) and account["releases"] == 2
    assert account["mechanism"] == "rounded Gaussian" and "epsilon 20" in account["text"]
    assert ROUNDED.account(account["noise"], 2, 1e-5) == pytest.approx(20, rel=1e-3)
    assert done.report is not None
    page = done.report.read_text("utf-8")
    assert "Differential privacy" in page and "exp(20" in page and "rounded Gaussian" in page
    assert "rounded" not in fp.registry.mechanisms


def test_decorated_things_stay_and_names_are_not_taken_twice() -> None:
    with fp.registry.strategies.including([]):
        added = fp.Strategy("mine", "Mine", 99, TRUST.rounds)
        assert fp.registry.strategies.add(added) is added
        with refuses(ConfigError, "'mine'"):
            fp.registry.strategies.add(fp.Strategy("mine", "Other", 99, TRUST.rounds))
        del fp.registry.strategies._things["mine"]


@pytest.mark.parametrize("file", sorted(p.name for p in HERE.glob("my_*.py")))
def test_contributing_shows_these_very_files(file: str) -> None:
    text = (HERE / file).read_text("utf-8").strip()
    assert text in (HERE.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
