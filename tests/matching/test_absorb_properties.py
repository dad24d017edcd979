"""What absorption promises, on recurrent networks that are really run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import (
    GATES,
    permuted,
    plain,
    random_layers,
    run,
    side_by_side,
    solved_head,
    sums_of,
    typed,
    width_of,
)

from fedprognos.errors import ConfigError, DataError
from fedprognos.matching import LinearWeights, OutputSums, RecurrentWeights, absorb, contributions
from refusals import refuses

SHAPES = {
    "one layer": ([6], None),
    "stacked": ([5, 4], None),
    "input layer": ([5], 4),
    "stacked on an input layer": ([4, 4], 3),
}
seeds = st.integers(0, 2**32 - 1)
shapes = st.sampled_from(list(SHAPES.values()))
cells = st.sampled_from(list(GATES))


def sequences(rng, count=15, steps=25, inputs=3):
    x = rng.normal(size=(count, steps, inputs))
    return x, np.cumsum(x[:, :, 0], axis=1) / 4 + np.tanh(x[:, :, 1])


def shuffled(layers, rng):
    return permuted(layers, [rng.permutation(width_of(layer)) for layer in layers])


def recovered(found, layers, x):
    """All outputs of the large network's last layer, as the small one's mix to."""
    return run(plain(found.layers), x)[-1] @ found.mixtures[-1].T, run(layers, x)[-1]


@settings(max_examples=30, deadline=None)
@given(seeds, cells, shapes, st.integers(2, 5), st.sampled_from([0.0, 1e-9, 10**-3.5, 1.0, 100.0]), st.booleans())
def test_permuted_copies_give_the_function_back_whatever_the_ridge(seed, cell, shape, count, ridge, single):
    rng = np.random.default_rng(seed)
    network = random_layers(rng, cell, 3, *shape, gain=1.2)
    x, y = sequences(rng)
    layers = side_by_side([shuffled(network, rng) for _ in range(count)])
    if single:
        layers = [{name: array.astype("f4") for name, array in layer.items()} for layer in layers]
    found = absorb(typed(layers), sums_of(layers, x, y), width=[width_of(layer) for layer in network], ridge=ridge)
    for absorbed in found.absorbed:
        assert all(a.redundant for a in absorbed)
        assert all(a.r2 is None or a.r2 > 1 - 1e-6 for a in absorbed)
    fresh, _ = sequences(np.random.default_rng(seed + 1))
    np.testing.assert_allclose(*recovered(found, layers, fresh), atol=1e-5)
    # Every feature of the one network is there once.
    own, one = run(plain(found.layers), fresh)[-1], run(network, fresh)[-1]
    distance = np.abs(own[..., :, None] - one[..., None, :]).max(axis=(0, 1))
    assert distance.min(axis=0).max() < 1e-5


@settings(max_examples=20, deadline=None)
@given(seeds, cells, st.sampled_from([1e-9, 10**-3.5, 10.0]))
def test_negated_copies_are_absorbed_first_and_change_nothing(seed, cell, ridge):
    rng = np.random.default_rng(seed)
    one = random_layers(rng, cell, 3, [6])
    other = random_layers(rng, cell, 3, [4])
    x, y = sequences(rng)
    layers = side_by_side([one, negated(one[0], cell), other])
    outputs = run(layers, x)[0]
    np.testing.assert_allclose(outputs[..., :6], -outputs[..., 6:12], atol=1e-12)
    found = absorb(typed(layers), sums_of(layers, x, y), width=10, ridge=ridge)
    assert all(a.redundant and a.neuron < 12 for a in found.absorbed[0])
    assert [a.weights[0] for a in found.absorbed[0]] == pytest.approx([-1.0] * 6)
    assert {abs(a.neuron - a.partners[0]) for a in found.absorbed[0]} == {6}
    np.testing.assert_allclose(*recovered(found, layers, x), atol=1e-5)


def negated(layer, cell):
    """The same layer with every output turned round: its candidate gate, and how outputs are read."""
    gates, width, candidate = GATES[cell], width_of(layer), 2
    new = {name: array.reshape(gates, width, *array.shape[1:]).copy() for name, array in layer.items()}
    new["weight_hh"] *= -1
    for array in new.values():
        array[candidate] *= -1
    return [{name: array.reshape(-1, *array.shape[2:]) for name, array in new.items()}]


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_exact_combinations_of_several_go_first(seed):
    rng = np.random.default_rng(seed)
    h = np.tanh(rng.normal(size=(20, 30, 8)))
    h[..., 3] = 0.5 * h[..., 0] - 0.25 * h[..., 1]
    h[..., 6] = 0.3 * h[..., 2] + 0.3 * h[..., 3] + 0.1 * h[..., 4]
    y = h @ rng.normal(size=8) + rng.normal(size=(20, 30))
    sums = OutputSums.from_outputs(h, y)
    layer = RecurrentWeights(*(rng.normal(size=shape) for shape in ((24, 2), (24, 8), 24, 24)))
    found = absorb([layer], [sums], width=6, ridge=10.0)
    assert all(a.redundant for a in found.absorbed[0])
    np.testing.assert_allclose(h[..., found.kept[0]] @ found.mixtures[0].T, h, atol=1e-6)
    assert not absorb([layer], [sums], width=5).absorbed[0][-1].redundant


@settings(max_examples=12, deadline=None)
@given(seeds, cells, shapes)
def test_keeping_everything_is_the_network_itself(seed, cell, shape):
    rng = np.random.default_rng(seed)
    layers = side_by_side([random_layers(rng, cell, 3, *shape) for _ in range(2)])
    x, y = sequences(rng)
    found = absorb(typed(layers), sums_of(layers, x, y), width=1000)
    assert found.absorbed == ((),) * len(layers)
    for mine, theirs, kept in zip(plain(found.layers), layers, found.kept, strict=True):
        np.testing.assert_array_equal(kept, np.arange(width_of(theirs)))
        for name in theirs:
            np.testing.assert_array_equal(mine[name], theirs[name])


@settings(max_examples=20, deadline=None)
@given(seeds, cells, shapes, st.integers(1, 10))
def test_order_of_clients_and_of_neurons_changes_no_prediction(seed, cell, shape, width):
    rng = np.random.default_rng(seed)
    # Clients of unequal widths.
    networks = [random_layers(rng, cell, 3, [w + j for w in shape[0]], shape[1]) for j in range(3)]
    x, y = sequences(rng)
    other = [shuffled(networks[j], rng) for j in rng.permutation(3)]
    predictions = []
    for clients in (networks, other):
        layers = side_by_side(clients)
        found = absorb(typed(layers), sums_of(layers, x, y), width=width)
        h = run(plain(found.layers), x)[-1].reshape(-1, found.widths[-1])
        v, intercept = solved_head(h, y.ravel(), 1e-3)
        predictions.append(h @ v + intercept)
    np.testing.assert_allclose(*predictions, atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([1e-6, 10**-3.5, 1.0]))
def test_predicted_losses_are_those_of_a_refit_without_the_neurons(seed, ridge):
    rng = np.random.default_rng(seed)
    layers = side_by_side([random_layers(rng, "gru", 3, [6]) for _ in range(2)])
    x, y = sequences(rng)
    sums = sums_of(layers, x, y)
    found = absorb(typed(layers), sums, width=3, ridge=ridge)
    h, labels = run(layers, x)[-1].reshape(-1, 12), y.ravel()
    penalty = ridge * np.mean(np.square(h))
    left = list(range(12))
    for width, loss in found.losses[0].items():
        v, intercept = solved_head(h[:, left], labels, penalty)
        refit = np.mean(np.square(h[:, left] @ v + intercept - labels)) + penalty * v @ v
        assert len(left) == width
        assert loss == pytest.approx(refit, rel=1e-6)
        if width == 3:
            break
        left.remove(found.absorbed[0][12 - width].neuron)


@settings(max_examples=10, deadline=None)
@given(seeds, cells)
def test_dead_neurons_go_first_and_change_nothing(seed, cell):
    rng = np.random.default_rng(seed)
    network = random_layers(rng, cell, 3, [7])[0]
    for array in network.values():  # without a candidate there is never any output
        array.reshape(GATES[cell], 7, *array.shape[1:])[2, [1, 4]] = 0.0
    x, y = sequences(rng)
    sums = sums_of([network], x, y)
    assert (sums[0].S.diagonal()[[1, 4]] == 0).all()
    found = absorb(typed([network]), sums, width=5)
    assert sorted(a.neuron for a in found.absorbed[0]) == [1, 4]
    assert all(a.redundant and a.r2 is None for a in found.absorbed[0])
    np.testing.assert_allclose(*recovered(found, [network], x), atol=1e-12)


def test_neurons_stuck_at_a_value_are_called_constant():
    rng = np.random.default_rng(0)
    h = np.tanh(rng.normal(size=(10, 40, 4)))
    h[..., 2] = 0.7
    layer = RecurrentWeights(*(rng.normal(size=shape) for shape in ((12, 2), (12, 4), 12, 12)))
    found = absorb([layer], [OutputSums.from_outputs(h, h[..., 0])], width=1)
    assert {a.neuron: a.r2 for a in found.absorbed[0]}[2] is None


@pytest.mark.parametrize("cell", GATES)
def test_a_small_network_stays_close_to_keeping_everything(cell):
    """Independent networks of three clients, absorbed to one client's width: hardly worse than all of them."""
    rng = np.random.default_rng(3)
    networks = [random_layers(rng, cell, 4, [24]) for _ in range(3)]
    layers = side_by_side(networks)
    x, y = sequences(rng, 60, 40, 4)
    fresh, truth = sequences(rng, 60, 40, 4)
    found = absorb(typed(layers), sums_of(layers, x, y), width=24)
    errors = {}
    for name, body in {"all": layers, "absorbed": plain(found.layers), "one": networks[0]}.items():
        h = run(body, x)[-1]
        v, intercept = solved_head(h.reshape(-1, h.shape[-1]), y.ravel(), 1e-4)
        errors[name] = np.sqrt(np.mean(np.square(run(body, fresh)[-1] @ v + intercept - truth)))
    assert errors["absorbed"] < errors["one"]
    assert errors["absorbed"] < 1.15 * errors["all"]


