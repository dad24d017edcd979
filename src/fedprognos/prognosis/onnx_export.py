"""Writing a bundle as an ONNX file, checked against torch before it is put in place."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import BundleError
from fedprognos.features import Recipe
from fedprognos.files import replacing
from fedprognos.networks import Bundle
from fedprognos.networks.stepping import Stepper
from fedprognos.prognosis.onnx_builder import OUTPUTS, STATE, load_onnx
from fedprognos.prognosis.onnx_graph import build_graph
from fedprognos.prognosis.onnx_runtime import session_of
from fedprognos.prognosis.predictor import Predictor

if TYPE_CHECKING:
    import onnx

TOLERANCE = 1e-5
"""Largest difference from torch that is let pass, relative to the spread of the labels."""
CHECKED = 256
LIFE = 120
"""Rows of the lives that a model of whole lives is checked on."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Parameters
    ----------
    worst
        Largest difference from torch over the windows checked, relative to the spread of the labels.
    int8_rms, int8_worst
        Root mean square and largest difference that quantising made, in the unit of health; None without it.
    """

    path: Path
    size_in_bytes: int
    windows: int
    worst: float
    int8_rms: float | None = None
    int8_worst: float | None = None


def export_onnx(
    bundle: Bundle, path: str | Path, *, int8: bool = False, raw: tuple[FloatArray, FloatArray] | None = None
) -> Exported:
    """Write a bundle as one ONNX graph from raw rows to health.

    Parameters
    ----------
    int8
        Keep the recurrent layers' weights in 8 bits and measure what that changes.
    raw
        Sensors (B, T, C) and settings (B, T, S) to check on, T rows being a window or the beginning of a life; made
        up by default.

    Raises
    ------
    BundleError
        Where the graph and torch differ; nothing is written then.
    """
    path = Path(path)
    if bundle.recipe.extra:
        raise BundleError(
            "models with recipe.channels cannot be exported to ONNX: the graph does not compute channels",
            where=str(path),
            hint="run the bundle itself (fedprognos predict, serve), or train without recipe.channels",
        )
    sensors, settings = example_rows(bundle.recipe) if raw is None else raw
    model = build_graph(bundle)
    spread = bundle.recipe.label_std
    torch_outputs = _torch_outputs(bundle, sensors, settings)
    worst = float(np.abs(_run(_with_outputs(model), sensors, settings, OUTPUTS) - torch_outputs).max())
    health = _run(model, sensors, settings, "health")
    worst = max(worst, float(np.abs(health - bundle.recipe.decode(torch_outputs)).max()) / spread)
    if not worst <= TOLERANCE:
        raise BundleError(
            f"the ONNX graph differs from torch by {worst:.2g} of the spread of the labels (allowed: {TOLERANCE:g})",
            where=str(path),
            hint="this is a fault of the export; nothing was written",
        )
    rms = largest = None
    if int8:
        model = _quantised(model)
        change = _run(model, sensors, settings, "health") - health
        rms, largest = float(np.sqrt(np.mean(np.square(change)))), float(np.abs(change).max())
    content = model.SerializeToString(deterministic=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return Exported(path, len(content), len(sensors), worst, rms, largest)


def example_rows(
    recipe: Recipe, count: int | None = None, seed: int = 0, strange: float = 0.02
) -> tuple[FloatArray, FloatArray]:
    """Raw histories that are plausible for a recipe: levels, trends and noise in its operating conditions.

    Parameters
    ----------
    strange
        Share of rows in a condition that the recipe does not know.
    """
    rng = np.random.default_rng(seed)
    length = LIFE if recipe.life else recipe.window
    count = count or (CHECKED * recipe.window // length or 16)
    shape = (count, length)
    which = rng.integers(len(recipe.condition_keys), size=shape)
    trend = np.linspace(-1, 1, length)[None, :, None] * rng.normal(0, 1, (count, 1, len(recipe.sensors)))
    z = rng.normal(0, 1, (count, 1, len(recipe.sensors))) + trend + rng.normal(0, 0.5, (*shape, len(recipe.sensors)))
    sensors = np.array(recipe.mean)[which] + np.array(recipe.std)[which] * z
    settings = np.zeros((*shape, len(recipe.settings)))
    if recipe.setting_mean:
        settings[:] = recipe.setting_mean + recipe.setting_std * rng.normal(0, 1, settings.shape)
    keys = np.array(recipe.condition_keys, dtype=np.float64)
    for k, (name, places) in enumerate(recipe.conditions.items()):
        within = rng.uniform(-0.45, 0.45, shape) * 10.0**-places
        away = (rng.random(shape) < strange) * rng.normal(0, 1 + np.ptp(keys[:, k]), shape)
        settings[:, :, recipe.settings.index(name)] = keys[which, k] + within + away
    return sensors, settings


def _torch_outputs(bundle: Bundle, sensors: FloatArray, settings: FloatArray) -> FloatArray:
    rows = sensors.shape[0] * sensors.shape[1]
    scaled = bundle.recipe.scale(sensors.reshape(rows, -1), settings.reshape(rows, settings.shape[2]))[0]
    if bundle.recipe.levels is not None:
        column = bundle.recipe.level_column
        scaled[:, column] = bundle.recipe.scale_level_times(sensors.reshape(rows, -1)[:, column])
    histories = scaled.reshape(*sensors.shape[:2], -1)
    if not bundle.recipe.life:
        return Predictor.of(bundle).outputs(histories)
    steps = Stepper(bundle.network)
    return steps.run(histories, steps.rest(histories[:, 0]))[0]


def _run(model: onnx.ModelProto, sensors: FloatArray, settings: FloatArray, output: str) -> FloatArray:
    session = session_of(model)
    given: dict[str, Any] = {"sensors": sensors, "settings": settings}
    for one in session.get_inputs():
        if one.name == STATE:
            given[STATE] = np.full((len(sensors), one.shape[1]), np.nan, dtype=np.float32)
    values: Any = session.run([output], {one.name: given[one.name] for one in session.get_inputs()})[0]
    return np.asarray(values, dtype=np.float64)


def _with_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph that also gives the network's outputs, which the bounds of health would hide."""
    onnx = load_onnx()
    shown = copy.deepcopy(model)
    shape = [one.dim_param for one in shown.graph.output[0].type.tensor_type.shape.dim]
    shown.graph.output.append(onnx.helper.make_tensor_value_info(OUTPUTS, onnx.TensorProto.FLOAT, shape))
    return shown


