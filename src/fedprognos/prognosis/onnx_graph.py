"""A bundle as one ONNX graph: raw rows in, health out.

Scaling is done in float64, as the recipe does it: sensors far from zero would lose in float32 the digits that matter.
The tensors "scaled" and "outputs" mark where the network begins and ends.

A model of windows has `sensors` (B, window, C) and, where the recipe has operating settings, `settings` (B, window, S)
as inputs and `health` (B,) as output. A model of whole lives takes any number of further rows (B, T, C) with the
`state` (B, N) that each unit has, NaN for a new unit, and gives `health` (B, T) and `state_after` (B, N).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.features import Recipe
from fedprognos.networks import Bundle
from fedprognos.networks.stepping import Stepper
from fedprognos.prognosis.onnx_builder import OUTPUTS, SCALED, STATE, STATE_AFTER, Graph
from fedprognos.prognosis.onnx_network import add_network

if TYPE_CHECKING:
    import onnx

OPSET, IR_VERSION = 17, 8
"""Old enough for runtimes of 2022."""


def build_graph(bundle: Bundle) -> onnx.ModelProto:
    """The graph of a bundle; all inputs and outputs but states are float64, columns in the recipe's order."""
    graph, recipe = Graph(), bundle.recipe
    _scale(graph, recipe)
    add_network(graph, bundle.network, recipe)
    _decode(graph, recipe)
    rows = "rows" if recipe.life else recipe.window
    shapes = {"sensors": len(recipe.sensors), "settings": len(recipe.settings)}
    inputs = [graph.floats(name, ["batch", rows, width], double=True) for name, width in shapes.items() if width]
    outputs = [graph.floats("health", ["batch", "rows"] if recipe.life else ["batch"], double=True)]
    properties = _properties(bundle)
    if recipe.life:
        steps = Stepper(bundle.network)
        inputs.append(graph.floats(STATE, ["batch", steps.size]))
        outputs.append(graph.floats(STATE_AFTER, ["batch", steps.size]))
        properties |= {"state_size": str(steps.size), "state_digest": steps.digest}
    helper = graph.onnx.helper
    model: onnx.ModelProto = helper.make_model(
        graph.made("fedprognos", inputs, outputs),
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
        "Sub", [graph.add("Unsqueeze", [rounded, graph.integers(2)], "keys"), graph.constant("known", known)], "apart"
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
    bounds = [graph.constant("lowest", np.array(0.0))]
    if recipe.cap is not None:
        bounds.append(graph.constant("highest", np.array(float(recipe.cap))))
    graph.add("Clip", [level, *bounds], "health")
