"""The fast elimination and the plain listing agree, whatever the cells, widths, layers and strengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_absorb import plain_absorb
from small_networks import plain, random_layers, run, side_by_side, sums_of, typed, width_of

from fedprognos.matching import absorb


@st.composite
def federations(draw):
    """Independent networks of unequal widths side by side, with sequences and labels."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cell = draw(st.sampled_from(["gru", "lstm"]))
    depth, with_input = draw(st.integers(1, 2)), draw(st.booleans())
    networks = []
    for _ in range(draw(st.integers(1, 3))):
        widths = [int(rng.integers(2, 9)) for _ in range(depth)]
        networks.append(random_layers(rng, cell, 3, widths, int(rng.integers(2, 6)) if with_input else None, gain=1.3))
    x = rng.normal(size=(12, 20, 3))
    y = np.cumsum(x[:, :, 0], axis=1) / 4 + np.tanh(x[:, :, 1])
    layers = side_by_side(networks)
    widths = [int(rng.integers(1, width_of(layer) + 1)) for layer in layers]
    return layers, x, y, widths


# Always the same examples: where a layer has more neurons than rank, several cost nothing, and any of them may go.
@settings(max_examples=30, deadline=None, derandomize=True)
@given(federations(), st.sampled_from([0.0, 0.3, 3.0]), st.sampled_from([1e-6, 10**-3.5, 1.0]))
def test_same_neurons_go_and_the_same_arrays_are_left(federation, alpha, ridge):
    layers, x, y, widths = federation
    sums = sums_of(layers, x, y)
    expected, kept, gone, losses = plain_absorb(layers, sums, width=widths, alpha=alpha, ridge=ridge)
    found = absorb(typed(layers), sums, width=widths, alpha=alpha, ridge=ridge)
    assert found.widths == tuple(widths)
    np.testing.assert_array_equal(found.kept[-1], kept[-1])
    assert [a.neuron for a in found.absorbed[-1]] == [neuron for neuron, _, _ in gone[-1]]
    np.testing.assert_allclose(list(found.losses[-1].values())[: len(losses)], losses, rtol=1e-6)
    for absorbed, (_, r2, beta) in zip(found.absorbed[-1], gone[-1], strict=True):
        if absorbed.r2 is not None:
            assert absorbed.r2 == pytest.approx(r2, abs=1e-6)
        sd = np.sqrt(sums[-1].moments(starts=True)[1].diagonal())
        strongest = sorted(np.flatnonzero(beta).tolist(), key=lambda j: -abs(beta[j]) * sd[j])
        assert list(absorbed.partners) == strongest[:5]
        np.testing.assert_allclose(absorbed.weights, [beta[j] for j in strongest[:5]], rtol=1e-5, atol=1e-7)
    for mine, theirs, own, other in zip(plain(found.layers), expected, found.kept, kept, strict=True):
        np.testing.assert_array_equal(own, other)
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_large_layers_are_compacted_on_the_way_and_still_agree(cell):
    rng = np.random.default_rng(0)
    layers = side_by_side([random_layers(rng, cell, 5, [40]) for _ in range(4)])
    x = rng.normal(size=(60, 30, 5))
    y = np.cumsum(x[:, :, 0], axis=1) / 4 + np.tanh(x[:, :, 1])
    sums = sums_of(layers, x, y)
    expected, _, gone, losses = plain_absorb(layers, sums, width=[24])
    found = absorb(typed(layers), sums, width=24)
    assert [a.neuron for a in found.absorbed[0]] == [neuron for neuron, _, _ in gone[0]]
    np.testing.assert_allclose(list(found.losses[0].values())[: len(losses)], losses, rtol=1e-9)
    for name in expected[0]:
        np.testing.assert_allclose(plain(found.layers)[0][name], expected[0][name], rtol=1e-7, atol=1e-9)
    assert run(plain(found.layers), x)[0].shape == (60, 30, 24)