def test_the_predicted_losses_go_on_below_the_width_asked_for():
    rng = np.random.default_rng(0)
    layers = side_by_side([random_layers(rng, "gru", 3, [8]) for _ in range(3)])
    x, y = sequences(rng, 30)
    sums = sums_of(layers, x, y)
    small, smaller = (absorb(typed(layers), sums, width=width) for width in (16, 5))
    assert list(small.losses[0]) == list(range(24, 0, -1))
    assert small.losses == smaller.losses
    assert small.absorbed[0] == smaller.absorbed[0][:8]
    assert list(small.losses[0].values()) == sorted(small.losses[0].values())


def test_the_head_may_read_other_steps_and_features_that_stay():
    rng = np.random.default_rng(0)
    layers = side_by_side([random_layers(rng, "gru", 3, [6]) for _ in range(2)])
    x, y = sequences(rng, 200, 15)
    h = run(layers, x)[0]
    row = np.concatenate([h[:, -1], x[:, -1]], axis=1)
    sums, head = OutputSums.from_outputs(h), OutputSums.from_outputs(row, y[:, -1], starts=0)
    found = absorb(typed(layers), [sums], head=head, width=4, ridge=1e-3)
    penalty = 1e-3 * np.mean(np.square(row))
    for left in (range(12), [*found.kept[0]]):
        features = row[:, [*left, 12, 13, 14]]
        v, intercept = solved_head(features, y[:, -1], penalty)
        refit = np.mean(np.square(features @ v + intercept - y[:, -1])) + penalty * v @ v
        assert found.losses[0][len(left)] == pytest.approx(refit, rel=1e-8)


