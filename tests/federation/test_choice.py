"""A client keeps the head that is best for its own machines, whatever it is offered."""

from __future__ import annotations

import numpy as np
import pytest

from fedprognos.evaluation.baselines import ridge
from fedprognos.features import RecipeOptions, build_windows, hold_out
from fedprognos.features.survey import recipe_for
from fedprognos.federation.exchanges.choice import choose, make_head
from fedprognos.fleet import Fleet, Schema, Unit
from fedprognos.networks import (
    HeadStatistics,
    Network,
    NetworkSpec,
    add_all,
    head_statistics,
    mean_squared_error,
    predict,
)

COLUMNS = {"alone": np.arange(2), "linear": np.array([4])}


def sums(slopes: list[float], rows: int, seed: int) -> HeadStatistics:
    """Sums of five features whose label follows these slopes."""
    rng = np.random.default_rng(seed)
    h = np.concatenate([rng.normal(size=(rows, 5)), np.ones((rows, 1))], axis=1)
    y = h @ np.array([*slopes, 0.5]) + 0.1 * rng.normal(size=rows)
    return HeadStatistics(rows, float(y @ y), h.T @ h, h.T @ y)


def groups(slopes: list[float], rows: int, count: int = 4) -> list[HeadStatistics]:
    """What was kept out, in groups of units."""
    return [sums(slopes, rows, 10 + k) for k in range(count)]


def test_a_shared_head_that_suits_is_kept() -> None:
    slopes = [1.0, -1.0, 0.5, 0.5, 0.0]
    kind, _ = choose(sums(slopes, 40, 0), groups(slopes, 10), np.array([*slopes, 0.5]), COLUMNS)
    assert kind == "together"


def test_a_harmful_head_costs_nothing() -> None:
    slopes, poisoned = [1.0, -1.0, 0.0, 0.0, 0.0], 100 * np.ones(6)
    fit, kept_out = sums(slopes, 60, 0), groups(slopes, 15)
    kind, strength = choose(fit, kept_out, poisoned, COLUMNS)
    assert kind in ("alone", "personal")
    assert mean_squared_error(add_all(kept_out), make_head(kind, strength, fit, poisoned, COLUMNS)) < 0.05


def test_one_unit_that_disagrees_with_all_others_does_not_decide() -> None:
    shared, own = [1.0, -1.0, 0.5, 0.5, 0.0], [9.0, -9.0, 0.0, 0.0, 0.0]
    kept_out = [*groups(shared, 10, 7), sums(own, 10, 3)]
    kind, _ = choose(sums(own, 40, 0), kept_out, np.array([*shared, 0.5]), COLUMNS)
    assert kind == "together"


def test_inputs_alone_win_where_they_say_everything() -> None:
    slopes = [0.0, 0.0, 0.0, 0.0, 2.0]
    fit, kept_out = sums(slopes, 12, 0), groups(slopes, 10)
    kind, strength = choose(fit, kept_out, np.zeros(6), COLUMNS)
    assert kind == "linear"
    head = make_head(kind, strength, fit, np.zeros(6), COLUMNS)
    assert np.count_nonzero(head[:-1]) == 1


def test_a_single_unit_keeps_the_linear_head_unless_it_fails() -> None:
    useful, useless = [0.2, 0.2, 0.0, 0.0, 1.0], [2.0, 2.0, 0.0, 0.0, 0.0]
    for slopes, kind in ((useful, "linear"), (useless, "alone")):
        fit, kept_out = sums(slopes, 60, 0), groups(slopes, 10)
        assert choose(fit, kept_out, np.zeros(6), COLUMNS, single=True)[0] == kind


def test_a_single_unit_takes_the_shared_head_where_the_linear_one_drifts_away() -> None:
    """Inputs follow the label, then ever less, as a resistance that grows faster than capacity fades."""
    early, late = [0.1, 0.1, 0.0, 0.0, 3.0], [0.7, 0.7, 0.0, 0.0, 3.0]
    fit, kept_out = sums(early, 60, 0), groups(late, 10)
    for shared, kind in ((late, "together"), (early, "linear")):
        assert choose(fit, kept_out, np.array([*shared, 0.5]), COLUMNS, single=True)[0] == kind


def test_the_linear_head_is_the_ridge_baseline() -> None:
    """Same strengths, same penalty, same points kept out: it cannot lose against it."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 5, 1)).astype(np.float32).cumsum(axis=1)
    cell = Unit(
        "b", np.arange(200.0), rows.reshape(-1, 1), np.empty((200, 0)), target=1 + rows[:, -1, 0].astype(float) / 9,
        cycles=np.arange(0, 201, 5), cycle_numbers=np.arange(1, 41),
    )  # fmt: skip
    schema = Schema("soh", ("volt",), target="capacity")
    fleet = Fleet("cells", schema, (cell,))
    recipe = recipe_for(RecipeOptions(cycle="index"), {"a": fleet})
    windows = build_windows(recipe, fleet)
    train, held = hold_out(windows, 0.25, 0)
    assert held is not None
    network = Network.seeded(NetworkSpec(inputs=1, widths=(3,), direct=windows.length), 0, 0.0)
    columns = {"alone": np.arange(8), "linear": np.arange(3, 8)}
    fit, kept_out = (head_statistics(network, part, recipe) for part in (train, held))
    option = choose(fit, [kept_out], np.zeros(9), columns, single=True)
    assert option[0] == "linear"
    head = make_head(*option, fit.add(kept_out), np.zeros(9), columns)
    assert predict(network.with_head(head), windows, recipe) == pytest.approx(ridge(windows, recipe)(windows), abs=1e-6)
