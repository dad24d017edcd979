"""What metrics and baselines promise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from fedprognos.checks.requirement import check_named, require, same_bytes
from fedprognos.evaluation import Baseline, Metric, Points
from fedprognos.features import Recipe, RecipeOptions, WindowSet, build_windows, recipe_for
from fedprognos.fleet.synthetic import synthetic_batteries, synthetic_engines

CAP = 60.0


def check_metric(metric: Metric) -> None:
    """Check a metric on made-up predictions.

    - Sums of sites that add up give the value of all their predictions; so does `pool`, from the sites' values.
    - Each sum keeps to what its `values` allow, and applies to its tasks only.
    - Perfect predictions are at least as good as noisy ones.

    Raises
    ------
    CheckError
        The first promise that the metric breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_metric(fp.registry.metrics["rmse"])
    """
    where = check_named("metric", metric)
    require(metric.meaning.strip(), "its meaning is empty", where=where, hint="say what it is, in a phrase")
    for task in ("rul", "soh"):
        points = _points(task, noise=10.0)
        value = metric.value(points)
        if task not in metric.tasks:
            require(value is None, f"it has a value for {task}, which `tasks` does not list", where=where)
            continue
        parts = [_select(points, points.unit % 2 == k) for k in range(2)]
        totals = {part.name: [part.total(of) for of in parts] for part in metric.sums}
        for part in metric.sums:
            for of, total in zip(parts, totals[part.name], strict=True):
                possible = total is None or part.possible(total, len(of))
                require(possible, f"sum '{part.name}' is {total}, which `values` forbids", where=where)
        added = {name: sum(t) for name, t in totals.items() if None not in t}  # type: ignore[arg-type]
        from_sums = metric.value_from_sums(len(points), added)
        if metric.from_points is None:
            require(_close(value, from_sums), f"sites' sums give {from_sums}, predictions {value}", where=where)
        if metric.pool is not None and value is not None:
            values = np.array([metric.value(of) for of in parts], dtype=np.float64)
            pooled = metric.pool(values, np.array([float(len(of)) for of in parts]))
            require(_close(value, pooled), f"`pool` gives {pooled}, all predictions {value}", where=where)
        perfect = metric.value(_points(task, noise=0.0))
        if value is not None and perfect is not None:
            better = metric.badness(perfect) <= metric.badness(value)
            require(better, f"it is {perfect} for perfect predictions and {value} for noisy ones", where=where)


def check_baseline(baseline: Baseline) -> None:
    """Check a baseline on small made-up fleets of engines and batteries.

    - It gives a finite number for each test window, or None where the rule does not apply.
    - It gives the same twice, and does not look at the labels of test windows.

    Raises
    ------
    CheckError
        The first promise that the baseline breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_baseline(fp.registry.baselines["constant"])
    """
    where = check_named("baseline", baseline)
    for task, (train, test, recipe) in _small_tasks().items():
        at = f"{where}, {task}"
        predictions = baseline.predict(train, test, recipe)
        again = baseline.predict(train, replace(test, labels=np.zeros_like(test.labels)), recipe)
        if predictions is None:
            require(again is None, "whether it applies depends on the labels of test windows", where=at)
            continue
        shape = (len(test),)
        require(predictions.shape == shape, f"it gives shape {predictions.shape}, not {shape}", where=at)
        require(np.isfinite(predictions).all(), "a prediction is not a finite number", where=at)
        require(
            again is not None and same_bytes(predictions, again),
            "a second call, with other labels in the test windows, gives other predictions",
            where=at,
            hint="use labels of training windows only, and a fixed seed for anything random",
        )


def _points(task: str, noise: float) -> Points:
    rng = np.random.default_rng(0)
    truth = rng.uniform(5, 150, 60)
    prediction = truth + noise * rng.normal(size=60)
    bounds = (prediction - 8, prediction + 8)
    return Points(truth, prediction, np.repeat(np.arange(6), 10), task=task, cap=CAP, bounds=bounds)  # type: ignore[arg-type]


def _select(points: Points, which: np.ndarray) -> Points:
    low, high = points.bounds or (points.truth, points.truth)
    return replace(
        points,
        truth=points.truth[which],
        prediction=points.prediction[which],
        unit=points.unit[which],
        bounds=(low[which], high[which]),
    )


def _close(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return bool(np.isclose(first, second, rtol=1e-6, atol=1e-9))


@cache
def _small_tasks() -> dict[str, tuple[WindowSet, WindowSet, Recipe]]:
    """Training and test windows of engines and of batteries, and their recipes."""
    engines, other_engines = synthetic_engines(sites=1, units_per_site=3, test_units_per_site=2, seed=1)
    batteries = synthetic_batteries(sites=1, units_per_site=3, cycles=20, samples=60)
    fleets = {
        "rul": (engines, other_engines, {"window": 10, "cap": CAP, "stride": 5}),
        "soh": (batteries.select(batteries.ids[:2]), batteries.select(batteries.ids[2:]), {}),
    }
    tasks = {}
    for task, (train, test, options) in fleets.items():
        recipe = recipe_for(RecipeOptions.model_validate(options), {"only": train})
        tasks[task] = build_windows(recipe, train), build_windows(recipe, test), recipe
    return tasks
