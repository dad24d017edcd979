"""From trained models to rows of the results table, on test fleets that belong to the runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.evaluation import EVERYONE, Baseline, ClientPredictions, Points, ResultRow, Scores, baselines, score
from fedprognos.evaluation.evaluation_options import EvaluationOptions
from fedprognos.evaluation.scores import moments_scored
from fedprognos.experiment.scenario import Scenario
from fedprognos.features import Recipe, WindowSet, build_windows
from fedprognos.fleet import Fleet, pool
from fedprognos.networks import Network, predict

Predictor = Callable[[WindowSet, str], FloatArray | None]
"""From windows and the name of the test client to predictions."""
Interval = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""From predictions to the ends of their intervals."""
DRAWN_UNITS = 9
"""Test units of each client whose whole way through life is predicted for the report."""


@dataclass(frozen=True, eq=False)
class EvaluationWindows:
    """Test windows of one scenario: those scored, whole lives of a few units to draw, and of all to judge decisions."""

    scenario: str
    recipe: Recipe
    scored: Mapping[str, WindowSet]
    drawn: Mapping[str, WindowSet]
    trajectories: Mapping[str, WindowSet]
    clients: tuple[str, ...]
    shared_test: bool
    bootstrap: int

    def tests_of(self, clients: Sequence[str]) -> list[str]:
        """Tests that a model of these clients is evaluated on: the common one, or their own."""
        return [name for name in sorted(self.scored) if self.shared_test or name in clients]


def evaluation_windows(scenario: Scenario, recipe: Recipe, section: EvaluationOptions) -> EvaluationWindows:
    """Prepare the test windows of a scenario."""
    tests = {name: _long_enough(fleet, section.least_rows) for name, fleet in scenario.tests.items()}
    points = moments_scored(tests.values(), section.score_at)
    scored = {name: build_windows(recipe, fleet, points=points) for name, fleet in tests.items()}
    drawn = {}
    if points == "last":
        for name, fleet in tests.items():
            drawn[name] = build_windows(recipe, _sample(fleet, scored[name]), stride=1)
    trajectories = {}
    if recipe.task == "rul":
        again = points == "last"
        trajectories = {name: build_windows(recipe, f) if again else scored[name] for name, f in tests.items()}
    clients = tuple(sorted(scenario.clients))
    return EvaluationWindows(
        scenario.name, recipe, scored, drawn, trajectories, clients, scenario.shared_test, section.bootstrap
    )


def _long_enough(fleet: Fleet, rows: int) -> Fleet:
    """The units with enough rows; refused where none is left."""
    kept = [unit for unit in fleet if unit.rows >= rows]
    if not kept:
        raise DataError(
            f"no test unit has {rows} rows", where=fleet.source or fleet.name, hint="lower evaluation.least_rows"
        )
    return fleet if len(kept) == len(fleet) else fleet.select(kept)


def _sample(fleet: Fleet, windows: WindowSet) -> Fleet:
    """Some units, spread evenly over their true remaining life."""
    order = np.array(windows.unit_ids, dtype=object)[windows.unit[np.argsort(windows.labels, kind="stable")]]
    chosen = np.linspace(0, len(order) - 1, min(DRAWN_UNITS, len(order))).round().astype(int)
    return fleet.select([str(order[k]) for k in chosen])


def network_predictor(network: Network, recipe: Recipe) -> Predictor:
    """Predictions of one network, the same for every test client."""
    return lambda windows, _: predict(network, windows, recipe)


def errors(
    tests: EvaluationWindows, clients: Sequence[str], predictor: Predictor
) -> dict[str, tuple[float, float | None]]:
    """Raw and capped test RMSE by test client: what the history of rounds shows."""
    rows, _ = assess(tests, "", 0, tuple(clients), predictor, {"selected_on": "last"}, bootstrap=0, draw=False)
    return {row.test_client: (row.rmse, row.scores.get("rmse_capped")) for row in rows}


