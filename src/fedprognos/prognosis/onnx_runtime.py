"""ONNX Runtime: predicting with it instead of torch, and writing an ONNX file that was checked with it.

The predictor sees the same windows and sets the same flags as with torch. A file is put in place only if the graph and
torch agree.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fedprognos.arrays import FloatArray, Rows
from fedprognos.errors import BundleError, DataNotFoundError, MissingExtraError
from fedprognos.features import Recipe
from fedprognos.files import replacing
from fedprognos.networks import Bundle, Calibration, Novelty, Stepper, Trust
from fedprognos.prognosis.health_model import StatefulNetwork, WindowNetwork
from fedprognos.prognosis.onnx_graph import FEATURES, OUTPUTS, SCALED, STATE, STATE_AFTER, build_graph, load_onnx
from fedprognos.prognosis.predictor import Predictor
from fedprognos.tables import TableLayout

if TYPE_CHECKING:
    import onnx


class OnnxPredictor(Predictor):
    """A :class:`Predictor` whose network runs in ONNX Runtime, on one thread.

    Parameters
    ----------
    model
        A graph that :func:`fedprognos.prognosis.onnx_graph.build_graph` made, quantised or not.
    where
        The file it came from, for messages.
    """

    def __init__(self, model: onnx.ModelProto, where: str = "ONNX model", bundle: Bundle | None = None) -> None:
        properties = {entry.key: entry.value for entry in model.metadata_props}
        if "recipe" not in properties:
            raise BundleError("made by another program", where=where, hint="make it with `fedprognos export`")
        outputs = [output.name for output in model.graph.output]
        try:
            given = properties.get("calibration")
            calibration = Calibration.model_validate_json(given) if given else None
            given = properties.get("novelty")
            novelty = Novelty.model_validate_json(given).usable(STATE_AFTER in outputs) if given else None
            layout = properties.get("table")
            table = TableLayout.model_validate_json(layout) if layout else None
        except ValidationError as error:
            raise BundleError(f"its metadata cannot be read: {error}", where=where) from None
        recipe = Recipe.from_json(properties["recipe"])
        session = session_of(_inner(model, recipe.channels, where))

        network: WindowNetwork | StatefulNetwork = OnnxWindows(session)
        if recipe.life:
            network = OnnxSteps(session, int(properties["state_size"]), properties["state_digest"])
        super().__init__(recipe, network, calibration, bundle, table, novelty)

    @staticmethod
    def load(bundle: str | Path, head: str | Path | None = None, trust: Trust | None = None) -> OnnxPredictor:
        """Read a file that `fedprognos export` wrote, or turn a bundle into a graph in memory.

        A file has its head built in; give a personal head when exporting.
        """
        path = Path(bundle)
        if path.is_dir():
            return OnnxPredictor.from_bundle(Predictor.load(path, head, trust).bundle)
        if not path.is_file():
            raise DataNotFoundError("no such model", where=str(path), hint="give a bundle's folder or an .onnx file")
        if head is not None:
            raise BundleError(
                "an ONNX file has its head built in", where=str(path), hint="give --head to `fedprognos export`"
            )
        content = path.read_bytes()
        signed_by = None if trust is None else trust.check_file(content, path)
        onnx = load_onnx()
        try:
            model = onnx.load_model_from_string(content)
            onnx.checker.check_model(model)
        except Exception as error:  # protobuf and the checker document no exception types
            hint = "write it again with fedprognos export"
            raise BundleError(f"not a readable ONNX file: {error}", where=str(path), hint=hint) from None
        predictor = OnnxPredictor(model, str(path))
        predictor.signed_by = signed_by
        return predictor

    @staticmethod
    def from_bundle(
        bundle: Bundle, head: FloatArray | None = None, kept_out: FloatArray | None = None
    ) -> OnnxPredictor:
        """A predictor of a bundle in memory; see :meth:`Predictor.from_bundle`."""
        bundle = bundle if head is None else Predictor.from_bundle(bundle, head, kept_out).bundle
        return OnnxPredictor(build_graph(bundle), bundle=bundle)


class OnnxWindows:
    """A network in ONNX Runtime that looks at windows."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]

    def look(self, windows: Rows) -> tuple[NDArray[np.floating], Rows]:
        """Standardised outputs (B,) of windows (B, window, channels), and the last layer's outputs (B, L)."""
        given = {SCALED: np.ascontiguousarray(windows)}
        results = dict(zip(self._outputs, self._session.run(self._outputs, given), strict=True))
        features = results.get(FEATURES)
        return results[OUTPUTS], np.empty((len(windows), 0), dtype=np.float32) if features is None else features


