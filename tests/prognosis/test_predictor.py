from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from small_models import RULE, bundle_of, rows_of

from fedprognos.errors import BundleError, RecipeError
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import load_fleets
from fedprognos.features import recipe_for
from fedprognos.fleet import Fleet
from fedprognos.prognosis import Predictor, Stream, Verdict
from refusals import refuses
from small_fleets import SERIES, cyclic_fleet, recipe_of, series_fleet, series_unit

ENGINES = series_fleet([40, 25, 12, 7])
RECIPE = recipe_of(ENGINES, conditions=RULE, cap=30)
BUNDLE = bundle_of(RECIPE)


def test_health_is_what_the_bundle_predicts_with_its_interval(tmp_path: Path) -> None:
    predictor = Predictor.load(BUNDLE.save(tmp_path / "b"))
    assert predictor.sensors == RECIPE.sensors and predictor.settings == RECIPE.settings
    assert (predictor.target, predictor.target_measure) == ("rul", "cycles")
    expected = BUNDLE.predict(ENGINES.select(ENGINES.units[:3]), last=False)
    found = predictor.predict(ENGINES, last=False)
    for name, values in expected.items():
        np.testing.assert_allclose([h.value for h in found if h.unit == name], values, atol=1e-5)
    now = predictor.predict(ENGINES)
    assert [h.unit for h in now] == list(ENGINES.ids)
    assert BUNDLE.calibration is not None
    low, high = BUNDLE.calibration.interval(np.array([now[0].value]), 0.9)
    assert (now[0].low, now[0].high) == (low[0], high[0])
    wide = predictor.predict(ENGINES, coverage=0.5)[0]
    assert wide.low is not None and now[0].low is not None and wide.low > now[0].low


def test_a_short_unit_is_told_what_is_missing() -> None:
    last = Predictor.from_bundle(BUNDLE).predict(ENGINES)[3]
    assert (last.state, last.value, last.low) == ("warming-up", None, None)
    assert last.reason == "7 of 10 rows"
    alone = Predictor.from_bundle(BUNDLE).predict(ENGINES.select(["engines-3"]))
    assert alone == [last]


def test_without_a_calibration_there_is_no_interval() -> None:
    health = Predictor.from_bundle(replace(BUNDLE, calibration=None)).predict(ENGINES)[0]
    assert health.value is not None and health.low is None and health.high is None


def test_a_personal_head_replaces_the_shared_one(tmp_path: Path) -> None:
    folder = BUNDLE.save(tmp_path / "b")
    head = BUNDLE.network.head + 0.1
    save_file({"head": head}, tmp_path / "head.safetensors")
    personal = Predictor.load(folder, tmp_path / "head.safetensors").predict(ENGINES)
    bare = replace(BUNDLE, network=BUNDLE.network.with_head(head), calibration=None)
    assert personal == Predictor.from_bundle(bare).predict(ENGINES) != Predictor.load(folder).predict(ENGINES)


def test_intervals_of_a_personal_head_come_from_its_own_kept_out_machines(tmp_path: Path) -> None:
    folder, head, rng = BUNDLE.save(tmp_path / "b"), BUNDLE.network.head + 0.1, np.random.default_rng(0)
    unit = np.repeat(np.arange(30.0), 20)
    predictions = rng.uniform(5, 20, len(unit))
    kept_out = np.stack([predictions, predictions + rng.uniform(-3, 3, len(unit)), unit])
    path = tmp_path / "head.safetensors"
    save_file({"head": head, "kept_out": kept_out}, path)
    predictor = Predictor.load(folder, path)
    widths = [h.high - h.low for h in predictor.predict(ENGINES) if h.low is not None and h.high is not None]
    assert widths and min(widths) > 5 and not predictor.no_intervals
    save_file({"head": head, "kept_out": np.ascontiguousarray(kept_out[:, unit < 8])}, path)
    few = Predictor.load(folder, path)
    assert "too few machines" in few.no_intervals and few.predict(ENGINES)[0].low is None
    save_file({"head": head, "kept_out": kept_out[:2]}, path)
    with refuses(BundleError, "head.safetensors"):
        Predictor.load(folder, path)


