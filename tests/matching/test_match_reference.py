"""The matcher and the plain loops agree, whatever the sizes, costs, limits, priors and anchors."""

from __future__ import annotations

import warnings
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference import reference_match

from fedprognos.matching import Anchor, match
from fedprognos.matching.match import bbp_map


@st.composite
def problems(draw):
    """Clients with shared and private neurons, and options to match them by."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    D = draw(st.integers(1, 6))
    scale = draw(st.sampled_from([1e-3, 1.0, 50.0]))
    noise = draw(st.sampled_from([0.05, 0.3, 1.0]))
    offset = draw(st.sampled_from([0.0, 1.0]))
    pool = offset + rng.normal(size=(6, D))
    clients = {}
    for j in range(draw(st.integers(1, 4))):
        width = draw(st.integers(1, 6))
        clients[f"c{j}"] = scale * (rng.permutation(pool)[:width] + noise * rng.normal(size=(width, D)))
    variance = lambda: draw(  # noqa: E731
        st.sampled_from([None, 0.1 * scale**2, scale**2 * np.linspace(0.2, 1.5, D)])
    )
    anchor = None
    if draw(st.booleans()):
        A = draw(st.integers(1, 5))
        anchor = scale * rng.permutation(pool)[:A], rng.integers(1, 4, A)
    return clients, {
        "cost": draw(st.sampled_from(["pfnm", "spahm"])),
        "sigma": variance(),
        "sigma0": variance(),
        "gamma": draw(st.sampled_from([0.1, 1.0, 20.0])),
        "estimate": draw(st.sampled_from([None, False, True])),
        "sweeps": draw(st.integers(0, 4)),
        "seed": draw(st.integers(0, 3)),
        "sizes": draw(st.sampled_from([None, {f"c{j}": 10.0 * (j % 2) for j in range(4)}])),
        "anchor": anchor,
        "cap": draw(st.sampled_from([None, 1, 5, 8])),
        "quota": draw(st.sampled_from([None, 0, 1, 3])),
    }


def for_match(options):
    """The reference's options with the anchor as the matcher takes it."""
    return {**options, "anchor": None if options["anchor"] is None else Anchor(*options["anchor"])}


offers = st.sampled_from([1, 2, 8])
"""How many new columns are offered first, beyond the expected ones: it must not matter."""


@settings(max_examples=400, deadline=None)
@given(problems(), offers)
@pytest.mark.filterwarnings("ignore:cap")
def test_same_partition_counts_gains_and_means(problem, offer):
    clients, options = problem
    expected = reference_match(clients, **options)
    # With next to no prior variance all global neurons are the same neuron, and any assignment is as good.
    assume(not expected.near_floor)
    with mock.patch.object(bbp_map, "FIRST_OFFER", offer):
        found = match(clients, **for_match(options))
    assert {name: a.tolist() for name, a in found.assignments.items()} == expected.assignments()
    assert found.size == len(expected.neurons)
    assert sorted(found.counts) == sorted(n.count for n in expected.neurons)
    np.testing.assert_allclose(found.diagnostics.gains, np.array(expected.total, float), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        np.broadcast_to(found.diagnostics.sigma, len(expected.sigma)), np.array(expected.sigma, float), rtol=1e-6
    )
    np.testing.assert_allclose(
        np.broadcast_to(found.diagnostics.sigma0, len(expected.sigma)), np.array(expected.sigma0, float), rtol=1e-6
    )
    for name, places in expected.places.items():
        for index, neuron in zip(found.assignments[name], places, strict=True):
            s, p = 1 / np.array(expected.sigma), 1 / np.array(expected.sigma0)
            total = np.array([neuron.total(d) for d in range(len(s))])
            mean = (np.array(expected.mu0) * p + s * total) / (p + neuron.count * s)
            np.testing.assert_allclose(found.means[index], mean, rtol=1e-6, atol=1e-9)
            assert found.counts[index] == neuron.count


@settings(max_examples=60, deadline=None)
@given(problems())
@pytest.mark.filterwarnings("ignore:cap")
def test_lapx_finds_the_same(problem):
    pytest.importorskip("lap")
    clients, options = problem
    assume(not reference_match(clients, **options).near_floor)
    one, other = match(clients, **for_match(options)), match(clients, **for_match(options), solver="lapx")
    np.testing.assert_allclose(one.gain, other.gain, rtol=1e-9, atol=1e-9)
    for name in clients:
        np.testing.assert_array_equal(one.assignments[name], other.assignments[name])


def test_many_new_columns_are_found_although_few_are_offered_first():
    rng = np.random.default_rng(0)
    clients = {name: rng.normal(size=(40, 8)) for name in "abc"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = match(clients, sigma=1e-3, estimate=False, sweeps=1)
    expected = reference_match(clients, sigma=1e-3, estimate=False, sweeps=1)
    assert found.size == 120
    assert {name: a.tolist() for name, a in found.assignments.items()} == expected.assignments()
