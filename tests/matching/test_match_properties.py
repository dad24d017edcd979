"""What a matching promises, whatever the clients: on raw neuron vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from truth import known_clients, pair_f1, same_partition

from fedprognos.matching import Anchor, gain, match
from fedprognos.matching.match.bbp_map import assign, empty_state, initialise, renumber_and_estimate
from fedprognos.matching.match.problem import ClientNeurons, Growth, MatchOptions, canonical, make_problem

COSTS = ["pfnm", "spahm"]
seeds = st.integers(0, 2**32 - 1)


@st.composite
def mixtures(draw):
    """Small clients of any widths with some neurons in common."""
    rng = np.random.default_rng(draw(seeds))
    D = draw(st.sampled_from([1, 3, 20]))
    pool = rng.normal(size=(12, D))
    noise = draw(st.sampled_from([0.01, 0.3, 1.0]))
    widths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    return {f"c{j}": rng.permutation(pool)[:w] + noise * rng.normal(size=(w, D)) for j, w in enumerate(widths)}


@settings(max_examples=60, deadline=None)
@given(mixtures(), seeds, st.sampled_from(COSTS))
def test_permuting_neurons_does_not_change_the_partition(clients, seed, cost):
    rng = np.random.default_rng(seed)
    orders = {name: rng.permutation(len(w)) for name, w in clients.items()}
    shuffled = {name: w[orders[name]] for name, w in clients.items()}
    options = {"cost": cost, "sigma": 0.1, "sigma0": 1.0, "estimate": False}
    one, other = match(clients, **options), match(shuffled, **options)
    assert same_partition(one.assignments, other.assignments, orders)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 30), st.integers(2, 8), st.sampled_from(COSTS), st.sampled_from(["f4", "f8"]))
def test_permuted_copies_are_recovered_exactly(seed, width, count, cost, dtype):
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.1, (width, 16)).astype(dtype)
    orders = {f"c{j}": rng.permutation(width) for j in range(count)}
    found = match({name: weights[order] for name, order in orders.items()}, cost=cost)
    assert found.size == width
    first = found.assignments["c0"][np.argsort(orders["c0"])]
    for name, order in orders.items():
        np.testing.assert_array_equal(found.assignments[name], first[order])
    assert np.all(found.counts == count)
    assert np.all(np.asarray(found.diagnostics.sigma) > 0)
    assert np.all(np.isfinite(found.means))


def test_identical_clients_give_the_identity_and_are_all_merged():
    weights = np.random.default_rng(0).normal(size=(20, 30))
    found = match({"a": weights, "b": weights, "c": weights})
    for places in found.assignments.values():
        np.testing.assert_array_equal(places, np.arange(20))
    assert found.diagnostics.absorbing == "all merged"
    np.testing.assert_allclose(found.means, weights, atol=1e-6)


@pytest.mark.parametrize("cost", COSTS)
def test_one_client_is_left_alone(cost):
    weights = np.random.default_rng(0).normal(size=(7, 5))
    found = match({"only": weights}, cost=cost)
    np.testing.assert_array_equal(found.assignments["only"], np.arange(7))
    assert (found.size, found.gain, found.diagnostics.sweeps) == (7, 0.0, 0)
    assert found.diagnostics.absorbing == "neither"


@settings(max_examples=40, deadline=None)
@given(mixtures(), seeds, st.booleans())
def test_order_of_arrival_changes_nothing(clients, seed, estimate):
    names = np.random.default_rng(seed).permutation(list(clients))
    one = match(clients, estimate=estimate)
    other = match({str(name): clients[str(name)] for name in names}, estimate=estimate)
    for name in clients:
        np.testing.assert_array_equal(one.assignments[name], other.assignments[name])
    assert one.gain == other.gain
    np.testing.assert_array_equal(one.means, other.means)


def test_widest_then_most_data_then_id_comes_first():
    rng = np.random.default_rng(0)
    clients = {"b": rng.normal(size=(4, 6)), "a": rng.normal(size=(4, 6)), "w": rng.normal(size=(3, 6))}
    assert list(match(clients).assignments) == ["a", "b", "w"]
    assert list(match(clients, sizes={"a": 5, "b": 9, "w": 100}).assignments) == ["b", "a", "w"]


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(1e-6, 1e6), st.sampled_from(COSTS), st.booleans())
def test_scaling_all_weights_changes_nothing(seed, factor, cost, estimate):
    clients, _ = known_clients(seed, shared=10, private=(4, 2, 5), dimensions=20)
    one = match(clients, cost=cost, estimate=estimate)
    other = match({name: factor * w for name, w in clients.items()}, cost=cost, estimate=estimate)
    for name in clients:
        np.testing.assert_array_equal(one.assignments[name], other.assignments[name])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise", [0.05, 0.2, 0.4])
@pytest.mark.parametrize(("shared", "private"), [(48, (32, 32, 32)), (40, (24, 8, 16)), (60, (10, 0, 30))])
def test_shared_and_private_neurons_are_recognised(seed, noise, shared, private):
    clients, truth = known_clients(seed, shared=shared, private=private, noise=noise)
    found = match(clients)
    assert pair_f1(found.assignments, truth) >= 0.99
    assert found.diagnostics.absorbing == "neither"
    # Estimated from the data: the noise's variance, and that of the true neurons.
    assert found.diagnostics.sigma == pytest.approx((noise * 0.1) ** 2, rel=0.1)
    assert found.diagnostics.sigma0 == pytest.approx(0.1**2, rel=0.1)


@pytest.mark.parametrize("noise", [0.1, 0.3, 0.5])
def test_mostly_private_neurons_need_a_smaller_start(noise):
    clients, truth = known_clients(0, shared=5, private=(70, 70, 70), noise=noise)
    pooled = np.vstack(list(clients.values())).var()
    assert pair_f1(match(clients).assignments, truth) < 0.5
    assert pair_f1(match(clients, sigma=0.2 * pooled).assignments, truth) >= 0.99


def test_per_dimension_variances_tell_them_apart_too():
    clients, truth = known_clients(0)
    stretch = np.linspace(0.2, 5, 60)
    clients = {name: w * stretch for name, w in clients.items()}
    variance = np.vstack(list(clients.values())).var(axis=0)
    found = match(clients, sigma=0.5 * variance, sigma0=variance)
    assert pair_f1(found.assignments, truth) >= 0.99
    np.testing.assert_allclose(found.diagnostics.sigma, (0.03 * stretch) ** 2, rtol=0.5)


@settings(max_examples=150, deadline=None)
@given(
    mixtures(),
    st.sampled_from(COSTS),
    st.sampled_from([None, 1e-4, 10.0]),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(0, 5)),
    st.integers(0, 4),
    st.integers(0, 15),
)
@pytest.mark.filterwarnings("ignore:cap")
def test_no_neuron_is_lost_and_growth_is_limited(clients, cost, sigma, cap, quota, sweeps, anchored):
    rng = np.random.default_rng(anchored)
    dimensions = next(iter(clients.values())).shape[1]
    anchor = Anchor(rng.normal(size=(anchored, dimensions)), rng.integers(1, 5, anchored)) if anchored else None
    found = match(clients, cost=cost, sigma=sigma, cap=cap, quota=quota, sweeps=sweeps, anchor=anchor)
    counts = np.zeros(found.size, int)
    for name, weights in clients.items():
        places = found.assignments[name]
        assert places.shape == (len(weights),)
        assert len(set(places.tolist())) == len(weights)
        counts[places] += 1
    if anchor is not None:
        counts[:anchored] += anchor.counts
    np.testing.assert_array_equal(found.counts, counts)
    assert counts.min() >= 1
    assert found.means.shape == (found.size, dimensions)
    assert np.isfinite(found.means).all()
    widest = max(anchored, *(len(w) for w in clients.values()))
    everything = anchored + sum(len(w) for w in clients.values())
    assert widest <= found.size <= everything
    if cap is not None:
        assert found.size <= max(cap, widest)
    if quota is not None:
        assert found.size <= widest + (len(clients) - (anchored == 0)) * quota
    assert sum(found.diagnostics.singletons.values()) == sum(
        int((counts[places] == 1).sum()) for places in found.assignments.values()
    )


@settings(max_examples=60, deadline=None)
@given(mixtures(), st.sampled_from(COSTS), st.one_of(st.none(), st.integers(1, 20)), st.sampled_from([1e-3, 0.1, 1.0]))
def test_a_new_solution_never_gains_less_than_the_previous_one(clients, cost, cap, sigma):
    options = MatchOptions(cost, sigma, 1.0, 1.0, False, 0, 0, None, None, "scipy")
    order = canonical([ClientNeurons(name, w) for name, w in clients.items()], None)
    problem = make_problem(order, None, order[0].vectors.shape[1])
    growth = Growth(problem.everything if cap is None else max(cap, problem.widest), problem.everything)
    state = empty_state(problem, options, growth)
    initialise(state)
    renumber_and_estimate(state)
    neurons, s = state.neurons, 1 / sigma
    for j, client in enumerate(problem.clients):
        x = client.centred(problem.centre)
        before = state.assignments[j]
        alone = neurons.take(client, before, x)
        live = neurons.live()
        gains = gain(
            x,
            neurons.counts[live],
            neurons.sums[live],
            new=int(alone.sum()),
            population=problem.population,
            mu0=state.hyper.mu0,
            sigma=sigma,
            cost=cost,
        )
        columns = np.searchsorted(live, before)
        columns[alone] = len(live) + np.arange(alone.sum())
        previous = gains[np.arange(client.width), columns].sum() - s * np.square(x).sum()
        after, found = assign(state, client, x)
        assert found >= previous - 1e-9 * max(1.0, np.abs(gains).max(), s * np.square(x).sum())
        neurons.put(client, after, x)
        state.assignments[j] = after


def test_absorbing_states_are_named():
    clients = {name: np.random.default_rng(k).normal(size=(10, 20)) for k, name in enumerate("abc")}
    kept = match(clients, sigma=1e-6, sigma0=1.0)
    assert (kept.size, kept.diagnostics.absorbing) == (30, "all kept")
    # N = L: nothing to estimate from, so the values given stay.
    assert (kept.diagnostics.sigma, kept.diagnostics.sigma0) == (1e-6, 1.0)
    merged = match(clients, sigma=1e6, sigma0=1.0, estimate=False)
    assert (merged.size, merged.diagnostics.absorbing) == (10, "all merged")


def test_pfnm_keeps_its_variances_unless_asked():
    clients, _ = known_clients(2, shared=10, private=(4, 2, 5))
    assert match(clients, cost="pfnm", sigma=0.3, sigma0=2.0).diagnostics.sigma == 0.3
    assert match(clients, cost="pfnm", sigma=0.3, sigma0=2.0).diagnostics.sigma0 == 2.0
    assert match(clients, cost="pfnm", sigma=0.3, estimate=True).diagnostics.sigma != 0.3
    assert match(clients, cost="spahm", sigma=0.3).diagnostics.sigma != 0.3
    assert match(clients, cost="spahm", sigma=0.3, estimate=False).diagnostics.sigma == 0.3


def test_float32_gives_what_float64_gives():
    clients, _ = known_clients(3, shared=20, private=(5, 9, 3))
    small = {name: w.astype("f4") for name, w in clients.items()}
    one, other = match(small), match({name: w.astype("f8") for name, w in small.items()})
    assert one.gain == other.gain
    assert one.means.dtype == np.float64


@pytest.mark.parametrize("dtype", ["i8", "u1", "f2", "g"])
def test_other_number_types_are_taken_too(dtype):
    weights = (100 + 50 * np.random.default_rng(0).normal(size=(5, 6))).astype(dtype)
    assert match({"a": weights, "b": weights[::-1]}).assignments["b"].tolist() == [4, 3, 2, 1, 0]


def test_an_offset_common_to_all_neurons_does_not_force_them_together():
    clients, truth = known_clients(0)
    assert pair_f1(match({name: w + 100.0 for name, w in clients.items()}).assignments, truth) >= 0.99


class TestAnchor:
    """A previous global model."""

    def test_keeps_its_numbers_and_its_unused_neurons(self):
        rng = np.random.default_rng(0)
        old = rng.normal(size=(6, 30))
        client = np.vstack([old[[4, 1]] + 0.01 * rng.normal(size=(2, 30)), rng.normal(size=(1, 30))])
        found = match({"a": client, "b": old[[5, 4]]}, anchor=old)
        assert found.assignments["a"].tolist() == [4, 1, 6]
        assert found.assignments["b"].tolist() == [5, 4]
        assert found.counts.tolist() == [1, 2, 1, 1, 3, 2, 1]

    def test_count_weighs_as_so_many_clients(self):
        anchor = Anchor([[0.0, 0.0]], [3])
        found = match({"a": [[4.0, 4.0]]}, anchor=anchor, sigma=1.0, sigma0=1e9, estimate=False, cap=1)
        np.testing.assert_allclose(found.means, [[1.0, 1.0]], rtol=1e-6)

    def test_a_previous_matching_can_be_the_anchor(self):
        clients, _ = known_clients(0, shared=20, private=(3, 3, 3))
        first = match({name: clients[name] for name in ("c0", "c1")})
        second = match({"c2": clients["c2"]}, anchor=first)
        assert second.size == 29
        whole = match(clients)
        assert whole.size == 29
        np.testing.assert_array_equal(second.counts[: first.size] >= first.counts, True)


def test_same_seed_same_result_and_the_seed_matters_only_for_the_order():
    clients, _ = known_clients(1, noise=0.8)
    one, other = match(clients, seed=5), match(clients, seed=5)
    for name in clients:
        np.testing.assert_array_equal(one.assignments[name], other.assignments[name])
    assert one.gain == other.gain


def test_thousands_of_clients():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(8, 12))
    orders = {f"c{j:04d}": rng.permutation(8)[: rng.integers(1, 9)] for j in range(2000)}
    found = match({name: weights[o] + 0.05 * rng.normal(size=(len(o), 12)) for name, o in orders.items()}, sweeps=1)
    assert found.size == 8
    first = {int(o): int(p) for name in orders for o, p in zip(orders[name], found.assignments[name], strict=True)}
    assert all(
        first[int(o)] == p for name in orders for o, p in zip(orders[name], found.assignments[name], strict=True)
    )
