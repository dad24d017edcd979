"""Moving, averaging and slicing: numbers that can be checked by hand, and errors that name client and tensor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import ConfigError, DataError
from fedprognos.federation import averages
from fedprognos.federation.averages import aggregators, average
from fedprognos.networks.anatomy import anatomy_of, move, move_inputs, slice_neurons
from refusals import refuses

ANATOMY = anatomy_of("lstm", 2, True)
INPUTS = 3


def random_weights(rng, widths, anatomy=ANATOMY, dtype="f4"):
    """Tensors of these widths."""
    lengths = {None: INPUTS, **widths}
    weights = {}
    for name, axes in anatomy.axes.items():
        shape = [axis.gates * lengths[axis.group] for axis in axes]
        if name.startswith("head"):
            shape[0] = 1
        weights[name] = rng.normal(size=shape).astype(dtype)
    return weights


def random_clients(seed, count=4, dtype="f4"):
    """Clients of several widths, and places for them in a wider model; one neuron of each group is nobody's."""
    rng = np.random.default_rng(seed)
    widths = dict.fromkeys(ANATOMY.groups, 8)
    clients, places = {}, {}
    for j in range(count):
        own = {group: int(rng.integers(1, 8)) for group in ANATOMY.groups}
        clients[f"c{j}"] = random_weights(rng, own, dtype=dtype)
        places[f"c{j}"] = {group: rng.permutation(7)[:width] for group, width in own.items()}
    return clients, places, widths


def by_hand(clients, places, widths, name, statistic):
    """The average of one tensor entry by entry: over the holders of its row, absent inputs being zero."""
    axes = ANATOMY.axes[name]
    moved = {client: move(weights, ANATOMY, places[client], widths)[name] for client, weights in clients.items()}
    result = np.zeros(next(iter(moved.values())).shape)
    for index in np.ndindex(result.shape):
        group = axes[0].group
        holders = [c for c in sorted(clients) if group is None or index[0] % widths[group] in places[c][group]]
        if holders:
            result[index] = statistic(np.array([moved[c][index] for c in holders], float), holders, group)
    return result


def trimmed(values, holders, group):
    out = max(int(0.1 * len(values)), 1) if len(values) >= 3 else 0
    return np.sort(values)[out : len(values) - out].mean()


SIZES = {f"c{j}": 10.0 * (j + 1) for j in range(12)}
STATISTICS = {
    "mean": lambda values, holders, group: values.mean(),
    "weighted": lambda values, holders, group: np.average(values, weights=[SIZES[c] for c in holders]),
    "map": lambda values, holders, group: values.sum() / (len(values) + (0.25 if group else 0.0)),
    "median": lambda values, holders, group: np.median(values),
    "trimmed": trimmed,
}


@pytest.mark.parametrize("how", STATISTICS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 12))
def test_averages_are_over_the_holders_of_the_row(how, seed, count):
    clients, places, widths = random_clients(seed, count)
    found = average(clients, ANATOMY, places, widths, how=how, sizes=SIZES, ratio=0.25)
    for name in ("input.weight", "recurrent.0.weight_ih_l0", "recurrent.1.bias_hh_l0", "head.weight", "head.bias"):
        np.testing.assert_allclose(
            found[name], by_hand(clients, places, widths, name, STATISTICS[how]), rtol=1e-5, atol=1e-6
        )
        assert found[name].dtype == np.float32


def test_every_average_is_tested_here_or_among_the_robust_ones():
    assert set(aggregators) == set(STATISTICS) | {name for name, one in aggregators.items() if one.robust}


def test_order_statistics_do_not_depend_on_the_size_of_blocks(monkeypatch):
    clients, places, widths = random_clients(0)
    whole = average(clients, ANATOMY, places, widths, how="median")
    monkeypatch.setattr(averages, "SORTED_AT_ONCE", 30)
    for name, tensor in average(clients, ANATOMY, places, widths, how="median").items():
        np.testing.assert_array_equal(tensor, whole[name])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_slicing_undoes_moving(seed):
    clients, places, widths = random_clients(seed, count=1)
    moved = move(clients["c0"], ANATOMY, places["c0"], widths)
    assert ANATOMY.widths(moved) == widths
    for name, tensor in slice_neurons(moved, ANATOMY, places["c0"]).items():
        np.testing.assert_array_equal(tensor, clients["c0"][name])
        assert np.count_nonzero(moved[name]) == np.count_nonzero(tensor)


def test_gate_blocks_stay_together():
    anatomy = anatomy_of("gru", 1, False)
    bias = {"recurrent.0.bias_ih_l0": np.array([1.0, 2.0, 10.0, 20.0, 100.0, 200.0])}
    moved = move(bias, anatomy, {"recurrent.0": [2, 0]}, {"recurrent.0": 3})
    assert moved["recurrent.0.bias_ih_l0"].tolist() == [2, 0, 1, 20, 0, 10, 200, 0, 100]


def test_without_places_it_is_fedavg():
    rng = np.random.default_rng(0)
    widths = dict.fromkeys(ANATOMY.groups, 4)
    clients = {name: random_weights(rng, widths) for name in "ba"}
    for name, tensor in average(clients, ANATOMY).items():
        np.testing.assert_allclose(tensor, (clients["a"][name] + clients["b"][name]) / 2, rtol=1e-6)


