from __future__ import annotations

import numpy as np
import pytest
import torch

from fedprognos.errors import BundleError
from fedprognos.networks import HealthNetwork, NetworkSpec, network_with, parameters_of, weights_of

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
    network = HealthNetwork.seeded(spec, 1)
    x = torch.randn(4, 11, 3)
    whole = network(x)
    assert whole.shape == (4,)
    for cut in range(1, spec.layers):
        torch.testing.assert_close(network.run(network.run(x, 0, cut), cut), whole)
    assert len(network.stages()) == spec.layers


def test_the_network_is_an_lstm_by_hand() -> None:
    network = HealthNetwork.seeded(NetworkSpec(inputs=2, widths=(3,)), 0)
    w = {k: v.astype(np.float64) for k, v in weights_of(network).items()}
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
    got = network(torch.from_numpy(x.astype(np.float32))[None]).item()
    assert got == pytest.approx(expected, abs=1e-6)


def test_seeds_decide_the_weights_and_leave_the_global_stream_alone() -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    a, b, c = (weights_of(HealthNetwork.seeded(SPECS[0], s, bias=0.5)) for s in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(np.array_equal(a[k], b[k]) for k in a)
    assert not np.array_equal(a["head.weight"], c["head.weight"])
    assert a["head.bias"][0] == np.float32(0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("head.bias"), "'head.bias' is missing"),
        (lambda w: w.update(extra=np.zeros(1, np.float32)), "'extra' does not belong"),
        (lambda w: w.update({"head.weight": np.zeros((1, 9), np.float32)}), r"'head.weight' has shape \(1, 9\)"),
        (lambda w: w["head.weight"].fill(np.nan), "'head.weight' holds NaN"),
        (lambda w: w.update({"head.bias": np.zeros(1)}), "'head.bias' is float64"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(change, message: str) -> None:  # type: ignore[no-untyped-def]
    weights = weights_of(HealthNetwork.seeded(SPECS[0], 0))
    change(weights)
    with pytest.raises(BundleError, match=message):
        network_with(SPECS[0], weights, "client a")


def test_parameters_of_counts_without_making_the_network() -> None:
    for spec in SPECS:
        assert parameters_of(spec) == sum(p.numel() for p in HealthNetwork(spec).parameters())