def test_dtypes_and_types_of_layers_stay():
    rng = np.random.default_rng(0)
    layers = side_by_side([random_layers(rng, "gru", 3, [6], 4) for _ in range(2)])
    x, y = sequences(rng)
    single = [{name: array.astype("f4") for name, array in layer.items()} for layer in layers]
    found = absorb(typed(single), sums_of(single, x, y), width=5)
    assert [type(layer) for layer in found.layers] == [LinearWeights, RecurrentWeights]
    assert all(array.dtype == np.float32 for layer in found.layers for array in vars(layer).values())


def test_labels_that_say_nothing_are_no_obstacle():
    rng = np.random.default_rng(0)
    layers = side_by_side([random_layers(rng, "gru", 3, [5]) for _ in range(2)])
    x, _ = sequences(rng)
    found = absorb(typed(layers), sums_of(layers, x, np.zeros(x.shape[:2])), width=4)
    assert found.widths == (4,)
    assert all(np.isfinite(array).all() for array in vars(found.layers[0]).values())


def test_few_rows_leave_no_more_than_they_can_tell_apart():
    rng = np.random.default_rng(0)
    layers = side_by_side([random_layers(rng, "gru", 3, [10]) for _ in range(2)])
    x, y = sequences(rng, 1, 8)
    found = absorb(typed(layers), sums_of(layers, x, y), width=8)
    assert all(a.redundant for a in found.absorbed[0])
    np.testing.assert_allclose(*recovered(found, layers, x), atol=1e-3)