class OnnxSteps:
    """A network in ONNX Runtime that continues from the state of a unit, as a Stepper does in torch."""

    def __init__(self, session: Any, size: int, digest: str) -> None:
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]  # asking takes as long as a small product
        self.size, self.digest = size, digest

    def rest(self, first: Rows) -> Rows:
        """States (B, size) of new units: the graph itself puts them at rest."""
        return np.full((len(first), self.size), np.nan, dtype=np.float32)

    def read(self, rows: Rows, states: Rows) -> tuple[FloatArray, Rows, Rows]:
        """Standardised health (B, T) at some more rows (B, T, channels), the last layer's outputs (B, T, L), states."""
        given = {SCALED: np.ascontiguousarray(rows), STATE: np.ascontiguousarray(states)}
        results = dict(zip(self._outputs, self._session.run(self._outputs, given), strict=True))
        features = results.get(FEATURES)
        if features is None:
            features = np.empty((rows.shape[1], len(rows), 0), dtype=np.float32)
        return results[OUTPUTS].astype(np.float64), features.transpose(1, 0, 2), results[STATE_AFTER]


def session_of(model: onnx.ModelProto) -> Any:
    """A session on one thread."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError("onnxruntime", "edge", "predicting with ONNX Runtime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _inner(model: onnx.ModelProto, channels: int, where: str) -> onnx.ModelProto:
    """The part of the graph between scaled rows and outputs: streams keep scaled rows, and scale each once."""
    onnx = load_onnx()
    node_of_output = {name: node for node in model.graph.node for name in node.output if name}
    if SCALED not in node_of_output or OUTPUTS not in node_of_output:
        raise BundleError("made by another program", where=where, hint="make it with `fedprognos export`")
    needed, waiting = set(), [name for name in (OUTPUTS, FEATURES, STATE_AFTER) if name in node_of_output]
    while waiting:
        name = waiting.pop()
        if name == SCALED or name not in node_of_output or node_of_output[name].name in needed:
            continue
        needed.add(node_of_output[name].name)
        waiting += _inputs(node_of_output[name])
    inner = copy.deepcopy(model)
    graph = inner.graph
    nodes = [node for node in model.graph.node if node.name in needed]
    used = {name for node in nodes for name in _inputs(node)}
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(c for c in model.graph.initializer if c.name in used)
    floats = onnx.TensorProto.FLOAT
    graph.input.append(onnx.helper.make_tensor_value_info(SCALED, floats, ["batch", None, channels]))
    graph.input.extend(source for source in model.graph.input if source.name == STATE)
    outputs = ["batch", None] if STATE_AFTER in node_of_output else ["batch"]
    graph.output.append(onnx.helper.make_tensor_value_info(OUTPUTS, floats, outputs))
    graph.output.extend(output for output in model.graph.output if output.name == STATE_AFTER)
    if FEATURES in node_of_output:
        shape = [None, "batch", None] if STATE_AFTER in node_of_output else ["batch", None]
        graph.output.append(onnx.helper.make_tensor_value_info(FEATURES, floats, shape))
    return inner


def _inputs(node: Any) -> list[str]:
    """What a node reads, the graphs within it included."""
    within = [name for part in node.attribute if part.HasField("g") for inner in part.g.node for name in _inputs(inner)]
    return [name for name in (*node.input, *within) if name]


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
    recipe: Recipe, count: int | None = None, seed: int = 0, unseen: float = 0.02
) -> tuple[FloatArray, FloatArray]:
    """Raw histories that are plausible for a recipe: levels, trends and noise in its operating conditions.

    Parameters
    ----------
    unseen
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
        away = (rng.random(shape) < unseen) * rng.normal(0, 1 + np.ptp(keys[:, k]), shape)
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
        return Predictor.from_bundle(bundle).outputs(histories)
    steps = Stepper(bundle.network)
    return steps.run(histories, steps.rest(histories[:, 0]))[0]


def _run(model: onnx.ModelProto, sensors: FloatArray, settings: FloatArray, output: str) -> FloatArray:
    session = session_of(model)
    given: dict[str, Any] = {"sensors": sensors, "settings": settings}
    for tensor in session.get_inputs():
        if tensor.name == STATE:
            given[STATE] = np.full((len(sensors), tensor.shape[1]), np.nan, dtype=np.float32)  # NaN: a new unit
    values: Any = session.run([output], {tensor.name: given[tensor.name] for tensor in session.get_inputs()})[0]
    return np.asarray(values, dtype=np.float64)


def _with_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph that also gives the network's outputs, which the bounds of health would hide."""
    onnx = load_onnx()
    shown = copy.deepcopy(model)
    shape = [axis.dim_param for axis in shown.graph.output[0].type.tensor_type.shape.dim]
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
