"""A client keeps the head that is best for its own machines, whatever it is offered."""

from __future__ import annotations

import numpy as np

from fedprognos.federation.exchanges.choice import choose, make_head
from fedprognos.networks import HeadStatistics, mean_squared_error

COLUMNS = {"alone": np.arange(2), "linear": np.array([4])}


def sums(slopes: list[float], rows: int, seed: int) -> HeadStatistics:
    """Sums of five features whose label follows these slopes."""
    rng = np.random.default_rng(seed)
    h = np.concatenate([rng.normal(size=(rows, 5)), np.ones((rows, 1))], axis=1)
    y = h @ np.array([*slopes, 0.5]) + 0.1 * rng.normal(size=rows)
    return HeadStatistics(rows, float(y @ y), h.T @ h, h.T @ y)


def test_a_shared_head_that_suits_is_kept() -> None:
    slopes = [1.0, -1.0, 0.5, 0.5, 0.0]
    kind, _ = choose(sums(slopes, 40, 0), sums(slopes, 40, 1), np.array([*slopes, 0.5]), COLUMNS)
    assert kind == "together"


def test_a_harmful_head_costs_nothing() -> None:
    slopes, poisoned = [1.0, -1.0, 0.0, 0.0, 0.0], 100 * np.ones(6)
    fit, kept_out = sums(slopes, 60, 0), sums(slopes, 60, 1)
    kind, strength = choose(fit, kept_out, poisoned, COLUMNS)
    assert kind in ("alone", "personal")
    assert mean_squared_error(kept_out, make_head(kind, strength, fit, poisoned, COLUMNS)) < 0.05


def test_inputs_alone_win_where_they_say_everything() -> None:
    slopes = [0.0, 0.0, 0.0, 0.0, 2.0]
    fit, kept_out = sums(slopes, 12, 0), sums(slopes, 40, 1)
    kind, strength = choose(fit, kept_out, np.zeros(6), COLUMNS)
    assert kind == "linear"
    head = make_head(kind, strength, fit, np.zeros(6), COLUMNS)
    assert np.count_nonzero(head[:-1]) == 1
