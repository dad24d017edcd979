"""What a service shows of machines with a fault, how true it is, and which goals that meets.

Training engines of C-MAPSS FD001 are cut in three: each third is kept out once, and the others train a small model of
whole lives with intervals. One third of FD004 is kept out, too. A fault is put into one sensor of each kept-out engine
at a random moment. From then on every row is judged as the page shows it: flagged or not, "fine" or not, and the truth
within its 90 % or not. An interval that is open above means "or more". The unseen fault is the fan fault of FD004: its
engines are standardised in each operating condition, moved to where those of FD001 begin, and only those whose P30
(sensor_7) rises are taken. No FD001 engine does that.

Models are trained once, in build/benchmarks/fault-lives, and used again. Writes build/benchmarks/fault_lives.json.

    python benchmarks/fault_lives.py [--steps 400] [--copies 1] [--faults none 'offset 3']
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.features import conditions
from fedprognos.fleet import Fleet, Unit
from fedprognos.fleet.readers.cmapss import read_cmapss_train
from fedprognos.prognosis import Predictor
from fedprognos.prognosis.sensor_faults import DISTRUSTED
from fedprognos.service.fleet_view import status_of

DATA = Path(os.environ.get("FEDPROGNOS_DATA", "../shared/data")) / "cmapss"
PLACE = Path("build/benchmarks/fault-lives")
OUT = Path("build/benchmarks/fault_lives.json")
THRESHOLD = 25.0
NEAR_FAILURE = 25
"""Rows with so much life left that must not be called fine."""
EARLY = 30
"""First rows of an engine, which show it when new."""
FAULTS = (
    "zero once",
    *(f"glitch {size}" for size in (3, 6, 10, 30, 300)),
    *(f"offset {size}" for size in (1, 2, 3, 5)),
    *(f"drift {rate}" for rate in (0.01, 0.02, 0.05)),
    "frozen",
    "dither",
    "dead",
    "offset 3 + frozen",
    "drift 0.05 + offset 3",
)
UNSEEN, HEALTHY = "unseen fault", "none"
NEVER_FINE = ("zero", "glitch", "offset", UNSEEN)
"""Beginnings of the faults under which no row near failure may be called fine."""
LEAST_HEALTHY_ROWS, COVERAGE = 30_000, (0.85, 0.95)
FOLDS = 3
MODELS = (("FD001", 0), ("FD001", 1), ("FD001", 2), ("FD004", 0))
"""Data set, and which third of its training engines is kept out."""
EXPERIMENT = """title = "{subset}, two in three training engines"
base = "turbofan-life"
[data]
kind = "cmapss"
subset = "{subset}"
[partition.heterogeneous]
by = "lifespan"
edges = [190, 255]
"""


def kept_out(fleet: Fleet, fold: int) -> set[str]:
    """Names of one in three engines."""
    order = np.random.default_rng(0).permutation(len(fleet))
    return {fleet.ids[k] for k in np.array_split(order, FOLDS)[fold]}


def trained(fleet: Fleet, subset: str, fold: int, steps: int) -> Predictor:
    """The model, trained where it is not there yet. Test engines are kept-out ones cut off at a random moment."""
    place = PLACE / f"{subset}-{fold}"
    bundle = place / "runs" / "fault-lives" / "bundle"
    if not bundle.is_dir():
        folder, others = place / "data" / "cmapss", kept_out(fleet, fold)
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(1)
        lines: dict[str, list[str]] = {}
        for line in (DATA / f"train_{subset}.txt").read_text().splitlines():
            lines.setdefault(f"{subset}-{line.split()[0]}", []).append(line.split(" ", 1)[1])
        cuts = {name: int(len(lines[name]) * rng.uniform(0.5, 0.9)) for name in sorted(others)}
        for file, units in (
            (f"train_{subset}.txt", {name: rows for name, rows in lines.items() if name not in others}),
            (f"test_{subset}.txt", {name: lines[name][:cut] for name, cut in cuts.items()}),
        ):
            numbered = (f"{n} {row}" for n, rows in enumerate(units.values(), 1) for row in rows)
            (folder / file).write_text("\n".join(numbered) + "\n")
        left = (str(len(lines[name]) - cut) for name, cut in cuts.items())
        (folder / f"RUL_{subset}.txt").write_text("\n".join(left) + "\n")
        (place / "fault-lives.toml").write_text(EXPERIMENT.format(subset=subset))
        options = {
            "federation.methods": "['central']",
            "federation.heads": "['exact']",
            "evaluation.intervals": "'all'",
            "model.widths": "[32]",
            "train.steps": "300",
            "federation.central.steps": str(steps),
            "recipe.cap": "125",
        }
        command = [sys.executable, "-m", "fedprognos", "run", "fault-lives.toml", "--seeds", "1"]
        for key, value in options.items():
            command += ["--set", f"{key}={value}"]
        environment = {**os.environ, "FEDPROGNOS_DATA": str((place / "data").resolve())}
        subprocess.run(command, cwd=place, env=environment, check=True)
    return Predictor.load(bundle)


def deviations(predictor: Predictor, unit: Unit, settings: list[int]) -> FloatArray:
    """What a deviation of each sensor is in the operating condition of each row (rows, sensors)."""
    recipe = predictor.recipe
    keys = conditions.keys(unit.settings[:, settings], recipe.conditions, recipe.settings)
    return np.array(recipe.std)[conditions.match(keys, np.array(recipe.condition_keys))[0]]


def with_fault(unit: Unit, columns: list[int], std: FloatArray, fault: str, seed: int) -> tuple[Unit, int]:
    """An engine with a fault (or two, each at its own moment), and the row from which on it is broken.

    Deviations `std` (rows, sensors) are those of each row's operating condition.
    """
    rng = np.random.default_rng([seed, *fault.encode()])
    values, first = unit.sensors.copy(), unit.rows
    for part in fault.split(" + "):
        kind, _, size = part.partition(" ")
        start, sensor = int(unit.rows * rng.uniform(0.3, 0.8)), int(rng.integers(len(columns)))
        sign = rng.choice([-1, 1])
        column, after = columns[sensor], slice(start, None)
        later = np.arange(unit.rows - start)
        if kind == "zero":
            values[start, column] = 0.0
        elif kind == "glitch":
            values[start, column] += sign * float(size) * std[start, sensor]
        elif kind == "offset":
            values[after, column] += sign * float(size) * std[after, sensor]
        elif kind == "drift":
            values[after, column] += sign * float(size) * std[after, sensor] * later
        elif kind == "frozen":
            values[after, column] = values[start, column]
        elif kind == "dither":
            values[after, column] = values[start, column] + 0.01 * std[start, sensor] * rng.normal(size=len(later))
        elif kind == "dead":
            values[after, column] = 0.0
        first = min(first, start)
    return replace(unit, sensors=values), first


def unseen_faults(predictor: Predictor, engines: list[Unit], columns: list[int]) -> list[Unit]:
    """Engines of FD004 with a fan fault, as FD001 would have measured them; its engines tell how new ones look."""
    like = engines[0]
    fleet = read_cmapss_train(DATA / "train_FD004.txt", "FD004")
    recipe = predictor.recipe
    mean, std = np.array(recipe.mean[0]), np.array(recipe.std[0])
    new = np.concatenate([unit.sensors[:EARLY, columns] for unit in engines])
    rows = np.concatenate([unit.sensors[:, columns] for unit in fleet])
    settings = np.concatenate([unit.settings for unit in fleet])
    early = np.concatenate([np.arange(unit.rows) < EARLY for unit in fleet])
    _, condition = np.unique(np.round(settings[:, :2] / [10.0, 0.1]), axis=0, return_inverse=True)
    for k in np.unique(condition):
        here = condition.ravel() == k
        start = rows[here & early]
        spread = np.where(start.std(axis=0) > 0, start.std(axis=0), 1.0)
        rows[here] = (rows[here] - start.mean(axis=0)) / spread * new.std(axis=0) + new.mean(axis=0)
    units, begin, p30 = [], 0, list(recipe.sensors).index("sensor_7")
    for unit in fleet:
        own = rows[begin : begin + unit.rows]
        begin += unit.rows
        if own[-15:, p30].mean() > mean[p30] + std[p30]:
            values = np.zeros((unit.rows, like.sensors.shape[1]))
            values[:, columns] = own
            time, still = np.arange(1.0, unit.rows + 1), np.repeat(like.settings[:1], unit.rows, axis=0)
            units.append(replace(like, id=unit.id, time=time, sensors=values, settings=still))
    return units


def judged(predictor: Predictor, fleet: Fleet, broken: Iterable[tuple[Unit, int]]) -> Counter[str]:
    """How rows from the fault on are shown, in counts."""
    counts: Counter[str] = Counter()
    for unit, first in broken:
        healths = predictor.predict(fleet.select([unit]), last=False)
        for left, health in zip(range(len(healths) - 1, -1, -1), healths, strict=True):
            if len(healths) - 1 - left < first:
                continue
            raised = DISTRUSTED.intersection(health.flags)
            counts["rows"] += 1
            counts["flagged"] += bool(raised)
            counts.update(raised)
            if left <= NEAR_FAILURE:
                counts["near failure"] += 1
                counts["fine near failure"] += status_of(health, THRESHOLD) == "ok"
            if health.low is not None or health.high is not None:
                counts["with interval"] += 1
                low, high = health.low or 0.0, np.inf if health.high is None else health.high
                counts["held"] += low <= left <= high
    return counts


def goals(fault: str, counts: Counter[str]) -> dict[str, bool]:
    """What is asked of a fault, and whether it is met."""
    asked = {}
    if fault == HEALTHY:
        asked["no false alarm"] = counts["flagged"] == 0 and counts["rows"] >= LEAST_HEALTHY_ROWS
    if fault.startswith(NEVER_FINE):
        asked["never fine"] = counts["fine near failure"] == 0
    if counts["with interval"]:
        asked["coverage"] = COVERAGE[0] <= counts["held"] / counts["with interval"] <= COVERAGE[1]
    return asked


def line(fault: str, counts: Counter[str]) -> str:
    """One line of the table: figures, and each goal with its verdict."""
    shown, rows = counts["with interval"], max(counts["rows"], 1)
    held = f"{counts['held'] / shown:6.1%}" if shown else "  none"
    verdicts = ", ".join(f"{goal} {'met' if met else 'MISSED'}" for goal, met in goals(fault, counts).items())
    return (
        f"{fault:22} {counts['rows']:7,} rows  flagged {counts['flagged'] / rows:6.1%} ({counts['flagged']})  "
        f"fine {counts['fine near failure']} of {counts['near failure']}  shown {shown / rows:6.1%}  held {held}  "
        f"{verdicts}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="gradient steps of each model")
    parser.add_argument("--copies", type=int, default=1, help="broken copies of every kept-out engine")
    parser.add_argument("--faults", nargs="+", choices=(HEALTHY, *FAULTS, UNSEEN), help="only these")
    options = parser.parse_args()
    chosen = options.faults or (HEALTHY, *FAULTS, UNSEEN)
    totals: dict[str, Counter[str]] = {fault: Counter() for fault in chosen}
    parts: dict[str, dict[str, Counter[str]]] = {}
    for subset, fold in MODELS:
        fleet = read_cmapss_train(DATA / f"train_{subset}.txt", subset)
        predictor, others = trained(fleet, subset, fold, options.steps), kept_out(fleet, fold)
        engines = [unit for unit in fleet if unit.id not in others]
        lives = [unit for unit in fleet if unit.id in others]
        columns, settings = predictor.recipe.check(fleet.schema, "benchmark")
        for fault in chosen:
            if fault == UNSEEN and (subset, fold) != MODELS[0]:
                continue
            broken: Iterable[tuple[Unit, int]] = ((unit, 0) for unit in lives)
            if fault == UNSEEN:
                broken = ((unit, 0) for unit in unseen_faults(predictor, engines, columns))
            elif fault != HEALTHY:
                broken = (
                    with_fault(unit, columns, deviations(predictor, unit, settings), fault, 1000 * copy + k)
                    for copy in range(options.copies)
                    for k, unit in enumerate(lives)
                )
            counts = judged(predictor, fleet, broken)
            parts.setdefault(f"{subset}-{fold}", {})[fault] = counts
            totals[fault] += counts
            print(f"{subset}-{fold} {line(fault, counts)}", flush=True)
    print("\nall together")
    for fault, counts in totals.items():
        print(line(fault, counts))
    verdicts = {fault: goals(fault, counts) for fault, counts in totals.items()}
    every = [met for asked in verdicts.values() for met in asked.values()]
    print(f"{sum(every)} of {len(every)} goals met")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"goals": verdicts, "together": totals, "parts": parts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
