"""What baselines cost on a generated fleet of many owners: fitted once, beside a new fit for every test that is asked.

Every owner has a model of its own, all owners together have one more, and each is asked about the units of every owner
it was trained on. Run from the root of the repository:

    python benchmarks/baselines.py [--owners 20] [--units 10] [--window 30] [--quick]

Seconds are processor time. Prints a table and writes build/benchmarks/baselines.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedprognos.evaluation import Baseline, baselines
from fedprognos.features import Recipe, RecipeOptions, WindowSet, build_windows, recipe_for
from fedprognos.fleet import Fleet, pool
from fedprognos.fleet.synthetic import synthetic_engines

OUTPUT = Path("build/benchmarks/baselines.json")
Tests = dict[tuple[str, ...], list[WindowSet]]


def by_site(fleet: Fleet) -> dict[str, Fleet]:
    """The units of each owner."""
    owners = sorted({str(unit.attributes["site"]) for unit in fleet})
    return {name: fleet.select([unit for unit in fleet if unit.attributes["site"] == name]) for name in owners}


def fitted_once(baseline: Baseline, train: dict[tuple[str, ...], WindowSet], tests: Tests, recipe: Recipe) -> None:
    """As a run does it."""
    for owners, windows in train.items():
        predict = baseline.fit(windows, recipe)
        for test in tests[owners] if predict is not None else ():
            predict(test)


def fitted_anew(baseline: Baseline, train: dict[tuple[str, ...], WindowSet], tests: Tests, recipe: Recipe) -> None:
    """A fit for every test."""
    for owners, windows in train.items():
        for test in tests[owners]:
            baseline.predict(windows, test, recipe)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--owners", type=int, default=20)
    parser.add_argument("--units", type=int, default=10, help="of each owner")
    parser.add_argument("--window", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="4 owners, 4 units each, windows of 10")
    options = parser.parse_args()
    owners, units, window = (4, 4, 10) if options.quick else (options.owners, options.units, options.window)
    engines, others = synthetic_engines(sites=owners, units_per_site=units, test_units_per_site=2, seed=0)
    recipe = recipe_for(RecipeOptions(window=window, cap=125), {"all": engines})
    fleets = {(name,): fleet for name, fleet in by_site(engines).items()}
    own_tests = {name: build_windows(recipe, fleet) for name, fleet in by_site(others).items()}
    train = {names: build_windows(recipe, fleet) for names, fleet in fleets.items()}
    tests: Tests = {names: [own_tests[names[0]]] for names in fleets}
    everyone = tuple(own_tests)
    train[everyone], tests[everyone] = build_windows(recipe, pool(fleets.values())), list(own_tests.values())
    windows = len(train[everyone])
    shown = Table(title=f"{owners} owners, {windows:,} windows of {window} rows: seconds of processor time")
    for heading in ("baseline", "fitted once", "fitted for every test", "ratio"):
        shown.add_column(heading, justify="left" if heading == "baseline" else "right")
    results = {}
    for name, baseline in baselines.items():
        seconds = []
        for way in (fitted_once, fitted_anew):
            began = time.process_time()
            way(baseline, train, tests, recipe)
            seconds.append(time.process_time() - began)
        results[name] = {"once": seconds[0], "anew": seconds[1], "windows": windows, "owners": owners}
        shown.add_row(baseline.label, *(f"{value:.2f}" for value in seconds), f"{seconds[1] / seconds[0]:.1f}")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(results, indent=2) + "\n")
    Console().print(shown)


if __name__ == "__main__":
    main()
