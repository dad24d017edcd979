"""Matching recurrent layers by their signatures."""

from __future__ import annotations

import numpy as np
import pytest

from fedprognos.matching import Gates, RecurrentWeights, match, match_recurrent, recurrent_signature

GATES = {"lstm": 4, "gru": 3}


class Layer:
    """A recurrent layer gate by gate, that can be permuted, cut and shaken."""

    def __init__(self, ih, hh, b_ih, b_hh):
        self.parts = [ih, hh, b_ih, b_hh]

    @classmethod
    def random(cls, rng, cell, width, inputs):
        U, bound = GATES[cell], 1 / np.sqrt(width)
        shapes = [(U, width, inputs), (U, width, width), (U, width), (U, width)]
        return cls(*(rng.uniform(-bound, bound, shape) for shape in shapes))

    def taking(self, order):
        ih, hh, b_ih, b_hh = self.parts
        return Layer(ih[:, order], hh[:, order][:, :, order], b_ih[:, order], b_hh[:, order])

    def shaken(self, rng, share):
        return Layer(*(part + rng.normal(0, share * part.std(), part.shape) for part in self.parts))

    @property
    def weights(self):
        return RecurrentWeights(*(part.reshape(-1, *part.shape[2:]) for part in self.parts))


def recovered(found, orders):
    """The share of neurons that are matched with the same neuron of the first client."""
    names = list(orders)
    true = {int(o): int(p) for o, p in zip(orders[names[0]], found.assignments[names[0]], strict=True)}
    hits = [true[int(o)] == p for n in names[1:] for o, p in zip(orders[n], found.assignments[n], strict=True)]
    return np.mean(hits)


def noisy_copies(seed, cell, width, inputs, noise, count=3):
    rng = np.random.default_rng(seed)
    layer = Layer.random(rng, cell, width, inputs)
    orders = {f"c{j}": rng.permutation(width) for j in range(count)}
    return {name: layer.shaken(rng, noise).taking(order).weights for name, order in orders.items()}, orders


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("seed", range(3))
def test_recurrent_weights_recover_what_two_inputs_cannot(cell, seed):
    clients, orders = noisy_copies(seed, cell, width=64, inputs=2, noise=0.8)
    by_inputs = match_recurrent(clients, cell=cell, signature="ih")
    by_all = match_recurrent(clients, cell=cell, signature="ih+hh")
    assert recovered(by_inputs, orders) < 0.95
    assert recovered(by_all, orders) == 1.0
    assert by_all.size == 64
    assert 2 <= by_all.diagnostics.rounds <= 6


@pytest.mark.parametrize("cell", GATES)
def test_ih_is_the_plain_matching_of_the_signatures(cell):
    clients, _ = noisy_copies(0, cell, width=12, inputs=5, noise=0.3)
    signatures = {n: recurrent_signature(w.weight_ih, w.bias_ih, w.bias_hh, cell) for n, w in clients.items()}
    assert signatures["c0"].shape == (12, {"lstm": 4 * 5 + 4, "gru": 3 * 5 + 4}[cell])
    one, other = match_recurrent(clients, cell=cell, signature="ih"), match(signatures)
    for name in clients:
        np.testing.assert_array_equal(one.assignments[name], other.assignments[name])


def test_shifting_weight_between_the_two_biases_of_a_lstm_changes_nothing():
    rng = np.random.default_rng(0)
    layer = Layer.random(rng, "lstm", 10, 3)
    ih, hh, b_ih, b_hh = layer.parts
    shift = rng.normal(size=b_ih.shape)
    other = Layer(ih, hh, b_ih + shift, b_hh - shift)
    found = match_recurrent({"a": layer.weights, "b": other.weights})
    np.testing.assert_array_equal(found.assignments["a"], found.assignments["b"])


def test_n_gate_of_a_gru_keeps_its_biases_apart():
    signature = recurrent_signature(np.zeros((3, 1)), [1.0, 2.0, 3.0], [10.0, 20.0, 30.0], "gru")
    assert signature.tolist() == [[0, 0, 0, 11, 22, 3, 30]]


@pytest.mark.parametrize("cell", GATES)
def test_columns_a_client_lacks_do_not_count_against_it(cell):
    rng = np.random.default_rng(1)
    layer = Layer.random(rng, cell, 40, 2)
    orders = {"wide": np.arange(40), "half": rng.permutation(40)[:20], "third": rng.permutation(40)[:13]}
    clients = {name: layer.taking(order).shaken(rng, 0.3).weights for name, order in orders.items()}
    found = match_recurrent(clients, cell=cell)
    assert found.size == 40
    assert recovered(found, orders) == 1.0


def test_a_previous_layer_is_the_anchor():
    rng = np.random.default_rng(2)
    layer = Layer.random(rng, "lstm", 30, 2)
    order = rng.permutation(30)[:18]
    found = match_recurrent(
        {"a": layer.taking(order).shaken(rng, 0.3).weights}, anchor=layer.weights, anchor_counts=np.full(30, 2)
    )
    np.testing.assert_array_equal(found.assignments["a"], order)
    assert found.counts.tolist() == [3 if i in order else 2 for i in range(30)]


def test_the_order_of_arrival_and_of_neurons_changes_nothing():
    clients, _ = noisy_copies(4, "lstm", width=16, inputs=2, noise=0.3)
    one = match_recurrent(clients)
    other = match_recurrent(dict(reversed(clients.items())))
    for name in clients:
        np.testing.assert_array_equal(one.assignments[name], other.assignments[name])


def test_a_cell_of_another_make_is_matched_by_its_gates():
    clients, orders = noisy_copies(5, "gru", width=20, inputs=3, noise=0.3)
    by_name, by_gates = (match_recurrent(clients, cell=cell) for cell in ("gru", Gates(3, separate=(2,))))
    assert recovered(by_gates, orders) == 1.0
    assert by_name.gain == by_gates.gain
    rng = np.random.default_rng(0)
    one = [rng.normal(size=shape) for shape in [(2, 9, 2), (2, 9, 9), (2, 9), (2, 9)]]
    found = match_recurrent(
        {"a": Layer(*one).weights, "b": Layer(*one).taking(np.arange(9)[::-1]).weights}, cell=Gates(2)
    )
    assert found.assignments["b"].tolist() == list(range(9))[::-1]
