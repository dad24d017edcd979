"""What is usual of sensors: bounds that no training machine leaves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.features import Recipe, recipe_for
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.features.sensor_ranges import SETTLED, levels, longest_still, ranges_of_units
from fedprognos.fleet import Fleet
from refusals import refuses
from small_fleets import cyclic_fleet, recipe_of, series_fleet

RULE = {"altitude": 0, "mach": 2}


def test_a_spike_moves_the_level_by_one_at_most() -> None:
    deviations = np.zeros((40, 1))
    deviations[30] = 1e6
    assert levels(deviations).max() == pytest.approx(1.0)


def test_what_is_sent_is_rounded_outwards() -> None:
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(200, 1)).round(1)
    usual = ranges_of_units([(raw, raw)], 1)
    found = levels(raw)
    assert usual.low[0] <= found.min() < usual.low[0] + 0.25 and usual.high[0] - 0.25 < found.max() <= usual.high[0]
    assert usual.still[0] >= longest_still(raw)[0] > usual.still[0] / 2
    assert usual.reach[0] >= np.abs(raw).max() > usual.reach[0] / 2
    assert usual.jump[0] >= np.abs(raw[SETTLED:] - found[:-1]).max() > usual.jump[0] / 2
    assert usual.motion[0] <= levels(np.abs(np.diff(raw, axis=0))).min() < 2 * usual.motion[0]
    assert ranges_of_units([(raw, raw)], 1, first=37.0).first == 64 and usual.first == 1
    assert usual.still[0].bit_count() == 1 and (4 * usual.low[0]).is_integer()


def assert_within(recipe: Recipe, fleet: Fleet) -> None:
    assert recipe.usual is not None
    columns = recipe.check(fleet.schema, "test")
    for unit in fleet:
        raw = unit.sensors[:, columns[0]]
        deviations = recipe.deviations(raw, recipe.scale(raw, unit.settings[:, columns[1]])[0])
        found = levels(deviations)
        assert (longest_still(raw) <= recipe.usual.still).all()
        assert (np.abs(deviations).max(axis=0) <= np.array(recipe.usual.reach) + 1e-6).all()
        if len(found):
            assert (found.min(axis=0) >= np.array(recipe.usual.low) - 1e-6).all()
            assert (found.max(axis=0) <= np.array(recipe.usual.high) + 1e-6).all()


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(80, 160), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_no_training_machine_leaves_what_all_clients_said_together(lengths: list[int], seed: int) -> None:
    fleets = {f"c{k}": series_fleet([n, n // 2 + 45], seed=seed + k, name=f"c{k}") for k, n in enumerate(lengths)}
    recipe = recipe_for(RecipeOptions(history="life", conditions=RULE), fleets)
    for fleet in fleets.values():
        assert_within(recipe, fleet)


@pytest.mark.parametrize(
    "options",
    [{}, {"cycle": "index"}, {"cycle": "levels", "levels": "voltage", "level_points": 7, "grid_end_in_s": 500.0}],
)
def test_no_training_cell_leaves_it_either(options: dict[str, object]) -> None:
    fleet = cyclic_fleet(units=2, cycles=12)
    assert_within(recipe_of(fleet, **options), fleet)


def test_recipes_made_before_can_be_read() -> None:
    recipe = recipe_of(series_fleet([150]), conditions=RULE)
    old = recipe.model_dump(mode="json")
    del old["usual"]
    assert Recipe.model_validate(old).usual is None
    with refuses(ValueError, "usual"):
        recipe.model_copy(update={"sensors": ("pressure",)}).model_validate(
            {
                **recipe.model_dump(mode="json"),
                "usual": {"still": [1], "low": [0], "high": [0], "reach": [1], "first": 1},
            }
        )
