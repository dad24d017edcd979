from __future__ import annotations

import hashlib
import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import RULE, bundle_of

from fedprognos.errors import BundleError, DataNotFoundError
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import load_fleets
from fedprognos.features import Recipe, recipe_for
from fedprognos.fleet import Fleet
from fedprognos.networks import Bundle, Novelty
from fedprognos.networks.novelty import features_of_novelty
from fedprognos.networks.stepping import Stepper
from fedprognos.prognosis import Predictor
from fedprognos.prognosis.onnx_graph import build_graph
from fedprognos.prognosis.onnx_runtime import TOLERANCE, OnnxPredictor, example_rows, export_onnx, session_of
from fedprognos.tables.columns import TableLayout
from refusals import refuses
from small_fleets import cyclic_fleet, recipe_of, series_fleet

ENGINES, CELLS = series_fleet([60, 50, 7]), cyclic_fleet(units=2, cycles=12)
EDGE = Path(__file__).parents[2] / "edge" / "predict_edge.py"
RECIPES: dict[str, Recipe] = {
    "one condition": recipe_of(ENGINES, cap=40),
    "conditions": recipe_of(ENGINES, conditions=RULE, cap=40),
    "coarse conditions": recipe_of(ENGINES, conditions={"altitude": -1, "mach": 1}, cap=40),
    "conditions and settings told": recipe_of(ENGINES, conditions=RULE, condition_inputs=True, setting_inputs=True),
    "cycles": recipe_of(CELLS),
    "whole lives": recipe_of(ENGINES, window=None, history="life", conditions=RULE, cap=40),
}


def run_graph(model: onnx.ModelProto, sensors: np.ndarray, others: np.ndarray) -> np.ndarray:
    session = session_of(model)
    inputs = {"sensors": sensors, "settings": others}
    for one in session.get_inputs():
        if one.name == "state":
            inputs["state"] = np.full((len(sensors), one.shape[1]), np.nan, dtype=np.float32)
    found: np.ndarray = session.run(["health"], {i.name: inputs[i.name] for i in session.get_inputs()})[0]
    return found if found.ndim == 1 else found[:, -1]


def scaled(recipe: Recipe, sensors: np.ndarray, others: np.ndarray) -> np.ndarray:
    rows = sensors.shape[0] * sensors.shape[1]
    batch = recipe.scale(sensors.reshape(rows, -1), others.reshape(rows, others.shape[2]))[0]
    return batch.reshape(*sensors.shape[:2], -1)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    "shape",
    [
        {"widths": (6,)},
        {"widths": (5, 4), "cell": "gru", "input_width": 3},
        {"widths": (4, 6), "input_width": 5},
        {"widths": (5,), "reservoir": 30, "direct": 1},
        {"widths": (), "reservoir": 20},
        {"widths": (), "direct": 1},
    ],
)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 999), batch=st.integers(1, 9))
def test_the_graph_gives_torchs_numbers(name: str, shape: dict[str, object], seed: int, batch: int) -> None:
    recipe = RECIPES[name]
    bundle = bundle_of(recipe, seed=seed, **shape)  # type: ignore[arg-type]
    sensors, others = example_rows(recipe, count=batch, seed=seed, unseen=0.1)
    expected = Predictor.from_bundle(bundle).windows(scaled(recipe, sensors, others))
    found = run_graph(build_graph(bundle), sensors, others)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * recipe.label_std)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_life_in_pieces_is_a_life_as_a_whole(cell: str) -> None:
    recipe = RECIPES["whole lives"]
    bundle = bundle_of(recipe, (5, 4), cell=cell, reservoir=20, direct=1)
    sensors, others = example_rows(recipe, count=3)
    session = session_of(build_graph(bundle))
    size = next(one.shape[1] for one in session.get_inputs() if one.name == "state")
    outputs = ["health", "state_after"]
    state = np.full((3, size), np.nan, dtype=np.float32)
    whole, last = session.run(outputs, {"sensors": sensors, "settings": others, "state": state})
    found = []
    for a, b in itertools.pairwise([0, 1, 2, 40, sensors.shape[1]]):
        rows = {"sensors": sensors[:, a:b], "settings": others[:, a:b], "state": state}
        health, state = session.run(outputs, rows)
        found.append(health)
    np.testing.assert_allclose(np.concatenate(found, axis=1), whole, atol=TOLERANCE * recipe.label_std)
    np.testing.assert_allclose(state, last, atol=1e-5)
    stepper = Stepper(bundle.network)
    own = scaled(recipe, sensors, others)
    np.testing.assert_allclose(stepper.run(own, stepper.rest(own[:, 0]))[1], last, atol=1e-5)


