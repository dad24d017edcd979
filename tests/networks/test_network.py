from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import BundleError
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.module import HealthNetwork
from refusals import refuses

SPECS = [
    NetworkSpec(inputs=3, widths=(8,)),
    NetworkSpec(inputs=3, widths=(8, 5), cell="gru"),
    NetworkSpec(inputs=3, widths=(6, 4), input_width=7),
]


def test_shapes_are_those_of_the_papers_table() -> None:
    L, D = 16, 5
    shapes = {k: tuple(v.shape) for k, v in HealthNetwork(NetworkSpec(inputs=D, widths=(L,))).state_dict().items()}
    assert shapes == {
        "recurrent.0.weight_ih_l0": (4 * L, D),
        "recurrent.0.weight_hh_l0": (4 * L, L),
        "recurrent.0.bias_ih_l0": (4 * L,),
        "recurrent.0.bias_hh_l0": (4 * L,),
        "head.weight": (1, L),
        "head.bias": (1,),
    }


@pytest.mark.parametrize("spec", SPECS)
def test_stages_one_after_another_give_the_whole(spec: NetworkSpec) -> None:
    network = Network.seeded(spec, 1).module()
    x = torch.randn(4, 11, 3)
    whole = network(x)
    assert whole.shape == (4,)
    for cut in range(1, spec.layers):
        torch.testing.assert_close(network.run(network.run(x, 0, cut), cut), whole)
    assert len(network.stages()) == spec.layers


def test_the_network_is_an_lstm_by_hand() -> None:
    network = Network.seeded(NetworkSpec(inputs=2, widths=(3,)), 0)
    w = {k: v.astype(np.float64) for k, v in network.weights.items()}
    x = np.random.default_rng(0).normal(size=(5, 2))
    h, c = np.zeros(3), np.zeros(3)

    def sigmoid(z: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-z))

    for t in range(5):
        z = w["recurrent.0.weight_ih_l0"] @ x[t] + w["recurrent.0.bias_ih_l0"]
        z += w["recurrent.0.weight_hh_l0"] @ h + w["recurrent.0.bias_hh_l0"]
        i, f, g, o = np.split(z, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    expected = w["head.weight"][0] @ h + w["head.bias"][0]
    got = network.module()(torch.from_numpy(x.astype(np.float32))[None]).item()
    assert got == pytest.approx(expected, abs=1e-6)


def test_seeds_decide_the_weights_and_leave_the_global_stream_alone() -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    a, b, c = (Network.seeded(SPECS[0], s, bias=0.5).weights for s in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(np.array_equal(a[k], b[k]) for k in a)
    assert not np.array_equal(a["head.weight"], c["head.weight"])
    assert a["head.bias"][0] == np.float32(0.5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda w: w.pop("head.bias"), ("'head.bias'",)),
        (lambda w: w.update(extra=np.zeros(1, np.float32)), ("'extra'",)),
        (lambda w: w.update({"head.weight": np.zeros((1, 9), np.float32)}), ("'head.weight'", (1, 9))),
        (lambda w: w["head.weight"].fill(np.nan), ("'head.weight'", "NaN")),
        (lambda w: w.update({"head.bias": np.zeros(1)}), ("'head.bias'", "float64")),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(change, named: tuple[object, ...]) -> None:  # type: ignore[no-untyped-def]
    weights = dict(Network.seeded(SPECS[0], 0).weights)
    change(weights)
    with refuses(BundleError, "client a", *named):
        Network(SPECS[0], weights).check("client a")


@pytest.mark.parametrize("spec", SPECS)
def test_shapes_and_parameters_are_known_without_making_the_network(spec: NetworkSpec) -> None:
    module = HealthNetwork(spec)
    assert spec.shapes == {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert spec.parameters == sum(p.numel() for p in module.parameters())


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), spec=st.sampled_from(SPECS), count=st.integers(1, 4))
def test_networks_side_by_side_put_out_their_mean_and_can_be_sliced_apart(
    seed: int, spec: NetworkSpec, count: int
) -> None:
    rng = np.random.default_rng(seed)
    networks = [
        Network.seeded(
            spec.with_widths({f"recurrent.{k}": int(rng.integers(1, 7)) for k in range(len(spec.widths))}), k
        )
        for k in range(count)
    ]
    both = Network.concat(networks).check("concat")
    x = torch.from_numpy(rng.normal(size=(3, 9, 3)).astype(np.float32))
    with torch.no_grad():
        mean = np.mean([network.module()(x).numpy() for network in networks], axis=0)
        np.testing.assert_allclose(both.module()(x).numpy(), mean, atol=1e-5)
    before = {group: sum(n.widths[group] for n in networks[:-1]) for group in both.widths}
    last = both.slice({g: before[g] + np.arange(networks[-1].widths[g]) for g in before})
    for name, tensor in networks[-1].weights.items():
        scale = count if name == "head.weight" else 1
        if name != "head.bias":
            np.testing.assert_allclose(scale * last.weights[name], tensor, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), spec=st.sampled_from(SPECS))
def test_the_order_of_neurons_changes_no_output(seed: int, spec: NetworkSpec) -> None:
    rng = np.random.default_rng(seed)
    network = Network.seeded(spec, seed)
    turned = network.slice({group: rng.permutation(width) for group, width in network.widths.items()}).check("turned")
    x = torch.from_numpy(rng.normal(size=(3, 9, 3)).astype(np.float32))
    with torch.no_grad():
        np.testing.assert_allclose(turned.module()(x).numpy(), network.module()(x).numpy(), atol=1e-5)


def test_a_layer_is_replaced_and_the_next_one_reads_it_in_its_new_places() -> None:
    network = Network.seeded(SPECS[2], 1)
    layer = network.anatomy.layers[0]
    width, places = 9, np.array([8, 0, 3, 1, 5, 2, 7])
    wide = {name: np.zeros((width, *a.shape[1:]), np.float32) for name, a in network.layer(layer).items()}
    for name, array in network.layer(layer).items():
        wide[name][places] = array
    grown = network.with_layer(layer, wide).permute_next(layer, places, width).check("grown")
    assert grown.spec.input_width == width
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 9, 3)).astype(np.float32))
    with torch.no_grad():
        np.testing.assert_allclose(grown.module()(x).numpy(), network.module()(x).numpy(), atol=1e-6)


def test_a_head_is_one_vector_bias_last() -> None:
    network = Network.seeded(SPECS[0], 1, bias=0.25)
    assert network.head[-1] == 0.25
    other = network.with_head(np.arange(9.0))
    assert other.head.tolist() == list(range(9))
    assert other.spec == network.spec
