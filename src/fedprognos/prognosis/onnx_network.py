"""The network of an ONNX graph: layers, reservoir and head, from scaled rows to standardised outputs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import IntArray
from fedprognos.errors import ConfigError
from fedprognos.features import Recipe
from fedprognos.networks import Network
from fedprognos.networks.cells import OnnxNode, cells
from fedprognos.networks.reservoir import WARM_UP, Reservoir, reservoir_of
from fedprognos.prognosis.onnx_builder import OUTPUTS, SCALED, STATE, STATE_AFTER, Graph

RESERVOIR = "reservoir"


def add_network(graph: Graph, network: Network, recipe: Recipe) -> None:
    """Add what the layers, the reservoir and the head of a network do, time first as ONNX wants it.

    Windows begin at rest and are answered at their last row; lives go on from states and are answered at every row.
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
    said = graph.constant("head.bias", network.weights["head.bias"])
    for part, features in seen:
        slopes = graph.constant(f"head.{part}", network.weights[f"head.{part}"].T)
        said = graph.add("Add", [said, graph.add("MatMul", [features, slopes], f"head_{part}")], f"head_with_{part}")
    if not life:
        graph.add("Squeeze", [said, graph.integers(1)], OUTPUTS)
        return
    by_time = graph.add("Squeeze", [said, graph.integers(2)], "outputs_by_time")
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
    found = {name: f"given_{name}" for name in names}
    for name in names[: len(spec.widths) * len(node.states)]:
        new = graph.add("IsNaN", [f"given_{name}"], f"new_{name}")
        zero = graph.constant("zero", np.zeros(1, dtype=np.float32))
        found[name] = graph.add("Where", [new, zero, f"given_{name}"], f"before_{name}")
    return found


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
            own = [before[f"{name}_{k}"] for name in node.states]
            inputs += ["", *(graph.add("Unsqueeze", [name, graph.integers(0)], f"first_{name}") for name in own)]
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
            then_branch=begin.made("begin", [], ends[:1]),
            else_branch=go_on.made("go_on", [], ends[1:]),
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
    heard = step.add("ReduceSum", [weighed, graph.integers(2)], f"{name}_heard", keepdims=0)
    driven = step.add("Add", [step.add("MatMul", [row, "reservoir.inputs"], f"{name}_in"), heard], f"{name}_sum")
    moved = step.add("Sub", [step.add("Tanh", [driven], f"{name}_tanh"), state], f"{name}_moved")
    step.add("Add", [state, step.add("Mul", [moved, "reservoir.leaks"], f"{name}_leaked")], after)
    trace = step.add("Identity", [after], f"{name}_trace")
    sizes: tuple[str, int] = ("batch", body.units)
    inputs = [graph.floats(state, sizes), graph.floats(row, ["batch", body.inputs.shape[1]])]
    return step.made(name, inputs, [graph.floats(after, sizes), graph.floats(trace, sizes)])
