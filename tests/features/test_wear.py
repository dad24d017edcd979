"""Columns that carry wear are told from noise, random walks and settings, by sums over units."""

from __future__ import annotations

import numpy as np

from fedprognos.features import build_windows, recipe_for
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.features.wear_columns import carries_wear, wear_sums
from fedprognos.fleet import Fleet, Schema, Unit

NAMES = ("heat", "draught", "strain", "noise", "walk", "fan", "flow", "bleed")


def fleet(units: int, seed: int = 0) -> Fleet:
    """Three sensors wear, one is noise, one a random walk; three rise or fall with the kind of fault."""
    rng = np.random.default_rng(seed)

    def unit(k: int) -> Unit:
        rows = int(rng.integers(60, 100))
        wear = np.linspace(0, 1, rows) ** 2
        walk, fault = np.cumsum(rng.normal(size=rows)), wear * (-1) ** (k % 2)
        columns = [wear, -wear, 2 * wear, np.zeros(rows), walk, fault, -fault, fault]
        sensors = np.stack(columns, axis=1) + 0.1 * rng.normal(size=(rows, len(columns)))
        return Unit(f"m{k}", np.arange(1.0, rows + 1), sensors, np.empty((rows, 0)), rul_at_end=0.0)

    return Fleet("plant", Schema("rul", NAMES), tuple(unit(k) for k in range(units)))


def test_wear_is_told_from_noise_and_walks() -> None:
    whole = fleet(40)
    recipe = recipe_for(RecipeOptions(history="life", cap=50), {"all": whole})
    kept = carries_wear(wear_sums(build_windows(recipe, whole), recipe))
    assert {name for name, keep in zip(NAMES, kept, strict=True) if not keep} == {"noise", "walk"}


def test_sums_of_clients_are_those_of_everybody() -> None:
    whole = fleet(12)
    recipe = recipe_for(RecipeOptions(history=10, cap=50), {"all": whole})
    together = wear_sums(build_windows(recipe, whole), recipe)
    halves = [whole.select(whole.units[:5]), whole.select(whole.units[5:])]
    first, second = (wear_sums(build_windows(recipe, half), recipe) for half in halves)
    added = first.add(second)
    assert added.n == together.n == 12
    np.testing.assert_allclose(added.products, together.products)
    np.testing.assert_allclose(added.total, together.total)


def test_where_nothing_carries_wear_every_column_stays() -> None:
    whole = fleet(25)
    recipe = recipe_for(RecipeOptions(history="life", cap=50, sensors=("noise",)), {"all": whole})
    assert carries_wear(wear_sums(build_windows(recipe, whole), recipe)).all()