@pytest.mark.needs_data("cmapss")
def test_the_graph_gives_torchs_numbers_on_real_windows(tmp_path: Path) -> None:
    train, test = load_fleets("turbofan")
    section = config.load("turbofan")[1].recipe
    recipe = recipe_for(section, {"all": train})
    bundle = bundle_of(recipe, (16,))
    columns = recipe.check(test.schema, "test")
    long = [u for u in test if u.rows >= recipe.window][:60]
    raw = (
        np.stack([u.sensors[-recipe.window :, columns[0]] for u in long]),
        np.stack([u.settings[-recipe.window :, columns[1]] for u in long]),
    )
    done = export_onnx(bundle, tmp_path / "m.onnx", raw=raw)
    assert done.worst <= TOLERANCE and done.windows == 60
    found = run_graph(onnx.load(str(done.path)), *raw)
    expected = [h.value for h in Predictor.from_bundle(bundle).predict(test.select(long))]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * recipe.label_std)


@pytest.mark.parametrize("name", RECIPES)
def test_both_engines_give_the_same_healths(name: str, tmp_path: Path) -> None:
    bundle = bundle_of(RECIPES[name])
    fleet = CELLS if RECIPES[name].cycle else ENGINES
    export_onnx(bundle, tmp_path / "m.onnx")
    expected = Predictor.from_bundle(bundle).predict(fleet, last=False)
    for predictor in (OnnxPredictor.load(tmp_path / "m.onnx"), OnnxPredictor.load(bundle.save(tmp_path / "b"))):
        found = predictor.predict(fleet, last=False)
        assert predictor.recipe.to_json() == RECIPES[name].to_json() and predictor.calibration == bundle.calibration
        for a, b in zip(found, expected, strict=True):
            assert replace(a, value=0, low=0, high=0) == replace(b, value=0, low=0, high=0)
            if b.value is not None:
                assert a.value == pytest.approx(b.value, abs=1e-5 * RECIPES[name].label_std)


def test_equal_bundles_give_equal_files_that_name_their_units(tmp_path: Path) -> None:
    bundle = bundle_of(RECIPES["conditions"])
    export_onnx(bundle, tmp_path / "a.onnx")
    export_onnx(bundle, tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    model = onnx.load(str(tmp_path / "a.onnx"))
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert Recipe.from_json(facts["recipe"]).to_json() == bundle.recipe.to_json()
    assert facts["target_measure"] == "cycles" and json.loads(facts["sensors"]) == ["pressure", "temperature"]
    assert {i.name for i in model.graph.input} == {"sensors", "settings"}


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_quantising_is_measured_and_changes_little(tmp_path: Path, cell: str) -> None:
    bundle = bundle_of(RECIPES["conditions"], (16,), cell=cell)
    exact, small = export_onnx(bundle, tmp_path / "a.onnx"), export_onnx(bundle, tmp_path / "b.onnx", int8=True)
    assert exact.int8_rms is None
    assert small.int8_rms is not None and small.int8_worst is not None
    assert 0 < small.int8_rms < 0.05 * bundle.recipe.label_std and small.int8_rms <= small.int8_worst
    assert small.size_in_bytes < exact.size_in_bytes
    predictor = OnnxPredictor.load(tmp_path / "b.onnx")
    found = predictor.predict(ENGINES)
    for a, b in zip(found[:2], Predictor.from_bundle(bundle).predict(ENGINES)[:2], strict=True):
        assert a.value is not None and b.value is not None
        assert a.value == pytest.approx(b.value, abs=0.1 * bundle.recipe.label_std)
    windows = np.random.default_rng(0).normal(0, 1, (8, bundle.recipe.window, bundle.recipe.channels))
    alone = predictor.windows(windows.astype(np.float32))
    windows[3] *= 1e3  # one odd window does no harm to those beside it
    beside = predictor.windows(windows.astype(np.float32))
    np.testing.assert_allclose(np.delete(beside, 3), np.delete(alone, 3), atol=1e-4)


def test_a_graph_that_differs_from_torch_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = bundle_of(RECIPES["conditions"])

    def wrong(bundle: Bundle) -> onnx.ModelProto:
        shift = np.append(np.zeros(len(bundle.network.head) - 1), 1e-3)
        return build_graph(replace(bundle, network=bundle.network.with_head(bundle.network.head + shift)))

    monkeypatch.setattr("fedprognos.prognosis.onnx_runtime.build_graph", wrong)
    (tmp_path / "m.onnx").write_bytes(b"what was there")
    with refuses(BundleError, "0.001"):
        export_onnx(bundle, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == b"what was there"


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError):
        OnnxPredictor.load(tmp_path / "nowhere.onnx")
    (tmp_path / "m.onnx").write_bytes(b"rubbish")
    with refuses(BundleError, "ONNX"):
        OnnxPredictor.load(tmp_path / "m.onnx")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    other = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [value], [other])), tmp_path / "o.onnx")
    with refuses(BundleError, "fedprognos export"):
        OnnxPredictor.load(tmp_path / "o.onnx")
    export_onnx(bundle_of(RECIPES["cycles"]), tmp_path / "good.onnx")
    with refuses(BundleError, "--head"):
        OnnxPredictor.load(tmp_path / "good.onnx", tmp_path / "head")
    with refuses(BundleError, "ONNX"):
        _ = OnnxPredictor.load(tmp_path / "good.onnx").bundle