class TestRefusals:
    """What absorb does not take."""

    @pytest.fixture
    def problem(self):
        rng = np.random.default_rng(0)
        layers = side_by_side([random_layers(rng, "gru", 3, [3, 4]) for _ in range(2)])
        x, y = sequences(rng)
        return layers, sums_of(layers, x, y)

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"width": 0}, ("width", 0)),
            ({"width": [3]}, ("width", 1, 2)),
            ({"width": 2, "alpha": -1.0}, ("alpha", -1.0)),
            ({"width": 2, "alpha": np.nan}, ("alpha", "nan")),
            ({"width": 2, "ridge": -1e-3}, ("ridge", -1e-3)),
            ({"width": 1.5}, ("width", 1.5)),
            ({"width": 2, "alpha": "a"}, ("alpha", "'a'")),
            ({"width": 2, "ridge": None}, ("ridge", None)),
        ],
    )
    def test_options(self, problem, options, named):
        with refuses(ConfigError, *named):
            absorb(typed(problem[0]), problem[1], **options)

    def test_arrays_and_sums_that_do_not_fit(self, problem):
        layers, sums = problem
        with refuses(DataError, "2 layers"):
            absorb(typed(layers), sums[1:], width=2)
        with refuses(DataError, "labels"):
            absorb(typed(layers[:1]), sums[:1], width=2)
        with refuses(DataError, "layer 1"):
            absorb(typed(layers), [sums[0], sums[1].take(np.arange(5))], width=2)
        layers[1]["bias_hh"][2] = np.nan
        with refuses(DataError, "layer 1", "bias_hh"):
            absorb(typed(layers), sums, width=2)

    def test_sums_that_no_rows_have(self, problem):
        layers, sums = problem
        sums[1].S[0, 1] = sums[1].S[1, 0] = 2 * sums[1].S[0, 0]
        with refuses(DataError, "layer 1"):
            absorb(typed(layers), sums, width=2)

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"q": np.nan}, "q"),
            ({"yy": np.inf}, "yy"),
            ({"yy": -1.0}, "rows"),
            ({"yy": 0.0}, "rows"),
            ({"starts": -1}, "-1 starts"),
            ({"n": 0, "starts": 0}, "rows"),
            ({"n": None}, "n "),
            ({"y": "a"}, "y "),
        ],
    )
    def test_label_sums_and_counts_that_cannot_be(self, problem, change, named):
        layers, sums = problem
        bad = replace(sums[1], **{k: sums[1].q * v if k == "q" else v for k, v in change.items()})
        for tried in ({"sums": [sums[0], bad]}, {"sums": sums, "head": bad}):
            with refuses(DataError, named):
                absorb(typed(layers), width=2, **tried)
        with refuses(DataError, named):
            contributions(bad, {"a": np.arange(2)})

    def test_a_linear_layer_comes_first(self, problem):
        layers, sums = problem
        width = sums[1].width
        linear = LinearWeights(np.ones((width, sums[0].width)), np.ones(width))
        with refuses(DataError, "layer 1", "linear"):
            absorb([typed(layers)[0], linear], sums, width=2)


@pytest.mark.parametrize("constant", [0.0, 0.1, 0.7, 1.0, 3.0])
def test_labels_that_are_all_the_same_cost_nothing(constant):
    rng = np.random.default_rng(0)
    layer = RecurrentWeights(*(rng.normal(size=shape) for shape in ((36, 2), (36, 12), 36, 36)))
    sums = OutputSums.from_outputs(np.tanh(rng.normal(size=(20, 40, 12))), labels=np.full((20, 40), constant))
    small = absorb([layer], [sums], width=1, ridge=1e-3)
    assert small.widths == (1,)
    assert all(0 <= loss < 1e-9 for loss in small.losses[0].values())
