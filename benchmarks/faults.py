"""Broken sensors: how often each kind of fault is found, after how many rows, and how often there is none.

A fault is put into one sensor of a unit from the middle of its history on, for every sensor of some test units. It is
found when the flags of a row or cycle say so; the delay counts rows (cycles of a cyclic unit) from the first broken
one. False alarms are flags on units as they are: test units, units of the training file, and units that had no part in
the recipe (half of the training units, run to failure; each battery in turn).

The margin of the level is chosen by a rule that looks at the training engines of C-MAPSS FD001 alone: ten times a
random half of them makes the recipe, and the margin is the smallest quarter of a deviation that flags at most 1 % of
the rows of the other half. All other fleets only judge it. Writes build/benchmarks/faults.json.

    python benchmarks/faults.py [--units 10]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.errors import DataNotFoundError
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import load_fleets
from fedprognos.features import Recipe, recipe_for
from fedprognos.features.sensor_ranges import levels
from fedprognos.fleet import Fleet, Unit
from fedprognos.prognosis import sensor_faults
from fedprognos.prognosis.predictor import table_of
from fedprognos.prognosis.unit_state import UnitState

OUT = Path("build/benchmarks/faults.json")
SPLITS = 10
TOLERATED = 0.01
KINDS = ("frozen", "dead", "drifting", "times 1000", "swapped", "offset +3", "offset +5")
RAMP = 0.05
"""Deviations a row by which a drifting sensor moves away; a twentieth of it a sample for cyclic units."""
PRESETS = {"FD001": "turbofan-fd001", "FD004": "turbofan", "batteries": "battery", "plants": "plants"}


def recipe_of(preset: str, fleet: Fleet) -> Recipe:
    return recipe_for(config.load(preset)[1].recipe, {"all": fleet})


def halves(fleet: Fleet, seed: int) -> tuple[Fleet, Fleet]:
    order = np.random.default_rng(seed).permutation(len(fleet))
    middle = len(fleet) // 2
    known, others = (fleet.select([fleet.units[k] for k in sorted(part)]) for part in (order[:middle], order[middle:]))
    return known, others


def chosen_margin(train: Fleet, preset: str) -> dict[str, float]:
    """The margin by the rule above, and the share it flags."""
    beyond = []
    for seed in range(SPLITS):
        known, others = halves(train, seed)
        recipe = recipe_of(preset, known)
        columns = recipe.check(others.schema, "benchmark")
        for unit in others:
            raw = unit.sensors[:, columns[0]]
            found = levels(recipe.deviations(raw, recipe.scale(raw, unit.settings[:, columns[1]])[0]))
            beyond.append(
                np.maximum(found - np.array(recipe.usual.high), np.array(recipe.usual.low) - found).max(axis=1)
            )
    worst = np.concatenate(beyond)
    margin = next(k / 4 for k in range(100) if (worst > k / 4).mean() <= TOLERATED)
    return {"margin": margin, "share": float((worst > margin).mean()), "share without": float((worst > 0).mean())}


def flags_of(recipe: Recipe, unit: Unit, columns: tuple[list[int], list[int]]) -> list[tuple[float, frozenset[str]]]:
    """Position and sensor flags of every moment at which the model looks at a unit."""
    table = table_of(unit, columns)
    with np.errstate(all="ignore"):
        scaled, unseen = recipe.scale(table.sensors, table.settings)
        deviations = recipe.deviations(table.sensors, scaled)
    given = np.concatenate([table.sensors, table.settings], axis=1)
    state = UnitState(recipe, sensor_faults.SensorLimits.from_recipe(recipe))
    found = []
    for k in range(len(table)):
        cuts = state.push(
            table.positions[k],
            table.cycles[k],
            False,
            raw=table.sensors[k],
            given=given[k],
            deviations=deviations[k],
            scaled=scaled[k],
            unseen=bool(unseen[k]),
            trusting=True,
        )[2]
        found += [(cut.position, sensor_faults.DISTRUSTED.intersection(state.doubts(cut)[0])) for cut in cuts]
    return found


def broken(unit: Unit, columns: list[int], recipe: Recipe, sensor: int, how: str, start: int) -> Unit:
    """A unit with one sensor broken from a row on."""
    column, sensors = columns[sensor], unit.sensors.copy()
    deviation = np.array(recipe.std)[:, sensor].max()
    if recipe.levels is not None and recipe.usual is not None and sensor == recipe.level_column:
        deviation = recipe.usual.level_std
    after = slice(start, None)
    if how == "frozen":
        sensors[after, column] = sensors[start, column]
    elif how == "dead":
        sensors[after, column] = 0.0
    elif how == "drifting":
        step = RAMP * deviation / (20 if unit.is_cyclic else 1)
        sensors[after, column] += step * np.arange(unit.rows - start)
    elif how == "times 1000":
        sensors[after, column] *= 1000.0
    elif how == "swapped":
        other = columns[(sensor + 1) % len(columns)]
        sensors[after, [column, other]] = sensors[after, [other, column]]
    else:
        sensors[after, column] += float(how.split()[1]) * deviation
    return replace(unit, sensors=sensors)


def found_faults(recipe: Recipe, fleet: Fleet, how: str, most: int) -> dict[str, float]:
    """Share found, and the median and ninth decile of the delay of those found."""
    columns = recipe.check(fleet.schema, "benchmark")
    units = sorted(fleet, key=lambda unit: -unit.rows)[:most]
    delays: list[float] = []
    for unit in units:
        start = unit.rows // 2
        if unit.cycles is not None:
            start = int(unit.cycles[len(unit.cycles) // 2])
        first = float(unit.positions[start] if unit.cycles is None else unit.positions[len(unit.cycles) // 2])
        before = {flags for position, flags in flags_of(recipe, unit, columns) if position >= first}
        for sensor in range(len(recipe.sensors)):
            moments = flags_of(recipe, broken(unit, columns[0], recipe, sensor, how, start), columns)
            new = [position - first + 1 for position, flags in moments if position >= first and flags - _all(before)]
            delays.append(new[0] if new else np.inf)
    seen = np.array(delays)
    hit = seen[np.isfinite(seen)]
    return {
        "cases": len(seen),
        "found": float(np.isfinite(seen).mean()),
        "median delay": float(np.median(hit)) if len(hit) else np.nan,
        "delay of nine in ten": float(np.quantile(hit, 0.9)) if len(hit) else np.nan,
    }


def _all(sets: set[frozenset[str]]) -> frozenset[str]:
    """Flags that the unit has anyway."""
    return frozenset().union(*sets)


def false_alarms(recipe: Recipe, fleet: Fleet) -> dict[str, float]:
    """Share of moments and of units that are flagged though nothing is broken."""
    columns = recipe.check(fleet.schema, "benchmark")
    moments = [[bool(flags) for _, flags in flags_of(recipe, unit, columns)] for unit in fleet]
    every = [flagged for own in moments for flagged in own]
    return {
        "moments": len(every),
        "share of moments": float(np.mean(every)),
        "units": len(moments),
        "units flagged ever": float(np.mean([any(own) for own in moments])),
        "units flagged at their end": float(np.mean([own[-1] for own in moments if own])),
    }


def report(preset: str, train: Fleet, test: Fleet, most: int) -> dict[str, Any]:
    recipe = recipe_of(preset, train)
    alarms = {"training units": false_alarms(recipe, train), "test units": false_alarms(recipe, test)}
    if len(train) >= 10:
        known, unknown = halves(train, 0)
        alarms["new units, run to failure"] = false_alarms(recipe_of(preset, known), unknown)
    else:
        for unit in train:
            known = train.select([other for other in train if other is not unit])
            alarms[f"new unit {unit.id}"] = false_alarms(recipe_of(preset, known), train.select([unit]))
    return {"false alarms": alarms, "faults": {how: found_faults(recipe, test, how, most) for how in KINDS}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=10, help="test units into which faults are put")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name, preset in PRESETS.items():
        try:
            train, test = load_fleets(preset)
        except DataNotFoundError as error:
            print(f"left out: {error}")
            continue
        if name == "FD001":
            results["chosen"] = chosen_margin(train, preset)
            print(f"by the rule, on FD001's training engines: {results['chosen']}; in use: {sensor_faults.MARGIN}")
        results[name] = report(preset, train, test, options.units)
        for what, rows in results[name].items():
            for which, figures in rows.items():
                print(f"{name:10} {what:13} {which:26} {json.dumps({k: round(v, 4) for k, v in figures.items()})}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