def test_a_personal_head_can_be_built_in(tmp_path: Path) -> None:
    bundle = bundle_of(RECIPES["conditions"])
    personal = Predictor.from_bundle(bundle, bundle.network.head * 1.1)
    export_onnx(personal.bundle, tmp_path / "m.onnx")
    found = OnnxPredictor.load(tmp_path / "m.onnx").predict(ENGINES)[0].value
    assert found == pytest.approx(personal.predict(ENGINES)[0].value, abs=1e-5 * bundle.recipe.label_std)
    export_onnx(bundle, tmp_path / "shared.onnx")
    table(ENGINES).to_csv(tmp_path / "rows.csv", index=False)
    with_bounds = [
        " to " in "".join(edge_lines([str(tmp_path / name), str(tmp_path / "rows.csv")]).values())
        for name in ("m.onnx", "shared.onnx")
    ]
    assert with_bounds == [False, True]  # those of the shared head say nothing of another one


def table(fleet: Fleet) -> pd.DataFrame:
    parts = []
    for unit in fleet:
        frame = pd.DataFrame(unit.sensors, columns=list(fleet.schema.sensors))
        frame[list(fleet.schema.settings)] = unit.settings
        frame["unit"], frame["time"] = unit.id, unit.time
        if unit.cycles is not None:
            frame["cycle"] = np.repeat(unit.cycle_numbers, np.diff(unit.cycles))
        parts.append(frame)
    return pd.concat(parts)


