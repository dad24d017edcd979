"""Sums of outputs: they add up, invalid ones are refused, and what else they tell."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import ConfigError, DataError
from fedprognos.matching import OutputSums, contributions, groups, repeats
from refusals import refuses

seeds = st.integers(0, 2**32 - 1)


def some(seed=0, count=20, steps=15, neurons=6):
    rng = np.random.default_rng(seed)
    h = np.tanh(rng.normal(size=(count, steps, neurons)) @ rng.normal(size=(neurons, neurons)))
    return h, np.clip(h[..., 0] + 0.3 * rng.normal(size=h.shape[:2]), -2, 2), rng.random(h.shape[:2]) < 0.8


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 19))
def test_sums_of_the_parts_are_the_sums_of_the_whole(seed, cut):
    h, y, mask = some(seed)
    whole = OutputSums.from_outputs(h, y, mask)
    parts = OutputSums.from_outputs(h[:cut], y[:cut], mask[:cut]).add(
        OutputSums.from_outputs(h[cut:], y[cut:], mask[cut:])
    )
    for field in fields(whole):
        np.testing.assert_allclose(getattr(parts, field.name), getattr(whole, field.name), rtol=1e-12, atol=1e-12)
    rows = h[mask]
    assert (whole.n, whole.starts) == (len(rows), 20)
    np.testing.assert_allclose(whole.S, rows.T @ rows, atol=1e-9)
    np.testing.assert_allclose(whole.q, rows.T @ y[mask], atol=1e-9)


def test_padding_is_left_out_and_empty_sequences_do_not_start():
    h, y, _ = some(count=3)
    mask = np.ones((3, 15), bool)
    mask[1, 10:], mask[2] = False, False
    found = OutputSums.from_outputs(h, y, mask)
    assert (found.n, found.starts) == (25, 2)
    one = OutputSums.from_outputs(h[0], y[0]).add(OutputSums.from_outputs(h[1, :10], y[1, :10]))
    np.testing.assert_allclose(one.S, found.S)
    # A sequence that goes on from an earlier part does not begin here.
    assert OutputSums.from_outputs(h[0], y[0], starts=0).starts == 0


def test_float32_outputs_are_added_in_float64():
    h, y, _ = some()
    single = h.astype("f4")
    found = OutputSums.from_outputs(np.tile(single, (100, 1, 1)), np.tile(y, (100, 1)))
    np.testing.assert_allclose(found.S, 100 * OutputSums.from_outputs(single.astype("f8"), y).S, rtol=1e-13)


def test_sums_of_some_neurons():
    h, y, _ = some()
    chosen = np.array([4, 1])
    one, other = OutputSums.from_outputs(h, y).take(chosen), OutputSums.from_outputs(h[..., chosen], y)
    for field in fields(one):
        np.testing.assert_allclose(getattr(one, field.name), getattr(other, field.name))


def test_sums_of_other_neurons_or_without_labels_do_not_add_up():
    h, y, _ = some()
    with refuses(DataError):
        OutputSums.from_outputs(h, y).add(OutputSums.from_outputs(h[..., :3], y))
    with refuses(DataError):
        OutputSums.from_outputs(h, y).add(OutputSums.from_outputs(h))


@settings(max_examples=60, deadline=None)
@given(seeds, st.booleans())
def test_true_sums_pass(seed, labelled):
    h, y, mask = some(seed, neurons=9)
    h[..., 3] = h[..., 0]
    h[..., 4] = 0.0
    h[..., 5] = -1.0
    OutputSums.from_outputs(h, y if labelled else None, mask).check(label_range=(-2.0, 2.0))
    OutputSums.from_outputs(h[:1, :1], y[:1, :1]).check()
    OutputSums.from_outputs(7 * h, y).check(bounded=False)


def forged(**changes):
    h, y, _ = some()
    found = OutputSums.from_outputs(h, y)
    return replace(found, **{name: change(getattr(found, name)) for name, change in changes.items()})


def at(index, value):
    def change(array):
        array = array.copy()
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("sums", "named"),
    [
        (forged(n=lambda n: -n), "steps"),
        (forged(starts=lambda n: 10_000), "starts"),
        (forged(n=lambda n: np.nan), "n "),
        (forged(S=at((2, 2), np.inf)), "S "),
        (forged(S=lambda S: S[:3]), "S "),
        (forged(q=lambda q: q[:3]), "q "),
        (forged(s=at(1, 301.0)), "neuron 1"),
        (forged(S=at((4, 4), 400.0)), "neuron 4"),
        (forged(S=at((4, 4), -1.0)), "neuron 4"),
        (forged(S=at((0, 1), 30.0)), "S "),
        (forged(y=lambda y: 900.0), "mean"),
        (forged(yy=lambda yy: 5000.0), "squares"),
        (forged(s=lambda s: s + 200.0), ""),
        (forged(q=lambda q: q + 250.0), ""),
        (forged(S=lambda S: S - 20 * np.eye(6)), ""),
        (forged(n=lambda n: n / 2, starts=lambda n: 1), ""),
    ],
)
def test_impossible_sums_are_refused_by_name(sums, named):
    with refuses(DataError, "client 'plant-7'", named):
        sums.check(label_range=(-2.0, 2.0), where="client 'plant-7'")


def test_label_squares_that_no_labels_of_this_mean_have_are_refused():
    rng = np.random.default_rng(0)
    labels = rng.uniform(0, 1, size=(3, 40))
    sums = OutputSums.from_outputs(np.zeros((3, 40, 1)), labels=labels)
    sums.check(label_range=(0.0, 1.0))
    ends = OutputSums.from_outputs(np.zeros((1, 4, 1)), labels=[[0.0, 1.0, 1.0, 0.0]])
    ends.check(label_range=(0.0, 1.0))
    with refuses(DataError, "squares"):
        replace(sums, y=1.2, yy=120.0).check(label_range=(0.0, 1.0))


@pytest.mark.parametrize("more", [{"labels": np.zeros((2, 5))}, {"mask": np.ones((3, 4), bool)}])
def test_labels_and_masks_of_another_shape_are_refused(more):
    with refuses(DataError, "shape"):
        OutputSums.from_outputs(np.zeros((2, 4, 3)), **more)


def test_sums_added_up_before_have_no_client():
    with refuses(DataError, "sums"):
        forged(q=lambda q: q + 250.0).check()


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([1e-6, 1e-2, 1.0]))
def test_contributions_are_the_losses_of_refits_without_a_client(seed, ridge):
    h, y, _ = some(seed, neurons=7)
    clients = {"a": np.array([0, 3]), "b": np.array([1, 2, 5]), "none": np.array([], int)}
    whole, without = contributions(OutputSums.from_outputs(h, y), clients, ridge=ridge)
    rows, labels = h.reshape(-1, 7), y.ravel()
    penalty = ridge * np.mean(np.square(rows))

    def loss(left):
        x, t = rows[:, left] - rows[:, left].mean(axis=0), labels - labels.mean()
        v = np.linalg.solve(x.T @ x / len(x) + penalty * np.eye(len(left)), x.T @ t / len(x))
        return np.mean(np.square(x @ v - t)) + penalty * v @ v

    assert whole == pytest.approx(loss(list(range(7))))
    for name, own in clients.items():
        assert without[name] == pytest.approx(loss([j for j in range(7) if j not in own]))
    assert without["none"] == whole


def test_repeats_tell_who_predicts_whom():
    rng = np.random.default_rng(0)
    h = np.tanh(rng.normal(size=(1, 4000, 6)))
    h[..., 2], h[..., 3] = h[..., 0], 0.6 * h[..., 0] + 0.4 * h[..., 1]
    clients = {"a": np.array([0, 1]), "b": np.array([2, 3]), "c": np.array([4, 5])}
    found = repeats(OutputSums.from_outputs(h), clients)
    np.testing.assert_allclose(np.diag(found), 1.0)
    np.testing.assert_allclose(found[:2, :2], 1.0, atol=1e-6)
    assert (found[2, :2] < 0.01).all()
    rows = h[0] - h[0].mean(axis=0)
    predicted = rows[:, 4:] @ np.linalg.lstsq(rows[:, 4:], rows[:, :2], rcond=None)[0]
    assert found[2, 0] == pytest.approx(np.square(predicted).sum() / np.square(rows[:, :2]).sum(), abs=1e-6)


class TestGroups:
    """Clients in groups of limited width."""

    @settings(max_examples=100, deadline=None)
    @given(
        st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 300), max_size=30), st.integers(1, 600), seeds
    )
    def test_everybody_is_in_one_group_within_the_limit(self, sizes, limit, seed):
        found = groups(sizes, limit)
        assert sorted(name for group in found for name in group) == sorted(sizes)
        for group in found:
            assert sum(sizes[name] for name in group) <= limit or len(group) == 1
        names = sorted(sizes)
        order = np.random.default_rng(seed).permutation(len(names))
        assert groups({names[j]: sizes[names[j]] for j in order}, limit) == found

    def test_groups_are_as_equal_as_they_can_be(self):
        found = groups({f"c{j}": 64 for j in range(10)}, 512)
        assert [len(group) for group in found] == [5, 5]
        assert groups({}, 10) == ()

    def test_bad_limits_and_sizes(self):
        with refuses(ConfigError, "limit"):
            groups({"a": 3}, 0)
        with refuses(ConfigError, "client 'a'", 0):
            groups({"a": 0})
