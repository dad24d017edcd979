"""How the bounds of the drift flags were chosen, and how often they are wrong where they were not chosen.

The choice looks at the training engines of C-MAPSS FD001 alone. Ten times a random half of them makes the recipe and
the other half, run to failure, is looked at: normal wear, of engines the recipe does not know. `DISTANCE` is the
smallest hundredth that at most 1 % of those windows reach, `RANGE` the smallest whole number of deviations that none
exceeds.

The report is about other units: FD004 and the batteries, which had no part in the choice, and FD001's test engines.
Writes build/benchmarks/drift.json.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedprognos.errors import DataNotFoundError
from fedprognos.experiment import config
from fedprognos.experiment.run import load_fleets
from fedprognos.features import Recipe, build_windows, recipe_for
from fedprognos.fleet import Fleet, Unit
from fedprognos.prognosis import drift

OUT = Path("build/benchmarks/drift.json")
SPLITS = 10
TOLERATED = 0.01
PART = 2000
BROKEN = ("offset +5", "offset -5", "offset +3", "offset -3", "stuck", "swapped")


def recipe_of(preset: str, fleet: Fleet) -> Recipe:
    section = config.load(preset)[1].recipe
    return recipe_for(section, {"all": fleet})


def halves(fleet: Fleet, seed: int) -> tuple[Fleet, Fleet]:
    order = np.random.default_rng(seed).permutation(len(fleet))
    middle = len(fleet) // 2
    return tuple(fleet.select([fleet.units[k] for k in sorted(part)]) for part in (order[:middle], order[middle:]))


def choose(train: Fleet) -> dict[str, float]:
    """Both bounds by the rule above."""
    distances, peaks = [], []
    for seed in range(SPLITS):
        known, others = halves(train, seed)
        recipe = recipe_of("turbofan-fd001", known)
        windows = build_windows(recipe, others, stride=1, labelled=False)
        for a in range(0, len(windows), PART):
            z = windows.batch(slice(a, min(a + PART, len(windows))))[:, :, : len(recipe.sensors)]
            distances.append(drift.distance(z).max(axis=1))
            peaks.append(np.abs(z).max(axis=(1, 2)))
    found = np.concatenate(distances)
    bounds = [k / 100 for k in range(50, 100) if (found >= k / 100).mean() <= TOLERATED]
    return {"DISTANCE": bounds[0], "RANGE": math.ceil(float(np.concatenate(peaks).max())), "windows": len(found)}


def flagged(recipe: Recipe, fleet: Fleet) -> dict[str, float]:
    """Windows, and the share flagged by each flag."""
    windows = build_windows(recipe, fleet, stride=1, labelled=False)
    drifted = far = 0
    for a in range(0, len(windows), PART):
        found = drift.inspect(recipe, windows.batch(slice(a, min(a + PART, len(windows)))))
        drifted += int((found.distant | found.stuck).any(axis=1).sum())
        far += int(found.far.any(axis=1).sum())
    return {"windows": len(windows), "drift": drifted / len(windows), "out-of-range": far / len(windows)}


def broken(unit: Unit, fleet: Fleet, recipe: Recipe, sensor: int, how: str) -> Unit:
    """A unit with one sensor broken over its whole history."""
    columns = recipe.check(fleet.schema, "benchmark")[0]
    column, sensors = columns[sensor], unit.sensors.copy()
    if how.startswith("offset"):
        sensors[:, column] += float(how.split()[1]) * np.array(recipe.std)[:, sensor].max()
    elif how == "stuck":
        sensors[:, column] = np.median(sensors[:, column])
    else:
        other = columns[(sensor + 1) % len(columns)]
        sensors[:, [column, other]] = sensors[:, [other, column]]
    return replace(unit, sensors=sensors)


def noticed(recipe: Recipe, fleet: Fleet, how: str) -> float:
    """Share of (unit, sensor) pairs whose last window is flagged when that sensor is broken."""
    units = sorted(fleet, key=lambda unit: -unit.rows)[:20]
    hits = []
    for sensor in range(len(recipe.sensors)):
        changed = fleet.select([broken(unit, fleet, recipe, sensor, how) for unit in units])
        found = drift.inspect(recipe, build_windows(recipe, changed, points="last", labelled=False).batch(slice(None)))
        hits.append(found.found)
    return float(np.concatenate(hits).mean())


def report(preset: str, train: Fleet, test: Fleet) -> dict[str, object]:
    recipe = recipe_of(preset, train)
    result: dict[str, object] = {"test": flagged(recipe, test)}
    if len(train) >= 10:
        known, unknown = halves(train, 0)
        result["new units, run to failure"] = flagged(recipe_of(preset, known), unknown)
    else:
        for unit in train:
            known = train.select([other for other in train if other is not unit])
            result[f"new unit {unit.id}"] = flagged(recipe_of(preset, known), train.select([unit]))
    result["noticed"] = {how: noticed(recipe, test, how) for how in BROKEN}
    return result


def main() -> None:
    try:
        fd001, fd004, battery = (load_fleets(preset) for preset in ("turbofan-fd001", "turbofan", "battery"))
    except DataNotFoundError as error:
        print(f"left out: {error}")
        return
    chosen = choose(fd001[0])
    print(f"by the rule, on FD001's training engines: {chosen}; in use: {drift.DISTANCE}, {drift.RANGE:g}")
    results = {
        "FD004": report("turbofan", *fd004),
        "FD001": report("turbofan-fd001", *fd001),
        "batteries": report("battery", *battery),
    }
    for name, result in results.items():
        for what, figures in result.items():
            print(f"{name:10} {what:28} {json.dumps(figures)}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"chosen": chosen, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
