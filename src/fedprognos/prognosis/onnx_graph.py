"""A bundle as one ONNX graph: raw rows in, health out.

Scaling is done in float64, as the recipe does it: sensors far from zero would lose in float32 the digits that matter.
The tensors "scaled" and "outputs" mark where the network begins and ends.

A model of windows has `sensors` (B, window, C) and, where the recipe has operating settings, `settings` (B, window, S)
as inputs and `health` (B,) as output. A model of whole lives takes any number of further rows (B, T, C) with the
`state` (B, N) that each unit has, NaN for a new unit, and gives `health` (B, T) and `state_after` (B, N). Where the
bundle says how far features are from those of training, `novelty` has that distance, in the shape of `health`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import IntArray
from fedprognos.errors import ConfigError, MissingExtraError
from fedprognos.features import Recipe
from fedprognos.networks import WARM_UP, Bundle, Network, Novelty, Reservoir, Stepper, reservoir_of
from fedprognos.networks.cells import OnnxNode, cells

if TYPE_CHECKING:
    import onnx


OPSET, IR_VERSION = 17, 8
"""Old enough for runtimes of 2022."""


SCALED, OUTPUTS, STATE, STATE_AFTER = "scaled", "outputs", "state", "state_after"
"""Names of tensors: where the network begins and ends, and what it remembers of units."""
FEATURES, NOVELTY = "features", "novelty"
"""The last layer's outputs, (B, L) of windows and (T, B, L) of lives, and how far they are from those of training."""


def load_onnx() -> Any:
    """The onnx package, or an error that says how to install it."""
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "edge", "ONNX export") from None
    return onnx


