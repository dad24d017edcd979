"""A bundle as one ONNX graph: raw rows in, health out.

Scaling is done in float64, as the recipe does it: sensors far from zero would lose in float32 the digits that matter.
The tensors "scaled" and "outputs" mark where the network begins and ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MissingExtraError
from fedprognos.features import Recipe
from fedprognos.networks import Bundle

if TYPE_CHECKING:
    import onnx

OPSET, IR_VERSION = 17, 8
"""Old enough for runtimes of 2022."""
GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}
"""ONNX's order of the gates among torch's: input, output, forget, cell; update, reset, new."""
SCALED, OUTPUTS = "scaled", "outputs"
Parts = Sequence[str]


def load_onnx() -> Any:
    """The onnx package, or a word on how to install it."""
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "edge", "ONNX export") from None
    return onnx


class _Graph:
    """Nodes and constants as they are added; every method returns the name of what it adds."""

    def __init__(self) -> None:
        self.onnx = load_onnx()
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, array: NDArray[Any]) -> str:
        self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def axes(self, *values: int) -> str:
        return self.constant("axes_" + "_".join(map(str, values)), np.array(values, dtype=np.int64))

    def add(self, kind: str, inputs: Parts, output: str, **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output


def build_graph(bundle: Bundle) -> onnx.ModelProto:
    """The graph of a bundle: inputs `sensors` (B, T, C) and, where the recipe has settings, `settings` (B, T, S), both
    float64 in the recipe's order; output `health` (B,), float64."""
    graph = _Graph()
    recipe, helper, double = bundle.recipe, graph.onnx.helper, graph.onnx.TensorProto.DOUBLE
    _scale(graph, recipe)
    _network(graph, bundle)
    _decode(graph, recipe)
    shapes = {"sensors": len(recipe.sensors), "settings": len(recipe.settings)}
    inputs = [
        helper.make_tensor_value_info(name, double, ["batch", recipe.window, width])
        for name, width in shapes.items()
        if width
    ]
    output = helper.make_tensor_value_info("health", double, ["batch"])
    made = helper.make_graph(graph.nodes, "fedprognos", inputs, [output], list(graph.constants.values()))
    model: onnx.ModelProto = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="fedprognos"
    )
    helper.set_model_props(model, _properties(bundle))
    graph.onnx.checker.check_model(model, full_check=True)
    return model


def _properties(bundle: Bundle) -> dict[str, str]:
    recipe = bundle.recipe
    return {
        "recipe": recipe.to_json(),
        "calibration": "" if bundle.calibration is None else bundle.calibration.model_dump_json(),
        "sensors": json.dumps(recipe.sensors),
        "settings": json.dumps(recipe.settings),
        "window": str(recipe.window),
        "target": recipe.target,
        "target_unit": recipe.target_unit,
        "time_unit": recipe.time_unit,
    }


def _scale(graph: _Graph, recipe: Recipe) -> None:
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
        parts.append(graph.add("Gather", [table, "condition"], "told_condition", axis=0))
    joined = graph.add("Concat", parts, "joined", axis=2) if len(parts) > 1 else parts[0]
    graph.add("Cast", [joined], SCALED, to=graph.onnx.TensorProto.FLOAT)


def _condition(graph: _Graph, recipe: Recipe) -> str:
    """Index of each row's operating condition, the nearest where it is unknown: rounding, then distances."""
    known = np.array(recipe.condition_keys, dtype=np.float64)
    span = np.ptp(known, axis=0)
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
        "Sub", [graph.add("Unsqueeze", [rounded, graph.axes(2)], "keys"), graph.constant("known", known)], "apart"
    )
    relative = graph.add("Div", [apart, graph.constant("span", np.where(span > 0, span, 1.0))], "relative")
    distance = graph.add(
        "ReduceSum", [graph.add("Mul", [relative, relative], "squared"), graph.axes(3)], "far", keepdims=0
    )
    return graph.add("ArgMin", [distance], "condition", axis=2, keepdims=0)


def _network(graph: _Graph, bundle: Bundle) -> None:
    """The layers of :class:`fedprognos.networks.HealthNetwork`, time first as ONNX wants it."""
    spec, weights = bundle.network.spec, bundle.network.weights
    x = graph.add("Transpose", [SCALED], "by_time", perm=[1, 0, 2])
    if spec.input_width is not None:
        kernel = graph.constant("input.weight", weights["input.weight"].T)
        x = graph.add("MatMul", [x, kernel], "input_product")
        x = graph.add("Add", [x, graph.constant("input.bias", weights["input.bias"])], "input_sum")
        x = graph.add("Relu", [x], "input_layer")
    for k, width in enumerate(spec.widths):
        tensors = [
            _gates(weights[f"recurrent.{k}.{name}_l0"], spec.cell)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        inputs = [
            x,
            graph.constant(f"recurrent.{k}.W", tensors[0][None]),
            graph.constant(f"recurrent.{k}.R", tensors[1][None]),
            graph.constant(f"recurrent.{k}.B", np.concatenate(tensors[2:])[None]),
        ]
        last = k == len(spec.widths) - 1
        outputs = ["", f"hidden_{k}"] if last else [f"sequence_{k}"]
        more = {"linear_before_reset": 1} if spec.cell == "gru" else {}
        graph.nodes.append(
            graph.onnx.helper.make_node(
                spec.cell.upper(), inputs, outputs, name=f"recurrent_{k}", hidden_size=width, **more
            )
        )
        x = graph.add("Squeeze", [outputs[-1], graph.axes(0 if last else 1)], f"layer_{k}")
    head = graph.add("MatMul", [x, graph.constant("head.weight", weights["head.weight"].T)], "head_product")
    head = graph.add("Add", [head, graph.constant("head.bias", weights["head.bias"])], "head")
    graph.add("Squeeze", [head, graph.axes(1)], OUTPUTS)


def _gates(tensor: NDArray[np.float32], cell: str) -> NDArray[np.float32]:
    parts = np.split(tensor, len(GATES[cell]))
    return np.concatenate([parts[k] for k in GATES[cell]])


def _decode(graph: _Graph, recipe: Recipe) -> None:
    """Outputs to health, as :meth:`Recipe.decode`."""
    wide = graph.add("Cast", [OUTPUTS], "wide", to=graph.onnx.TensorProto.DOUBLE)
    spread = graph.add("Mul", [wide, graph.constant("label_std", np.array(recipe.label_std))], "spread")
    level = graph.add("Add", [spread, graph.constant("label_mean", np.array(recipe.label_mean))], "level")
    bounds = [graph.constant("lowest", np.array(0.0))]
    if recipe.cap is not None:
        bounds.append(graph.constant("highest", np.array(float(recipe.cap))))
    graph.add("Clip", [level, *bounds], "health")
