"""The anatomy describes the network it is the anatomy of."""

from __future__ import annotations

import numpy as np
import pytest

from fedprognos.errors import ConfigError, DataError
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.anatomy import Axis, anatomy_of
from refusals import refuses

SPECS = [
    NetworkSpec(inputs=3, widths=(5,), cell=cell, input_width=width)
    if layers == 1
    else NetworkSpec(inputs=3, widths=(5, 4, 6), cell=cell, input_width=width)
    for cell in ("lstm", "gru")
    for layers in (1, 3)
    for width in (None, 7)
]


def weights_and_anatomy(spec):
    return Network.seeded(spec, 0).weights, spec.anatomy


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_tensor_is_described_in_the_order_of_the_network(spec):
    weights, anatomy = weights_and_anatomy(spec)
    assert list(anatomy.axes) == list(weights)
    assert [name for layer in anatomy.layers for name in layer.tensors] == list(weights)
    assert len(anatomy.layers) == spec.layers
    for name, tensor in weights.items():
        assert len(anatomy.axes[name]) == tensor.ndim


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_widths_are_read_off_the_tensors(spec):
    weights, anatomy = weights_and_anatomy(spec)
    expected = {f"recurrent.{k}": width for k, width in enumerate(spec.widths)}
    if spec.input_width is not None:
        expected["input"] = spec.input_width
    assert anatomy.widths(weights) == expected
    assert set(anatomy.groups) == set(expected)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_layer_but_the_head_has_signatures(spec):
    weights, anatomy = weights_and_anatomy(spec)
    inputs = spec.inputs
    for layer in anatomy.layers[:-1]:
        width = anatomy.widths(weights)[layer.group]
        dimensions = {"linear": inputs + 1, "lstm": 4 * inputs + 4, "gru": 3 * inputs + 4}[layer.cell]
        assert layer.signature(weights).shape == (width, dimensions)
        inputs = width
    with refuses(ConfigError, "head"):
        anatomy.layers[-1].signature(weights)


def test_both_axes_of_the_recurrent_weights_belong_to_the_layer():
    anatomy = anatomy_of("gru", 2, True)
    assert anatomy.axes["recurrent.0.weight_hh_l0"] == (Axis("recurrent.0", 3), Axis("recurrent.0"))
    assert anatomy.axes["recurrent.0.weight_ih_l0"] == (Axis("recurrent.0", 3), Axis("input"))
    assert anatomy.axes["head.weight"] == (Axis(None), Axis("recurrent.1"))
    assert anatomy_of("lstm", 1, False).axes["recurrent.0.weight_ih_l0"] == (Axis("recurrent.0", 4), Axis(None))


def test_layers_follow_each_other():
    anatomy = anatomy_of("lstm", 2, True)
    names = [layer.name for layer in anatomy.layers]
    assert names == ["input", "recurrent.0", "recurrent.1", "head"]
    assert [after.name for layer in anatomy.layers if (after := anatomy.after(layer))] == names[1:]


def test_input_layer_signature_is_weights_and_bias():
    layer = anatomy_of("lstm", 1, True).layers[0]
    tensors = {"input.weight": np.array([[1.0, 2.0]]), "input.bias": np.array([3.0])}
    assert layer.signature(tensors).tolist() == [[1, 2, 3]]


def test_what_does_not_fit_is_refused():
    spec = SPECS[0]
    weights, anatomy = weights_and_anatomy(spec)
    with refuses(DataError, "'recurrent.0.bias_ih_l0'"):
        anatomy.widths({**weights, "recurrent.0.bias_ih_l0": np.zeros(7)})
    with refuses(DataError, "'head.weight'", 3):
        anatomy.widths({"head.weight": np.zeros((1, 2, 3))})
    with refuses(DataError, "'tail'"):
        anatomy.widths({"tail": np.zeros(1)})
    with refuses(DataError, "'recurrent.0.weight_hh_l0'"):
        anatomy.layers[0].signature({"recurrent.0.weight_ih_l0": np.zeros((4, 2))})
    with refuses(ConfigError, "cell"):
        anatomy_of("rnn", 1, False)
    with refuses(ConfigError, 0):
        anatomy_of("lstm", 0, False)
    with refuses(ConfigError, "head"):
        anatomy.layers[-1].recurrent(weights)
