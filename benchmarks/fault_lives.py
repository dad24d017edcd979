"""What a service shows of machines with a fault, how true it is, and which goals that meets.

Training engines of C-MAPSS FD001 are cut in three: each third is kept out once, and the others train a small model of
whole lives with intervals. One third of FD004 is kept out, too. A fault is put into one sensor of each kept-out engine
at a random moment (some faults: into two, or into the operating settings). From then on every row is judged as the page
shows it: flagged or not, "fine" or not, and the truth within its 90 % or not. An interval that is open above means "or
more". The unseen fault is the fan fault of FD004: its engines are standardised in each operating condition, moved to
where those of FD001 begin, and only those whose P30 (sensor_7) rises are taken. No FD001 engine does that.

Limits were chosen on the kept-out engines of FD001-0; the other models judge them.

Models are trained once, in build/benchmarks/fault-lives, and used again. Each model's counts are kept there, too, fault
by fault, so that the work can be done in pieces. Writes build/benchmarks/fault_lives.json.

    python benchmarks/fault_lives.py [--steps 400] [--copies 1] [--models FD001-0] [--faults none 'offset 3']
    python benchmarks/fault_lives.py --windows --faults none 'unseen fault'
    python benchmarks/fault_lives.py --choose --copies 4
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.features import conditions
from fedprognos.fleet import Fleet, Unit
from fedprognos.fleet.readers.cmapss import read_cmapss_train
from fedprognos.prognosis import Health, Predictor, Stream, sensor_traces
from fedprognos.prognosis.predictor import table_of
from fedprognos.prognosis.sensor_faults import DISTRUSTED
from fedprognos.service.fleet_view import status_of

Columns = tuple[list[int], list[int]]
"""Where the recipe's sensors and settings are in a fleet's."""
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
    "early glitch 3",
    "early glitch 30",
    *(f"burst {size}" for size in (3, 10)),
    *(f"pair {size}" for size in (3, 10)),
    "setting once",
    *(f"offset {size}" for size in (1, 2, 3, 5)),
    "gain 1.01",
    "gain 1.1",
    *(f"drift {rate}" for rate in (0.01, 0.02, 0.05)),
    "frozen",
    "frozen late",
    "recovered",
    "dither",
    "saturated",
    "dead",
    "blank 0.3",
    "swapped",
    "offset 3 + frozen",
    "drift 0.05 + offset 3",
    "drift 0.02 + drift 0.02",
)
"""A kind, and a size in deviations (rate: a row; gain: a factor; blank: a share of rows).

Early: in the first five rows. Burst: five rows in turn up and down. Pair: two sensors in the same row. Setting once: a
row with the settings of another row. Frozen late: with 10 to 30 rows left. Recovered: frozen for 30 rows. Saturated: at
the ends of what the sensor has shown until then."""
UNSEEN, HEALTHY = "unseen fault", "none"
NEVER_FINE = ("zero", "glitch", "early", "burst", "pair", "setting", "offset", UNSEEN)
"""Beginnings of the faults under which no row near failure may be called fine."""
LEAST_HEALTHY_ROWS, COVERAGE, NOMINAL = 30_000, (0.85, 0.95), 0.9
DOUBTS = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25)
FOLDS = 3
MODELS = (("FD001", 0), ("FD001", 1), ("FD001", 2), ("FD004", 0))
"""Data set, and which third of its training engines is kept out."""
BASE, WINDOWS = "turbofan-life", "turbofan"
"""Presets of models of whole lives, and of windows."""
EXPERIMENT = """title = "{subset}, two in three training engines"
base = "{base}"
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


def place_of(subset: str, fold: int, base: str) -> Path:
    """The folder of a model."""
    return PLACE / (f"{subset}-{fold}" if base == BASE else f"{base}-{subset}-{fold}")


def trained(fleet: Fleet, subset: str, fold: int, steps: int, base: str = BASE) -> Predictor:
    """The model, trained where it is not there yet. Test engines are kept-out ones cut off at a random moment."""
    place = place_of(subset, fold, base)
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
        (place / "fault-lives.toml").write_text(EXPERIMENT.format(subset=subset, base=base))
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
    known = np.array(recipe.condition_keys)
    ids, _ = conditions.nearest(unit.settings[:, settings], recipe.conditions, recipe.settings, known)
    return np.array(recipe.std)[ids]