def assess(
    tests: EvaluationWindows,
    method: str,
    seed: int,
    clients: tuple[str, ...],
    predictor: Predictor,
    facts: Mapping[str, Any],
    *,
    interval: Interval | None = None,
    bootstrap: int | None = None,
    draw: bool = True,
) -> tuple[list[ResultRow], list[ClientPredictions]]:
    """Rows and predictions of one model; none where it cannot say anything about these tests.

    Parameters
    ----------
    clients
        Who trained it.
    facts
        The fields of a row that do not come from the predictions.
    interval
        Gives prediction intervals, which are then scored as well.
    """
    names = tests.tests_of(clients)
    predictions: list[ClientPredictions] = []
    for name in names:
        windows = tests.scored[name]
        predicted = predictor(windows, name)
        if predicted is None:
            return [], []
        shared = (tests.scenario, method, facts.get("head"), clients, name, seed)
        predictions.append(ClientPredictions(*shared, windows, predicted))
        if draw and seed == 0 and name in tests.drawn and (life := predictor(tests.drawn[name], name)) is not None:
            predictions.append(ClientPredictions(*shared, tests.drawn[name], life, scored=False))
        if draw and name in tests.trajectories:
            way = tests.trajectories[name]
            if (life := predicted if way is windows else predictor(way, name)) is not None:
                predictions.append(ClientPredictions(*shared, way, life, scored=False, trajectory=True))
    if interval is not None:
        predictions = [replace(p, bounds=interval(p.values)) for p in predictions]
    parts = {p.test_client: [p] for p in predictions if p.scored}
    if len(names) > 1:
        parts[EVERYONE] = [p for p in predictions if p.scored]
    samples = tests.bootstrap if bootstrap is None else bootstrap
    rows = []
    for name, found in parts.items():
        scores = _scores(found, tests.recipe, samples)
        keys = {"scenario": tests.scenario, "method": method, "train_clients": clients, "test_client": name}
        more = {"seed": seed, "measure": tests.recipe.target_measure}
        rows.append(ResultRow.model_validate({**facts, **scores, **keys, **more}))
    return rows, predictions


def _scores(found: Sequence[ClientPredictions], recipe: Recipe, samples: int) -> Scores:
    """Scores over the points of all tests together, units kept apart."""
    before = np.cumsum([0, *(len(p.windows.unit_ids) for p in found)])
    unit = np.concatenate([p.windows.unit + shift for p, shift in zip(found, before, strict=False)])
    truth, said = np.concatenate([p.windows.labels for p in found]), np.concatenate([p.values for p in found])
    ends = [p.bounds for p in found if p.bounds is not None]
    bounds = (np.concatenate([low for low, _ in ends]), np.concatenate([high for _, high in ends])) if ends else None
    return score(Points(truth, said, unit, task=recipe.task, cap=recipe.cap, bounds=bounds), bootstrap=samples)


def assess_baselines(
    tests: EvaluationWindows, scenario: Scenario, names: Sequence[str]
) -> tuple[list[ResultRow], list[ClientPredictions]]:
    """The baselines of every client by itself, and of all data pooled."""
    fleets: dict[tuple[str, ...], Fleet] = {(name,): fleet for name, fleet in scenario.clients.items()}
    if len(scenario.clients) > 1:
        fleets[tests.clients] = pool([scenario.clients[name] for name in tests.clients])
    rows: list[ResultRow] = []
    predictions: list[ClientPredictions] = []
    for clients, fleet in sorted(fleets.items()):
        train = build_windows(tests.recipe, fleet)
        for name in names:
            baseline = baselines[name]

            def predictor(windows: WindowSet, _: str, train: WindowSet = train, baseline: Baseline = baseline) -> Any:
                return baseline.predict(train, windows, tests.recipe)

            more = assess(tests, name, 0, clients, predictor, {"selected_on": baseline.selected_on})
            rows += more[0]
            predictions += more[1]
    return rows, predictions