@pytest.mark.parametrize(
    ("tensors", "named"),
    [({"head": np.zeros(3)}, "7"), ({"other": np.zeros(7)}, "head.safetensors"), (None, "head.safetensors")],
)
def test_a_wrong_head_is_refused(tensors: dict[str, np.ndarray] | None, named: str, tmp_path: Path) -> None:
    folder, path = BUNDLE.save(tmp_path / "b"), tmp_path / "head.safetensors"
    if tensors is None:
        path.write_bytes(b"rubbish")
    else:
        save_file(tensors, path)
    with refuses(BundleError, named):
        Predictor.load(folder, path)
    with refuses(BundleError, tmp_path / "nowhere"):
        Predictor.load(folder, tmp_path / "nowhere")


def test_a_fleet_without_a_sensor_is_refused() -> None:
    with refuses(RecipeError, "pressure"):
        Predictor.from_bundle(BUNDLE).predict(ENGINES.with_sensors(["temperature"]))


def test_windows_may_be_asked_for_from_many_threads_and_leave_torchs_threads_alone() -> None:
    predictor = Predictor.from_bundle(BUNDLE)
    batch = np.random.default_rng(0).normal(size=(300, 10, 2)).astype(np.float32)
    expected, before = predictor.windows(batch), torch.get_num_threads()
    found: dict[int, np.ndarray] = {}
    threads = [
        threading.Thread(target=lambda k=k: found.update({k: predictor.windows(batch)}))  # type: ignore[misc]
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(values, expected) for values in found.values()) and len(found) == 4
    assert torch.get_num_threads() == before
    assert len(predictor.windows(batch[:0])) == 0
    with refuses(RecipeError, (5, 2), (10, 2)):
        predictor.windows(batch[:, :5])


def test_labels_are_not_needed_to_predict() -> None:
    cells = cyclic_fleet(units=2, cycles=12)
    recipe = recipe_of(cells, label="relative")
    bare = Fleet("bare", cells.schema, tuple(replace(u, attributes={}) for u in cells))
    values = [h.value for h in Predictor.from_bundle(bundle_of(recipe)).predict(bare)]
    assert values == [h.value for h in Predictor.from_bundle(bundle_of(recipe)).predict(cells)]


def test_inputs_beyond_all_measure_get_no_number() -> None:
    unit = series_unit("e", 20, 1)
    sensors = unit.sensors.copy()
    sensors[-1] = (3e38, -3e38)
    fleet = Fleet("f", SERIES, (replace(unit, sensors=sensors),))
    health = Predictor.from_bundle(BUNDLE).predict(fleet)[0]
    assert "out-of-range" in health.flags
    assert health.value is None or np.isfinite(health.value)


@pytest.mark.needs_data("cmapss")
@pytest.mark.parametrize("history", [50, "life"])
def test_real_engines_fed_row_by_row_give_the_offline_numbers(history: int | str) -> None:
    train, test = load_fleets("turbofan")
    options = config.load("turbofan")[1].recipe.model_copy(update={"history": history})
    recipe = recipe_for(options, {"all": train})
    beside = {"cell": "gru", "reservoir": 100, "direct": 1} if history == "life" else {}
    bundle = bundle_of(recipe, (16,), **beside)
    few = test.select(sorted(test.units, key=lambda u: u.rows)[60:66])
    stream = Stream(Predictor.from_bundle(bundle), strict=False)
    for unit in few:
        online = [
            u.health.value for u in stream.feed_many(rows_of(unit, few, recipe)) if u.health and u.health.state == "ok"
        ]
        np.testing.assert_allclose(online, bundle.predict(few, last=False)[unit.id], atol=1e-6 * recipe.label_std)
    assert stream.counts[Verdict.ACCEPTED] == few.rows


@pytest.mark.long
@pytest.mark.needs_data("nasa-battery")
def test_real_battery_cycles_fed_row_by_row_give_the_offline_numbers() -> None:
    train, test = load_fleets("battery")
    section = config.load("battery")[1].recipe
    recipe = recipe_for(section, {"all": train})
    bundle = bundle_of(recipe, (16,))
    stream = Stream(Predictor.from_bundle(bundle), strict=False)
    for unit in test:
        short = unit.select_cycles(0, 12)
        fleet = test.select([short])
        online = [u.health.value for u in stream.feed_many(rows_of(short, fleet, recipe)) if u.health]
        np.testing.assert_allclose(online, bundle.predict(fleet, last=False)[unit.id], atol=1e-6 * recipe.label_std)
        assert len(online) == 12
