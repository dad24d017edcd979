"""The properties of matching and matched averaging on real networks."""

from __future__ import annotations

import numpy as np
import pytest
from truth import known_clients, pair_f1

from fedprognos.federation.averages import aggregators, average
from fedprognos.matching import match
from fedprognos.networks.anatomy import anatomy_of, move, slice_neurons
from networks import SPECS, anatomy_for, federate, outputs, shuffled, trained_like

every_network = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


@every_network
@pytest.mark.parametrize("by_all", [False, True], ids=["ih", "ih+hh"])
def test_permuted_copies_give_the_function_back_where_fedavg_fails(spec, by_all):
    anatomy = anatomy_for(spec)
    weights = trained_like(spec, seed=1)
    clients = {f"c{j}": shuffled(weights, anatomy, seed=j)[0] for j in range(4)}
    expected = outputs(spec, anatomy, weights)
    for own in clients.values():
        np.testing.assert_allclose(outputs(spec, anatomy, own), expected, atol=1e-5)

    federated, _, widths = federate(clients, anatomy, by_all=by_all)
    assert widths == anatomy.widths(weights)
    np.testing.assert_allclose(outputs(spec, anatomy, federated), expected, atol=1e-5)

    coordinatewise = average(clients, anatomy)
    assert np.abs(outputs(spec, anatomy, coordinatewise) - expected).max() > 0.1


@every_network
@pytest.mark.parametrize("how", aggregators)
def test_every_average_of_permuted_copies_is_the_network(spec, how):
    anatomy = anatomy_for(spec)
    weights = trained_like(spec, seed=1)
    clients = {f"c{j}": shuffled(weights, anatomy, seed=j)[0] for j in range(5)}
    _, places, widths = federate(clients, anatomy)
    federated = average(clients, anatomy, places, widths, how=how, sizes=dict.fromkeys(clients, 7), ratio=0.0)
    np.testing.assert_allclose(outputs(spec, anatomy, federated), outputs(spec, anatomy, weights), atol=1e-5)


@every_network
@pytest.mark.parametrize("seed", range(3))
def test_permuting_one_client_does_not_change_the_federated_function(spec, seed):
    anatomy = anatomy_for(spec)
    rng = np.random.default_rng(seed)
    base = trained_like(spec, seed)
    clients = {
        f"c{j}": {name: (a + rng.normal(0, 0.1, a.shape)).astype("f4") for name, a in base.items()} for j in range(3)
    }
    before, _, widths = federate(clients, anatomy)
    clients["c1"], _ = shuffled(clients["c1"], anatomy, seed + 10)
    after, _, same = federate(clients, anatomy)
    assert widths == same
    np.testing.assert_allclose(outputs(spec, anatomy, after), outputs(spec, anatomy, before), atol=1e-5)


@every_network
def test_zero_padding_leaves_the_output_unchanged(spec):
    anatomy = anatomy_for(spec)
    weights = trained_like(spec, seed=2)
    rng = np.random.default_rng(0)
    widths = {group: width + 5 for group, width in anatomy.widths(weights).items()}
    places = {group: rng.permutation(widths[group])[:width] for group, width in anatomy.widths(weights).items()}
    padded = move(weights, anatomy, places, widths)
    assert anatomy.widths(padded) == widths
    np.testing.assert_allclose(outputs(spec, anatomy, padded), outputs(spec, anatomy, weights), atol=1e-5)
    for name, tensor in slice_neurons(padded, anatomy, places).items():
        np.testing.assert_array_equal(tensor, weights[name])


@every_network
@pytest.mark.parametrize("how", ["mean", "weighted"])
def test_without_any_match_the_output_is_the_mean_of_the_outputs(spec, how):
    anatomy = anatomy_for(spec)
    clients = {f"c{j}": trained_like(spec, seed=j) for j in range(3)}
    sizes = {"c0": 10, "c1": 30, "c2": 60}
    own = anatomy.widths(clients["c0"])
    places = {
        name: {group: np.arange(width) + j * width for group, width in own.items()} for j, name in enumerate(clients)
    }
    federated = average(
        clients, anatomy, places, {group: 3 * width for group, width in own.items()}, how=how, sizes=sizes
    )
    each = np.stack([outputs(spec, anatomy, weights) for weights in clients.values()])
    share = np.array(list(sizes.values())) / 100 if how == "weighted" else np.full(3, 1 / 3)
    np.testing.assert_allclose(outputs(spec, anatomy, federated), share @ each, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_three_networks_with_shared_and_private_neurons_are_matched(seed):
    """Fourteen inputs and four gates: D = 60, the layer of the paper's engine model."""
    vectors, truth = known_clients(seed, shared=40, private=(24, 24, 24), noise=0.3)
    layer = anatomy_of("lstm", 1, False).layers[0]
    clients = {}
    for name, rows in vectors.items():
        neurons = len(rows)
        gates = rows[:, :56].reshape(neurons, 4, 14).transpose(1, 0, 2).reshape(4 * neurons, 14)
        biases = rows[:, 56:].T.reshape(-1)
        rng = np.random.default_rng(seed)
        recurrent = rng.normal(0, 0.1, (4 * neurons, neurons))
        tensors = (gates, recurrent, 0.3 * biases, 0.7 * biases)
        clients[name] = dict(zip(layer.tensors, (t.astype("f4") for t in tensors), strict=True))
    signatures = {name: layer.signature(tensors) for name, tensors in clients.items()}
    np.testing.assert_allclose(signatures["c0"], vectors["c0"], atol=1e-6)
    found = match(signatures)
    assert pair_f1(found.assignments, truth) >= 0.99
    assert found.size == 40 + 3 * 24