def _quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with the recurrent weights in 8 bits, one scale a row, restored to floats as it runs.

    Inputs and states stay floats. To round those as well would be a little quicker, but to the range of a whole batch:
    one row in an unknown condition would coarsen all answers beside it.
    """
    onnx = load_onnx()
    small = copy.deepcopy(model)
    graph = small.graph
    held = {tensor.name: tensor for tensor in graph.initializer}
    recurrent = [node for node in graph.node if node.op_type in {"LSTM", "GRU"}]
    restored = []
    for name in (name for node in recurrent for name in node.input[1:3]):  # weights of the inputs, of the states
        weights = onnx.numpy_helper.to_array(held[name])  # (1, gates x neurons, inputs or neurons)
        scale = np.maximum(np.abs(weights).max(axis=(0, 2)) / 127, np.finfo(np.float32).tiny).astype(np.float32)
        levels = np.rint(weights / scale[None, :, None]).astype(np.int8)
        graph.initializer.remove(held[name])
        graph.initializer.extend(
            [onnx.numpy_helper.from_array(levels, f"{name}_int8"), onnx.numpy_helper.from_array(scale, f"{name}_scale")]
        )
        parts = [f"{name}_int8", f"{name}_scale"]
        restored.append(onnx.helper.make_node("DequantizeLinear", parts, [name], name=f"{name}_restored", axis=1))
    nodes = [*restored, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return small