class Graph:
    """Nodes and constants as they are added; every method returns the name of what it adds."""

    def __init__(self) -> None:
        self.onnx = load_onnx()
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, array: NDArray[Any]) -> str:
        self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def integers(self, *values: int) -> str:
        name = "integers_" + "_".join(map(str, values)).replace("-", "m")
        return self.constant(name, np.array(values, dtype=np.int64))

    def add(self, kind: str, inputs: Sequence[str], output: str | Sequence[str], **attributes: Any) -> str:
        outputs = [output] if isinstance(output, str) else list(output)
        name = next(filter(None, outputs))
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), outputs, name=name, **attributes))
        return name

    def floats(self, name: str, shape: Sequence[int | str | None], double: bool = False) -> Any:
        """An input or output of the graph."""
        kind = self.onnx.TensorProto.DOUBLE if double else self.onnx.TensorProto.FLOAT
        return self.onnx.helper.make_tensor_value_info(name, kind, list(shape))

    def to_onnx(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The nodes and constants as an ONNX graph."""
        return self.onnx.helper.make_graph(self.nodes, name, inputs, outputs, list(self.constants.values()))


def build_graph(bundle: Bundle) -> onnx.ModelProto:
    """The graph of a bundle; all inputs and outputs but states are float64, columns in the recipe's order."""
    graph, recipe = Graph(), bundle.recipe
    _scale(graph, recipe)
    add_network(graph, bundle.network, recipe)
    _decode(graph, recipe)
    rows = "rows" if recipe.life else recipe.window
    shapes = {"sensors": len(recipe.sensors), "settings": len(recipe.settings)}
    inputs = [graph.floats(name, ["batch", rows, width], double=True) for name, width in shapes.items() if width]
    shape = ["batch", "rows"] if recipe.life else ["batch"]
    outputs = [graph.floats("health", shape, double=True)]
    if bundle.novelty is not None:
        _novelty(graph, bundle.novelty, recipe.life)
        outputs.append(graph.floats(NOVELTY, shape))
    properties = _properties(bundle)
    if recipe.life:
        steps = Stepper(bundle.network)
        inputs.append(graph.floats(STATE, ["batch", steps.size]))
        outputs.append(graph.floats(STATE_AFTER, ["batch", steps.size]))
        properties |= {"state_size": str(steps.size), "state_digest": steps.digest}
    helper = graph.onnx.helper
    model: onnx.ModelProto = helper.make_model(
        graph.to_onnx("fedprognos", inputs, outputs),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="fedprognos",
    )
    helper.set_model_props(model, properties)
    graph.onnx.checker.check_model(model, full_check=True)
    return model


def _properties(bundle: Bundle) -> dict[str, str]:
    recipe = bundle.recipe
    return {
        "recipe": recipe.to_json(),
        "calibration": "" if bundle.calibration is None else bundle.calibration.model_dump_json(),
        "novelty": "" if bundle.novelty is None else bundle.novelty.model_dump_json(),
        "novelty_limit": "" if bundle.novelty is None else str(bundle.novelty.limit),
        "table": "" if bundle.table is None else bundle.table.model_dump_json(exclude_defaults=True),
        "sensors": json.dumps(recipe.sensors),
        "settings": json.dumps(recipe.settings),
        "window": str(recipe.window),
        "target": recipe.target,
        "target_measure": recipe.target_measure,
        "time_measure": recipe.time_measure,
    }


def _scale(graph: Graph, recipe: Recipe) -> None:
    """Rows to network inputs, as :meth:`Recipe.scale`."""
    mean, std = graph.constant("mean", np.array(recipe.mean)), graph.constant("std", np.array(recipe.std))
    if len(recipe.condition_keys) > 1:
        condition = _condition(graph, recipe)
        mean = graph.add("Gather", [mean, condition], "mean_of_rows", axis=0)
        std = graph.add("Gather", [std, condition], "std_of_rows", axis=0)
    centred = graph.add("Sub", ["sensors", mean], "centred")
    parts = [graph.add("Div", [centred, std], "scaled_sensors")]
    if recipe.setting_mean:
        shifted = graph.add(
            "Sub", ["settings", graph.constant("setting_mean", np.array(recipe.setting_mean))], "centred_settings"
        )
        scale = graph.constant("setting_std", np.array(recipe.setting_std))
        parts.append(graph.add("Div", [shifted, scale], "scaled_settings"))
    if recipe.condition_inputs:
        table = graph.constant("one_hot", np.eye(len(recipe.condition_keys)))
        parts.append(graph.add("Gather", [table, "condition"], "condition_columns", axis=0))
    joined = graph.add("Concat", parts, "joined", axis=2) if len(parts) > 1 else parts[0]
    graph.add("Cast", [joined], SCALED, to=graph.onnx.TensorProto.FLOAT)


def _condition(graph: Graph, recipe: Recipe) -> str:
    """Index of each row's operating condition, the nearest where it is unknown: rounding, then distances."""
    condition_keys = np.array(recipe.condition_keys, dtype=np.float64)
    span = np.ptp(condition_keys, axis=0)
    columns = np.array([recipe.settings.index(name) for name in recipe.conditions], dtype=np.int64)
    powers = np.array([10.0 ** abs(places) for places in recipe.conditions.values()])
    fine = np.array([places >= 0 for places in recipe.conditions.values()])
    up, down = np.where(fine, powers, 1.0), np.where(fine, 1.0, powers)  # 10^-p is not exact, dividing by 10^p is
    chosen = graph.add("Gather", ["settings", graph.constant("columns", columns)], "chosen", axis=2)
    up_name, down_name = graph.constant("up", up), graph.constant("down", down)
    large = graph.add("Div", [graph.add("Mul", [chosen, up_name], "lifted"), down_name], "shifted")
    whole = graph.add("Round", [large], "whole")
    rounded = graph.add("Mul", [graph.add("Div", [whole, up_name], "lowered"), down_name], "rounded")
    apart = graph.add(
        "Sub",
        [graph.add("Unsqueeze", [rounded, graph.integers(2)], "keys"), graph.constant("known", condition_keys)],
        "apart",
    )
    relative = graph.add("Div", [apart, graph.constant("span", np.where(span > 0, span, 1.0))], "relative")
    distance = graph.add(
        "ReduceSum", [graph.add("Mul", [relative, relative], "squared"), graph.integers(3)], "far", keepdims=0
    )
    return graph.add("ArgMin", [distance], "condition", axis=2, keepdims=0)


def _decode(graph: Graph, recipe: Recipe) -> None:
    """Outputs to health, as :meth:`Recipe.decode`."""
    wide = graph.add("Cast", [OUTPUTS], "wide", to=graph.onnx.TensorProto.DOUBLE)
    spread = graph.add("Mul", [wide, graph.constant("label_std", np.array(recipe.label_std))], "spread")
    level = graph.add("Add", [spread, graph.constant("label_mean", np.array(recipe.label_mean))], "level")
    bounds = [graph.constant("lowest", np.array(-np.inf if recipe.lowest is None else recipe.lowest))]
    if recipe.cap is not None:
        bounds.append(graph.constant("highest", np.array(float(recipe.cap))))
    graph.add("Clip", [level, *bounds], "health")


def _novelty(graph: Graph, novelty: Novelty, life: bool) -> None:
    """Distance of the last layer's outputs from training, as :meth:`Novelty.distance`."""
    mean, whitening = (np.array(part, dtype=np.float32) for part in (novelty.mean, novelty.whitening))
    count = graph.constant("novelty.columns", np.arange(len(mean)))
    chosen = graph.add("Gather", [FEATURES, count], "novelty_features", axis=-1)
    apart = graph.add("Sub", [chosen, graph.constant("novelty.mean", mean)], "novelty_apart")
    white = graph.add("MatMul", [apart, graph.constant("novelty.whitening", whitening.T)], "novelty_white")
    distance = graph.add("ReduceL2", [white], "novelty_by_time" if life else NOVELTY, axes=[-1], keepdims=0)
    if life:
        graph.add("Transpose", [distance], NOVELTY)


RESERVOIR = "reservoir"


def add_network(graph: Graph, network: Network, recipe: Recipe) -> None:
    """Add what the layers, the reservoir and the head of a network do, time first as ONNX wants it.

    A window starts at rest and has one output, at its last row. A life continues from a state and has one at every row.
    """
    spec, life = network.spec, recipe.life
    rows = graph.add("Transpose", [SCALED], "rows_by_time", perm=[1, 0, 2])
    before = _states(graph, network) if life else {}
    seen, after = _layers(graph, network, rows, before)
    if spec.reservoir:
        trace, last = _reservoir(graph, network, rows, before.get(RESERVOIR))
        seen.append((RESERVOIR, trace if life else last))
        after.append(last)
    if spec.direct:
        seen.append(("direct", rows if life else _some_rows(graph, spec.direct, recipe)))
    if seen:
        graph.add("Identity", [seen[0][1]], FEATURES)
    health = graph.constant("head.bias", network.weights["head.bias"])
    for part, features in seen:
        slopes = graph.constant(f"head.{part}", network.weights[f"head.{part}"].T)
        health = graph.add(
            "Add", [health, graph.add("MatMul", [features, slopes], f"head_{part}")], f"head_with_{part}"
        )
    if not life:
        graph.add("Squeeze", [health, graph.integers(1)], OUTPUTS)
        return
    by_time = graph.add("Squeeze", [health, graph.integers(2)], "outputs_by_time")
    graph.add("Transpose", [by_time], OUTPUTS, perm=[1, 0])
    graph.add("Concat", after or [STATE], STATE_AFTER, axis=1)


def _states(graph: Graph, network: Network) -> dict[str, str]:
    """The parts of the units' states (B, L): of the layers, those of new units at rest; the reservoir's as it came."""
    spec, node = network.spec, _node(network)
    names = [f"{name}_{k}" for k in range(len(spec.widths)) for name in node.states]
    sizes = [width for width in spec.widths for _ in node.states]
    if spec.reservoir:
        names, sizes = [*names, RESERVOIR], [*sizes, spec.reservoir]
    if not names:  # a head on the rows themselves remembers nothing
        return {}
    graph.add("Split", [STATE, graph.integers(*sizes)], [f"given_{name}" for name in names], axis=1)
    states = {name: f"given_{name}" for name in names}
    for name in names[: len(spec.widths) * len(node.states)]:
        new = graph.add("IsNaN", [f"given_{name}"], f"new_{name}")
        zero = graph.constant("zero", np.zeros(1, dtype=np.float32))
        states[name] = graph.add("Where", [new, zero, f"given_{name}"], f"before_{name}")
    return states


def _node(network: Network) -> OnnxNode:
    node = cells[network.spec.cell].onnx
    if node is None:
        raise ConfigError(f"the cell '{network.spec.cell}' does not say what it is in ONNX", hint="give it `onnx`")
    return node


def _layers(graph: Graph, network: Network, x: str, before: dict[str, str]) -> tuple[list[tuple[str, str]], list[str]]:
    """What the head sees of the last layer, and the states after the last row."""
    spec, weights, node = network.spec, network.weights, _node(network)
    after: list[str] = []
    if spec.input_width is not None:
        x = graph.add("MatMul", [x, graph.constant("input.weight", weights["input.weight"].T)], "input_product")
        x = graph.add("Add", [x, graph.constant("input.bias", weights["input.bias"])], "input_sum")
        x = graph.add("Relu", [x], "input_layer")
    for k, width in enumerate(spec.widths):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        kernel, recurrent, *biases = (_gates(weights[f"recurrent.{k}.{name}_l0"], node) for name in names)
        inputs = [
            x,
            graph.constant(f"recurrent.{k}.W", kernel[None]),
            graph.constant(f"recurrent.{k}.R", recurrent[None]),
            graph.constant(f"recurrent.{k}.B", np.concatenate(biases)[None]),
        ]
        if before:
            states = [before[f"{name}_{k}"] for name in node.states]
            inputs += ["", *(graph.add("Unsqueeze", [name, graph.integers(0)], f"first_{name}") for name in states)]
        ends = [f"end_{name}_{k}" for name in node.states]
        graph.add(node.kind, inputs, [f"sequence_{k}", *ends], hidden_size=width, **node.options)
        after += [graph.add("Squeeze", [end, graph.integers(0)], f"last_{end}") for end in ends]
        x = graph.add("Squeeze", [f"sequence_{k}", graph.integers(1)], f"layer_{k}")
    if not spec.widths:
        return [], after
    return [("weight", x if before else after[-len(node.states)])], after


def _gates(tensor: NDArray[np.float32], node: OnnxNode) -> NDArray[np.float32]:
    parts = np.split(tensor, len(node.gates))
    return np.concatenate([parts[k] for k in node.gates])


def _some_rows(graph: Graph, count: int, recipe: Recipe) -> str:
    """Rows spread evenly over the window (B, count x channels), the latest where it is one."""
    last = recipe.window - 1
    at = np.linspace(0, last, count).round() if count > 1 else np.array([last])
    chosen = graph.add("Gather", [SCALED, graph.constant("at", at.astype(np.int64))], "some_rows", axis=1)
    return graph.add("Reshape", [chosen, graph.integers(0, count * recipe.channels)], "rows_in_line")


def _reservoir(graph: Graph, network: Network, rows: str, before: str | None) -> tuple[str, str]:
    """States of the reservoir at every row (T, B, N) and at the last (B, N)."""
    body = reservoir_of(network.spec.reservoir, network.spec.inputs)
    columns, values = _links(body)
    graph.constant("reservoir.inputs", body.inputs.T)
    graph.constant("reservoir.columns", columns.reshape(-1))
    graph.constant("reservoir.values", values)
    graph.constant("reservoir.leaks", body.leaks)
    shape = graph.integers(0, *values.shape)
    first = graph.add("Gather", [rows, graph.integers(0)], "first_rows", axis=0)
    many = graph.add("Tile", [first, graph.integers(WARM_UP, 1, 1)], "first_rows_repeated")
    silent = graph.constant("reservoir.silent", np.zeros((network.spec.inputs, body.units), dtype=np.float32))
    nothing = graph.add("Squeeze", [graph.add("MatMul", [first, silent], "no_states"), graph.integers(0)], "no_state")
    warm = _step(graph, body, shape, "warm")
    if before is None:
        before = graph.add("Scan", [nothing, many], ["begun", "warm_states"], num_scan_inputs=1, body=warm)
    else:
        begin, go_on = Graph(), Graph()
        begin.add("Scan", [nothing, many], ["rest", "warm_states"], num_scan_inputs=1, body=warm)
        begin.add("Where", [begin.add("IsNaN", [before], "new_reservoir"), "rest", before], "begun_new")
        go_on.add("Identity", [before], "begun_known")
        ends = [graph.floats(name, ["batch", body.units]) for name in ("begun_new", "begun_known")]
        before = graph.add(
            "If",
            [_any_new(graph, before)],
            "begun",
            then_branch=begin.to_onnx("begin", [], ends[:1]),
            else_branch=go_on.to_onnx("go_on", [], ends[1:]),
        )
    graph.add(
        "Scan", [before, rows], ["end_states", "trace"], num_scan_inputs=1, body=_step(graph, body, shape, "step")
    )
    return "trace", "end_states"


def _any_new(graph: Graph, states: str) -> str:
    """Whether any unit is new: warming a reservoir up takes as long as many rows, and is left out where it can be."""
    new = graph.add("Cast", [graph.add("IsNaN", [states], "is_new")], "is_new_int", to=graph.onnx.TensorProto.INT32)
    most = graph.add("ReduceMax", [new], "how_new", keepdims=0)
    return graph.add("Cast", [most], "any_new", to=graph.onnx.TensorProto.BOOL)


def _links(body: Reservoir) -> tuple[IntArray, NDArray[np.float32]]:
    """Which others each unit listens to (N, links), and how much; with fewer links than others, to nothing there."""
    most = int(np.diff(body.links.indptr).max())
    columns, values = np.zeros((body.units, most), dtype=np.int64), np.zeros((body.units, most), dtype=np.float32)
    for k, (start, stop) in enumerate(itertools.pairwise(body.links.indptr)):
        columns[k, : stop - start] = body.links.indices[start:stop]
        values[k, : stop - start] = body.links.data[start:stop]
    return columns, values


def _step(graph: Graph, body: Reservoir, shape: str, name: str) -> Any:
    """One step from states (B, N) and rows (B, channels) to states, as :meth:`Reservoir.step`.

    The work is that of the links, not of a whole matrix.
    """
    step = Graph()
    state, row, after = f"{name}_state", f"{name}_row", f"{name}_after"
    others = step.add("Gather", [state, "reservoir.columns"], f"{name}_others", axis=1)
    weighed = step.add("Mul", [step.add("Reshape", [others, shape], f"{name}_shaped"), "reservoir.values"], f"{name}_w")
    inflow = step.add("ReduceSum", [weighed, graph.integers(2)], f"{name}_heard", keepdims=0)
    driven = step.add("Add", [step.add("MatMul", [row, "reservoir.inputs"], f"{name}_in"), inflow], f"{name}_sum")
    moved = step.add("Sub", [step.add("Tanh", [driven], f"{name}_tanh"), state], f"{name}_moved")
    step.add("Add", [state, step.add("Mul", [moved, "reservoir.leaks"], f"{name}_leaked")], after)
    trace = step.add("Identity", [after], f"{name}_trace")
    sizes: tuple[str, int] = ("batch", body.units)
    inputs = [graph.floats(state, sizes), graph.floats(row, ["batch", body.inputs.shape[1]])]
    return step.to_onnx(name, inputs, [graph.floats(after, sizes), graph.floats(trace, sizes)])
