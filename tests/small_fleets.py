"""Small fleets with a known truth, for tests of every room."""

from __future__ import annotations

import numpy as np

from fedprognos.features import Recipe, recipe_for
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.fleet import Fleet, Schema, Unit

SERIES = Schema("rul", ("pressure", "temperature"), ("altitude", "mach"))
CYCLIC = Schema(
    "soh", ("voltage", "temperature"), time="time_in_s", time_measure="s", target="capacity", target_measure="Ah"
)
LEVELS = ((0.0, 0.0), (20.0, 0.7), (42.0, 0.84))


def series_unit(name: str, rows: int, seed: int, conditions: int = 3, **more: object) -> Unit:
    rng = np.random.default_rng(seed)
    which = rng.integers(conditions, size=rows)
    settings = np.array(LEVELS)[which] + rng.normal(0, 1e-4, (rows, 2))
    wear = np.square(np.arange(rows) / rows)
    sensors = np.column_stack([500 + 100 * which + 20 * wear, 20 - 3 * which - 5 * wear])
    sensors += rng.normal(0, 0.5, (rows, 2))
    facts: dict[str, object] = {"rul_at_end": 0.0, **more}
    return Unit(name, np.arange(1.0, rows + 1), sensors, settings, **facts)  # type: ignore[arg-type]


def series_fleet(lengths: list[int], seed: int = 0, conditions: int = 3, name: str = "engines") -> Fleet:
    units = [series_unit(f"{name}-{i}", n, seed * 1000 + i, conditions) for i, n in enumerate(lengths)]
    return Fleet(name, SERIES, tuple(units))


def cyclic_unit(name: str, cycles: int, seed: int) -> Unit:
    rng = np.random.default_rng(seed)
    capacity = 2.0 - 0.6 * np.arange(cycles) / cycles + rng.normal(0, 0.005, cycles)
    times, volts, temps, offsets = [], [], [], [0]
    for c in capacity:
        time = np.cumsum(np.concatenate([[0.0], rng.uniform(8.0, 12.0, int(c * 40))]))
        share = time / (c * 500)
        times.append(time)
        volts.append(4.2 - 0.8 * share - 0.4 * share**6)
        temps.append(24 + 10 * share + rng.normal(0, 0.05, len(time)))
        offsets.append(offsets[-1] + len(time))
    sensors = np.column_stack([np.concatenate(volts), np.concatenate(temps)])
    return Unit(
        name,
        np.concatenate(times),
        sensors,
        np.empty((len(sensors), 0)),
        target=capacity,
        cycles=np.array(offsets),
        cycle_numbers=np.arange(1, cycles + 1),
        attributes={"rated_capacity_in_Ah": 2.0},
    )


def cyclic_fleet(units: int = 2, cycles: int = 30, seed: int = 0) -> Fleet:
    return Fleet("cells", CYCLIC, tuple(cyclic_unit(f"cell-{i}", cycles, seed * 100 + i) for i in range(units)))


def recipe_of(fleet: Fleet, **options: object) -> Recipe:
    defaults: dict[str, object] = {"window": 10} if fleet.schema.task == "rul" else {}
    section = RecipeOptions.model_validate({**defaults, **options})
    return recipe_for(section, {"only": fleet})
