"""Heads from sums against the plain way: rows stacked, dummies for the clients' levels, least squares."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedprognos.networks.head import (
    HeadStatistics,
    add_all,
    mean_squared_error,
    own_level,
    solve_head,
    solve_within,
)


def drawn(seed: int, rows: int, width: int = 4, level: float = 0.0, slopes: np.ndarray | None = None):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(rows, width)) + rng.normal(size=width)
    w = np.arange(1.0, width + 1) if slopes is None else slopes
    return h, h @ w + level + 0.1 * rng.normal(size=rows)


def told(h: np.ndarray, y: np.ndarray) -> HeadStatistics:
    x = np.column_stack([h, np.ones(len(h))])
    return HeadStatistics(len(y), float(y @ y), x.T @ x, x.T @ y)


@given(st.integers(0, 1000), st.integers(1, 4), st.floats(1e-6, 10.0))
def test_slopes_within_clients_are_those_of_dummy_variables(seed: int, clients: int, strength: float) -> None:
    parts = [drawn(seed + k, 12 + 5 * k, level=10.0 * k) for k in range(clients)]
    ours = solve_within([told(*p) for p in parts], strength)
    h, y = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    dummies = np.zeros((len(y), clients))
    dummies[np.arange(len(y)), np.repeat(np.arange(clients), [len(p[1]) for p in parts])] = 1.0
    root = np.sqrt(strength * np.square(h - h.mean(axis=0)).sum(axis=0))
    x = np.block([[h, dummies], [np.diag(root), np.zeros((h.shape[1], clients))]])
    plain = np.linalg.lstsq(x, np.append(y, np.zeros(h.shape[1])), rcond=None)[0]
    assert np.allclose(ours[:-1], plain[: h.shape[1]], rtol=1e-6, atol=1e-8)
    for k, p in enumerate(parts):
        assert np.isclose(own_level(told(*p), ours)[-1], plain[h.shape[1] + k], rtol=1e-6, atol=1e-6)


def test_of_one_client_they_are_the_ordinary_ones() -> None:
    one = told(*drawn(3, 40))
    assert np.allclose(solve_within([one], 1e-3), solve_head(one, 1e-3), atol=1e-8)


def test_clients_that_differ_in_level_only_share_slopes_that_a_common_intercept_spoils() -> None:
    stats = [told(*drawn(k, 30, level=20.0 * k)) for k in range(3)]
    shared = solve_within(stats, 1e-4)
    own = np.mean([mean_squared_error(s, own_level(s, shared)) for s in stats])
    common = np.mean([mean_squared_error(s, solve_head(add_all(stats), 1e-9)) for s in stats])
    assert own < 0.05
    assert common > 1