def with_fault(unit: Unit, columns: list[int], std: FloatArray, fault: str, seed: int) -> tuple[Unit, int]:
    """An engine with a fault (or two, each at its own moment), and the row from which on it is broken.

    Deviations `std` (rows, sensors) are those of each row's operating condition.
    """
    rng = np.random.default_rng([seed, *fault.encode()])
    values, settings, first = unit.sensors.copy(), unit.settings, unit.rows
    for part in fault.split(" + "):
        *_, kind, size = part.split() if part[-1].isdigit() else (part, "0")
        start, sensor = int(unit.rows * rng.uniform(0.3, 0.8)), int(rng.integers(len(columns)))
        sign, other = rng.choice([-1, 1]), int(rng.integers(1, len(columns)))
        if part.startswith("early"):
            start = int(rng.integers(5))
        if part == "frozen late":
            start = unit.rows - int(rng.integers(10, 31))
        column, second = columns[sensor], columns[(sensor + other) % len(columns)]
        after, later = slice(start, None), np.arange(unit.rows - start)
        step = sign * float(size) * std[:, sensor]
        if kind == "zero once":
            values[start, column] = 0.0
        elif kind == "glitch":
            values[start, column] += step[start]
        elif kind == "burst":
            rows = np.arange(start, min(start + 5, unit.rows))
            values[rows, column] += step[rows] * (-1) ** rows
        elif kind == "pair":
            values[start, column] += step[start]
            values[start, second] += sign * float(size) * std[start, (sensor + other) % len(columns)]
        elif kind == "setting once":
            settings = settings.copy()
            settings[start] = settings[int(rng.integers(unit.rows))]
        elif kind == "offset":
            values[after, column] += step[after]
        elif kind == "gain":
            values[after, column] *= float(size)
        elif kind == "drift":
            values[after, column] += step[after] * later
        elif kind.startswith("frozen"):
            values[after, column] = values[start, column]
        elif kind == "recovered":
            values[start : start + 30, column] = values[start, column]
        elif kind == "dither":
            values[after, column] = values[start, column] + 0.01 * std[start, sensor] * rng.normal(size=len(later))
        elif kind == "saturated":
            values[after, column] = np.clip(values[after, column], *np.quantile(values[: start + 1, column], [0, 1]))
        elif kind == "dead":
            values[after, column] = 0.0
        elif kind == "blank":
            values[after, column] = np.where(rng.random(len(later)) < float(size), np.nan, values[after, column])
        elif kind == "swapped":
            values[after, column], values[after, second] = values[after, second], values[after, column].copy()
        else:
            raise ValueError(part)
        first = min(first, start)
    return replace(unit, sensors=values, settings=settings), first


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


def healths_of(predictor: Predictor, unit: Unit, columns: Columns) -> list[Health]:
    """Health at every row of an engine."""
    updates = Stream(predictor, trusting=True).feed_table(table_of(unit, columns))
    return [health for update in updates for health in update.healths]


def holds(health: Health, left: int) -> bool:
    """Whether the truth lies within the interval."""
    return (health.low or 0.0) <= left <= (np.inf if health.high is None else health.high)


def judged(
    predictor: Predictor, columns: Columns, broken: Iterable[tuple[Unit, int]], sound: Mapping[str, Unit]
) -> Counter[str]:
    """How rows from the fault on are shown, in counts.

    Parameters
    ----------
    broken
        Engines with a fault, and the row from which on they have it.
    sound
        The same engines without a fault, by name, where there are such.
    """
    counts: Counter[str] = Counter()
    expected = {name: healths_of(predictor, unit, columns) for name, unit in sound.items()}
    for unit, first in broken:
        healths = healths_of(predictor, unit, columns)
        shown, held = 0, 0
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
                shown, held = shown + 1, held + holds(health, left)
                if unit.id in expected:
                    counts["held without the fault"] += holds(expected[unit.id][len(healths) - 1 - left], left)
        counts.update({"with interval": shown, "held": held, "engines": shown > 0})
        counts.update({"held x held": held**2, "held x shown": held * shown, "shown x shown": shown**2})
    return counts


def uncertainty(counts: Counter[str]) -> float:
    """Standard error of the share of intervals that hold: rows of an engine are right or wrong together."""
    share = counts["held"] / counts["with interval"]
    squares = counts["held x held"] - 2 * share * counts["held x shown"] + share**2 * counts["shown x shown"]
    return float(np.sqrt(max(squares, 0.0)) / counts["with interval"])


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
    held = f"{counts['held'] / shown:6.1%} +- {uncertainty(counts):4.1%}" if shown else "  none         "
    verdicts = ", ".join(f"{goal} {'met' if met else 'MISSED'}" for goal, met in goals(fault, counts).items())
    if sound := counts["held without the fault"]:
        held += f" ({sound / shown:.1%} without it)"
    return (
        f"{fault:24} {counts['rows']:7,} rows  flagged {counts['flagged'] / rows:6.1%} ({counts['flagged']})  "
        f"fine {counts['fine near failure']} of {counts['near failure']}  shown {shown / rows:6.1%}  held {held}  "
        f"{verdicts}"
    )