WITHOUT = """
import runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "fedprognos", "pandas", "scipy", "onnx"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("name", ["conditions", "cycles", "whole lives"])
def test_the_edge_example_needs_only_numpy_and_onnxruntime(name: str, tmp_path: Path) -> None:
    beside = {"reservoir": 20, "direct": 1} if name == "whole lives" else {}
    bundle, fleet = bundle_of(RECIPES[name], **beside), CELLS if name == "cycles" else ENGINES  # type: ignore[arg-type]
    export_onnx(bundle, tmp_path / "m.onnx")
    table(fleet).to_csv(tmp_path / "rows.csv", index=False)
    arguments = [str(EDGE), str(tmp_path / "m.onnx"), str(tmp_path / "rows.csv")]
    arguments += ["--cycle", "cycle"] if name == "cycles" else []
    done = subprocess.run([sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line, health in zip(lines, Predictor.from_bundle(bundle).predict(fleet), strict=True):
        if health.value is None:
            assert line == f"{health.unit}: 7 of 10 rows, more are needed"
        else:
            unit, rest = line.split(": ", 1)
            assert unit == health.unit
            assert float(rest.split()[1]) == pytest.approx(health.value, rel=1e-5)


@pytest.mark.parametrize("name", ["conditions", "cycles", "whole lives"])
@pytest.mark.parametrize("shape", [{"widths": (6,)}, {"widths": (), "reservoir": 20, "direct": 1}])
@pytest.mark.parametrize("stretch", [0.1, 60.0])
def test_novelty_is_the_same_in_torch_onnx_and_on_the_edge(
    name: str, shape: dict[str, Any], stretch: float, tmp_path: Path
) -> None:
    bundle = bundle_of(RECIPES[name], **shape)
    width = features_of_novelty(bundle.network.spec)
    whitening = tuple(tuple(row) for row in (stretch * np.eye(width)).tolist())
    bundle = replace(bundle, novelty=Novelty(mean=(0.01,) * width, whitening=whitening, limit=2.5))
    engines = CELLS if name == "cycles" else ENGINES.select(ENGINES.units[:2])
    expected = Predictor.from_bundle(bundle).predict(engines, last=False)
    assert any("unknown-wear" in health.flags for health in expected) == (stretch > 1)
    graph = OnnxPredictor.from_bundle(bundle).predict(engines, last=False)
    assert [health.flags for health in graph] == [health.flags for health in expected]

    export_onnx(bundle, tmp_path / "m.onnx")
    table(engines).to_csv(tmp_path / "rows.csv", index=False)
    arguments = [str(tmp_path / "m.onnx"), str(tmp_path / "rows.csv"), "--state", str(tmp_path / "edge.json")]
    arguments += ["--cycle", "cycle"] if name == "cycles" else []
    latest = {health.unit: "unknown-wear" in health.flags for health in expected}
    assert {unit: "unknown-wear:" in text for unit, text in edge_lines(arguments).items()} == latest
    if stretch > 1 and name == "whole lives":  # no further row, so nothing is found again
        lines = edge_lines([*arguments, "--acknowledge", engines.ids[0]])
        assert ["unknown-wear:" in lines[unit] for unit in engines.ids] == [False, True]


def test_a_measure_of_windows_without_a_measured_limit_is_not_used(tmp_path: Path) -> None:
    """Bundles and graphs of earlier versions: windows of healthy machines went beyond the limit of whole lives."""
    for name, used in (("conditions", False), ("whole lives", True)):
        novelty = Novelty(mean=(0.01,) * 6, whitening=tuple(tuple(row) for row in (60.0 * np.eye(6)).tolist()))
        bundle = replace(bundle_of(RECIPES[name]), novelty=novelty)
        place = bundle.save(tmp_path / name)
        document = json.loads((place / "bundle.json").read_text("utf-8"))
        del document["novelty"]["limit"], document["digest"]
        digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        (place / "bundle.json").write_text(json.dumps({**document, "digest": digest}), "utf-8")
        predictor = Predictor.load(place)
        assert (predictor.novelty is not None) == used
        flags = {flag for health in predictor.predict(ENGINES) for flag in health.flags}
        assert ("unknown-wear" in flags) == used
        assert any("unknown way" in text for text in predictor.unchecked) != used


def edge_lines(arguments: list[str]) -> dict[str, str]:
    done = subprocess.run([sys.executable, str(EDGE), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", ["conditions", "whole lives"])
def test_the_edge_example_holds_flags_bounds_and_goes_on_as_predict_does(name: str, tmp_path: Path) -> None:
    bundle = replace(bundle_of(RECIPES[name]), table=TableLayout(unit="unit", time="time"))
    export_onnx(bundle, tmp_path / "m.onnx")
    frame = table(ENGINES).reset_index(drop=True)
    frame.loc[[25, 26, 70], "pressure"] = np.nan  # blanks
    frame.loc[40, "temperature"] = 1e6  # an impossible value
    frame.loc[frame.index[-1], "pressure"] = -1e6
    frame.to_csv(tmp_path / "rows.csv", index=False)
    expected = Predictor.from_bundle(bundle).predict(frame, unit="unit", time="time").set_index("unit")
    written = frame.astype({"pressure": object})
    written.loc[[25, 26, 70], "pressure"] = ["NA", " ? ", "#DIV/0!"]  # as spreadsheets write blanks
    written.to_csv(tmp_path / "written.csv", index=False)
    whole = edge_lines([str(tmp_path / "m.onnx"), str(tmp_path / "rows.csv")])
    assert edge_lines([str(tmp_path / "m.onnx"), str(tmp_path / "written.csv")]) == whole
    state = ["--state", str(tmp_path / "edge.json")]
    for part, rows in enumerate((frame[::2].iloc[:0], frame[frame["time"] <= 20], frame)):  # nothing, some, all again
        rows.to_csv(tmp_path / f"{part}.csv", index=False)
        parts = edge_lines([str(tmp_path / "m.onnx"), str(tmp_path / f"{part}.csv"), *state])
    assert parts == whole and set(whole) == set(expected.index)
    for unit, health in expected.iterrows():
        if np.isnan(health["value"]):
            continue
        assert float(whole[unit].split()[1]) == pytest.approx(health["value"], rel=1e-5)
        bounds = re.findall(r"\(([-+.e0-9]+) (?:to|or more)", whole[unit])
        assert [float(bound) for bound in bounds] == pytest.approx(
            [] if np.isnan(health["low"]) else [health["low"]], rel=1e-4
        )
        for flag in ("out-of-range", "stuck", "drift", "missing"):
            assert (f"{flag}:" in whole[unit]) == (flag in health["flags"].split()), (unit, whole[unit], health)