def test_inputs_of_the_next_layer_move_and_nothing_else():
    weights = random_weights(np.random.default_rng(0), {"input": 2, "recurrent.0": 3, "recurrent.1": 4})
    moved = move_inputs(weights, ANATOMY, ANATOMY.layers[0], [4, 1], 5)
    wide = moved["recurrent.0.weight_ih_l0"]
    assert wide.shape == (12, 5)
    np.testing.assert_array_equal(wide[:, [4, 1]], weights["recurrent.0.weight_ih_l0"])
    assert not wide[:, [0, 2, 3]].any()
    for name in weights.keys() - {"recurrent.0.weight_ih_l0"}:
        np.testing.assert_array_equal(moved[name], weights[name])
    with refuses(ConfigError, "head"):
        move_inputs(weights, ANATOMY, ANATOMY.layers[-1], [0], 1)


def test_order_of_the_clients_changes_no_bit():
    clients, places, widths = random_clients(3)
    one = average(clients, ANATOMY, places, widths)
    other = average(dict(reversed(clients.items())), ANATOMY, places, widths)
    for name, tensor in one.items():
        assert tensor.tobytes() == other[name].tobytes()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_are_in_float64_and_the_result_in_the_clients_dtype(dtype):
    anatomy = anatomy_of("lstm", 1, False)
    values = [1e8, 1.0, -1e8]
    clients = {f"c{j}": {"head.bias": np.array([v], dtype)} for j, v in enumerate(values)}
    found = average(clients, anatomy)["head.bias"]
    assert found.dtype == dtype
    np.testing.assert_allclose(found, 1 / 3, rtol=1e-6)


def test_robust_averages_withstand_one_client_gone_wrong():
    anatomy = anatomy_of("lstm", 1, False)
    clients = {f"c{j}": {"head.bias": np.array([1.0])} for j in range(4)} | {"bad": {"head.bias": np.array([1e9])}}
    assert average(clients, anatomy, how="median")["head.bias"] == [1.0]
    assert average(clients, anatomy, how="trimmed")["head.bias"] == [1.0]


class TestRefusals:
    """Errors name the client and the tensor."""

    def test_unknown_average(self):
        with refuses(ConfigError, "'median'"):
            average({"a": {}}, ANATOMY, how="medain")

    def test_no_clients(self):
        with refuses(DataError):
            average({}, ANATOMY)

    @pytest.mark.parametrize("options", [{"ratio": -1.0}, {"ratio": float("nan")}])
    def test_bad_options(self, options):
        with refuses(ConfigError, "ratio"):
            average({"a": {}}, ANATOMY, **options)

    def test_sizes_are_needed_to_weigh_by_them(self):
        one = {"a": {"head.bias": np.zeros(1)}}
        with refuses(ConfigError, "sizes"):
            average(one, ANATOMY, how="weighted")
        with refuses(ConfigError, "client 'a'"):
            average(one, ANATOMY, how="weighted", sizes={"a": 0})

    @pytest.mark.parametrize(
        ("bad", "named"),
        [
            (np.full((1, 3), np.nan), "NaN"),
            (np.zeros((1, 4)), "3 neurons"),
            (np.zeros(3), "1 axes"),
            (None, "missing"),
        ],
    )
    def test_bad_tensors(self, bad, named):
        good = {"head.bias": np.zeros(1), "head.weight": np.zeros((1, 3))}
        wrong = {"head.bias": np.zeros(1)} | ({} if bad is None else {"head.weight": bad})
        places = {name: {"recurrent.1": [0, 1, 2]} for name in ("good", "wrong")}
        with refuses(DataError, "client 'wrong'", "'head.weight'", named):
            average({"good": good, "wrong": wrong}, ANATOMY, places, {"recurrent.1": 3})

    def test_shapes_that_do_not_agree(self):
        clients = {"a": {"head.weight": np.zeros((1, 3))}, "b": {"head.weight": np.zeros((1, 4))}}
        with refuses(DataError, "client 'b'", "'head.weight'"):
            average(clients, ANATOMY)

    def test_a_tensor_the_others_lack(self):
        clients = {"a": {"head.bias": np.zeros(1)}, "b": {"head.bias": np.zeros(1), "head.weight": np.zeros((1, 2))}}
        with refuses(DataError, "client 'b'", "'head.weight'"):
            average(clients, ANATOMY)

    @pytest.mark.parametrize("places", [[0, 0], [0, 5], [-1, 0], [0.0, 1.0]])
    def test_bad_places(self, places):
        with refuses(DataError, "client 'a'"):
            move({"head.weight": np.zeros((1, 2))}, ANATOMY, {"recurrent.1": places}, {"recurrent.1": 5}, client="a")

    def test_places_without_width_or_client(self):
        with refuses(ConfigError, "width"):
            move({"head.weight": np.zeros((1, 2))}, ANATOMY, {"recurrent.1": [0, 1]}, {})
        with refuses(DataError, "client 'b'"):
            average({"b": {"head.bias": np.zeros(1)}}, ANATOMY, {"a": {}}, {})
