"""Predicting with ONNX Runtime instead of torch: the same windows, the same flags, another engine."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fedprognos.arrays import FloatArray, Rows
from fedprognos.errors import BundleError, DataNotFoundError, MissingExtraError
from fedprognos.features import Recipe
from fedprognos.networks import Bundle, Calibration
from fedprognos.prognosis.health_model import Forward, Steps
from fedprognos.prognosis.onnx_builder import OUTPUTS, SCALED, STATE, STATE_AFTER, load_onnx
from fedprognos.prognosis.onnx_graph import build_graph
from fedprognos.prognosis.predictor import Predictor
from fedprognos.tables.columns import TableLayout

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
        try:
            given = properties.get("calibration")
            calibration = Calibration.model_validate_json(given) if given else None
            layout = properties.get("table")
            table = TableLayout.model_validate_json(layout) if layout else None
        except ValidationError as error:
            raise BundleError(f"its metadata cannot be read: {error}", where=where) from None
        recipe = Recipe.from_json(properties["recipe"])
        session = session_of(_inner(model, recipe.channels, where))

        def forward(batch: Rows) -> NDArray[np.floating]:
            outputs: NDArray[np.floating] = session.run([OUTPUTS], {SCALED: np.ascontiguousarray(batch)})[0]
            return outputs

        network: Forward | Steps = forward
        if recipe.life:
            network = OnnxSteps(session, int(properties["state_size"]), properties["state_digest"])
        super().__init__(recipe, network, calibration, bundle, table)

    @staticmethod
    def load(bundle: str | Path, head: str | Path | None = None) -> OnnxPredictor:
        """Read a file that `fedprognos export` wrote, or turn a bundle into a graph in memory.

        A file has its head built in; give a personal head when exporting.
        """
        path = Path(bundle)
        if path.is_dir():
            return OnnxPredictor.of(Predictor.load(path, head).bundle)
        if not path.is_file():
            raise DataNotFoundError("no such model", where=str(path), hint="give a bundle's folder or an .onnx file")
        if head is not None:
            raise BundleError(
                "an ONNX file has its head built in", where=str(path), hint="give --head to `fedprognos export`"
            )
        onnx = load_onnx()
        try:
            model = onnx.load(str(path))
            onnx.checker.check_model(model)
        except Exception as error:  # protobuf and the checker raise what they like
            hint = "write it again with fedprognos export"
            raise BundleError(f"not a readable ONNX file: {error}", where=str(path), hint=hint) from None
        return OnnxPredictor(model, str(path))

    @staticmethod
    def of(bundle: Bundle, head: FloatArray | None = None) -> OnnxPredictor:
        """A predictor of a bundle in memory."""
        bundle = bundle if head is None else Predictor.of(bundle, head).bundle
        return OnnxPredictor(build_graph(bundle), bundle=bundle)


class OnnxSteps:
    """A network that goes on from where it was, in ONNX Runtime; see :class:`fedprognos.networks.stepping.Stepper`."""

    def __init__(self, session: Any, size: int, digest: str) -> None:
        self._session = session
        self.size, self.digest = size, digest

    def rest(self, first: Rows) -> Rows:
        """States (B, size) of new units: the graph itself puts them at rest."""
        return np.full((len(first), self.size), np.nan, dtype=np.float32)

    def run(self, rows: Rows, states: Rows) -> tuple[FloatArray, Rows]:
        """Standardised health (B, T) at some more rows (B, T, channels) of units, and their states after them."""
        given = {SCALED: np.ascontiguousarray(rows), STATE: np.ascontiguousarray(states)}
        said, after = self._session.run([OUTPUTS, STATE_AFTER], given)
        return said.astype(np.float64), after


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
    made_by = {name: node for node in model.graph.node for name in node.output if name}
    if SCALED not in made_by or OUTPUTS not in made_by:
        raise BundleError("made by another program", where=where, hint="make it with `fedprognos export`")
    needed, waiting = set(), [name for name in (OUTPUTS, STATE_AFTER) if name in made_by]
    while waiting:
        name = waiting.pop()
        if name == SCALED or name not in made_by or made_by[name].name in needed:
            continue
        needed.add(made_by[name].name)
        waiting += _inputs(made_by[name])
    inner = copy.deepcopy(model)
    graph = inner.graph
    nodes = [node for node in model.graph.node if node.name in needed]
    used = {name for node in nodes for name in _inputs(node)}
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(c for c in model.graph.initializer if c.name in used)
    floats = onnx.TensorProto.FLOAT
    graph.input.append(onnx.helper.make_tensor_value_info(SCALED, floats, ["batch", None, channels]))
    graph.input.extend(given for given in model.graph.input if given.name == STATE)
    outputs = ["batch", None] if STATE_AFTER in made_by else ["batch"]
    graph.output.append(onnx.helper.make_tensor_value_info(OUTPUTS, floats, outputs))
    graph.output.extend(made for made in model.graph.output if made.name == STATE_AFTER)
    return inner


def _inputs(node: Any) -> list[str]:
    """What a node reads, the graphs within it included."""
    within = [name for part in node.attribute if part.HasField("g") for own in part.g.node for name in _inputs(own)]
    return [name for name in (*node.input, *within) if name]
