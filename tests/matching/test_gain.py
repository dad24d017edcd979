"""The fast table of gains is the written one, whatever the numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedprognos.errors import ConfigError
from fedprognos.matching import gain
from fedprognos.matching.match.fast import Buffer, costs, popularity
from fedprognos.matching.match.hyperparameters import Hyperparameters
from refusals import refuses


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["pfnm", "spahm"]),
    st.sampled_from(["one variance", "one a dimension"]),
    st.booleans(),
    st.integers(1, 7),
    st.integers(0, 5),
    st.integers(0, 4),
)
def test_one_matrix_product_gives_the_written_gains(seed, cost, variances, masked, dimensions, existing, new):
    assume(existing + new > 0)
    rng = np.random.default_rng(seed)
    population, gamma, width = int(rng.integers(1, 9)), float(rng.choice([0.1, 1.0, 20.0])), int(rng.integers(1, 5))
    x = rng.normal(size=(width, dimensions))
    counts = rng.integers(1, population + 3, existing)
    seen = rng.integers(0, counts[:, None] + 1, (existing, dimensions)) if masked else counts[:, None]
    totals = rng.normal(size=(existing, dimensions)) * np.broadcast_to(seen, (existing, dimensions))
    size = 1 if variances == "one variance" else dimensions
    sigma, sigma0 = np.exp(rng.normal(size=(2, size)))
    hyper = Hyperparameters(rng.normal(size=dimensions), sigma, sigma0)

    written = gain(
        x,
        counts,
        totals,
        new=new,
        population=population,
        mu0=hyper.mu0,
        sigma=sigma,
        sigma0=sigma0,
        gamma=gamma,
        cost=cost,
        seen=seen,
    )
    prior = popularity(counts, new, population=population, gamma=gamma, cost=cost)
    fast = -costs(x, seen.astype(float), totals, prior, hyper=hyper, cost=cost, buffer=Buffer())
    np.testing.assert_allclose(fast + (x**2 / sigma).sum(axis=1, keepdims=True), written, rtol=1e-9, atol=1e-9)


def test_a_buffer_is_used_again_and_grows():
    buffer = Buffer()
    first = buffer.matrix(3, 4)
    assert buffer.matrix(2, 5).base is first.base
    assert buffer.matrix(50, 50).shape == (50, 50)


def test_an_unknown_cost_is_refused():
    with refuses(ConfigError, "'pfnm'"):
        gain([[1.0]], [1], [[1.0]], new=1, population=2, cost="pfmn")