def counts_of(
    subset: str, fold: int, faults: Sequence[str], steps: int, copies: int, base: str = BASE
) -> dict[str, Counter[str]]:
    """Counts of each fault with one model, written after each."""
    fleet = read_cmapss_train(DATA / f"train_{subset}.txt", subset)
    predictor, others = trained(fleet, subset, fold, steps, base), kept_out(fleet, fold)
    engines = [unit for unit in fleet if unit.id not in others]
    lives = [unit for unit in fleet if unit.id in others]
    columns = predictor.recipe.check(fleet.schema, "benchmark")
    file = place_of(subset, fold, base) / "counts.json"
    known: dict[str, dict[str, int]] = json.loads(file.read_text()) if file.is_file() else {}
    for fault in faults:
        if fault == UNSEEN and subset != "FD001":
            continue
        broken: Iterable[tuple[Unit, int]] = ((unit, 0) for unit in lives)
        if fault == UNSEEN:
            broken = ((unit, 0) for unit in unseen_faults(predictor, engines, columns[0]))
        elif fault != HEALTHY:
            broken = (
                with_fault(unit, columns[0], deviations(predictor, unit, columns[1]), fault, 1000 * copy + k)
                for copy in range(copies)
                for k, unit in enumerate(lives)
            )
        sound = {} if fault in (HEALTHY, UNSEEN) else {unit.id: unit for unit in lives}
        known[fault] = dict(judged(predictor, columns, broken, sound))
        print(f"{subset}-{fold} {line(fault, Counter(known[fault]))}", flush=True)
        file.write_text(json.dumps(known, indent=1) + "\n")
    return {fault: Counter(counts) for fault, counts in known.items()}


def choose(steps: int, copies: int) -> float:
    """The doubt from which on intervals have to widen: the largest with which they hold often enough under offsets.

    Offsets begin long before they are found. Often enough is the nominal share and a standard error. Only kept-out
    engines of FD001-0 are looked at.
    """
    fleet = read_cmapss_train(DATA / "train_FD001.txt", "FD001")
    predictor, others = trained(fleet, "FD001", 0, steps), kept_out(fleet, 0)
    columns = predictor.recipe.check(fleet.schema, "benchmark")
    for doubt in DOUBTS:
        sensor_traces.DOUBT, sensor_traces.MOST_STRETCH = doubt, 1 / doubt
        least = 1.0
        for fault in (fault for fault in FAULTS if fault.startswith("offset") and "+" not in fault):
            lives = [unit for unit in fleet if unit.id in others]
            broken = (
                with_fault(unit, columns[0], deviations(predictor, unit, columns[1]), fault, 1000 * copy + k)
                for copy in range(copies)
                for k, unit in enumerate(lives)
            )
            counts = judged(predictor, columns, broken, {})
            least = min(least, counts["held"] / counts["with interval"] - uncertainty(counts))
        print(f"doubt from {doubt:.2f} on: at least {least:.1%} hold under every offset, less a standard error")
        if least >= NOMINAL:
            break
    return doubt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="gradient steps of each model")
    parser.add_argument("--copies", type=int, default=1, help="broken copies of every kept-out engine")
    parser.add_argument("--faults", nargs="*", choices=(HEALTHY, *FAULTS, UNSEEN), help="judge only these now")
    models = {f"{subset}-{fold}": (subset, fold) for subset, fold in MODELS}
    parser.add_argument("--models", nargs="+", choices=tuple(models), default=list(models), help="only these")
    parser.add_argument("--choose", action="store_true", help="choose the doubt from which on intervals widen")
    parser.add_argument("--windows", action="store_true", help="models of windows instead of whole lives")
    options = parser.parse_args()
    if options.choose:
        in_use = sensor_traces.DOUBT
        print(f"chosen: {choose(options.steps, options.copies)}; in use: {in_use}")
        return
    chosen = (HEALTHY, *FAULTS, UNSEEN) if options.faults is None else options.faults
    base = WINDOWS if options.windows else BASE
    parts = {name: counts_of(*models[name], chosen, options.steps, options.copies, base) for name in options.models}
    together = {
        fault: sum((part[fault] for part in parts.values() if fault in part), Counter[str]())
        for fault in (HEALTHY, *FAULTS, UNSEEN)
    }
    totals = {fault: counts for fault, counts in together.items() if counts}
    print(f"\n{', '.join(options.models)} together")
    for fault, counts in totals.items():
        print(line(fault, counts))
    verdicts = {fault: goals(fault, counts) for fault, counts in totals.items()}
    every = [met for asked in verdicts.values() for met in asked.values()]
    print(f"{sum(every)} of {len(every)} goals met")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"goals": verdicts, "together": totals, "parts": parts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
