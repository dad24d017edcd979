"""From trained models to rows of the results table, on test fleets that belong to the runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.evaluation import YARDSTICKS, Prediction, Row, score
from fedprognos.evaluation.options import EvaluationOptions
from fedprognos.evaluation.score_at import scored_points
from fedprognos.experiment.scenario import EVERYONE, Scenario
from fedprognos.features import Recipe, WindowSet, build_windows
from fedprognos.fleet import Fleet, pool
from fedprognos.networks import Network, predict

Predictor = Callable[[WindowSet, str], FloatArray | None]
"""From windows and the name of the test client to predictions."""
DRAWN_UNITS = 9
"""Test units of each client whose whole way through life is predicted for the report."""


@dataclass(frozen=True, eq=False)
class Examination:
    """Test windows of one scenario: those scored, whole lives of a few units to draw, and of all to judge decisions."""

    scenario: str
    recipe: Recipe
    scored: Mapping[str, WindowSet]
    drawn: Mapping[str, WindowSet]
    lives: Mapping[str, WindowSet]
    clients: tuple[str, ...]
    shared_test: bool
    bootstrap: int

    def tests_of(self, clients: Sequence[str]) -> list[str]:
        """Tests that a model of these clients is examined on: the common one, or their own."""
        return [name for name in sorted(self.scored) if self.shared_test or name in clients]


def examination(scenario: Scenario, recipe: Recipe, section: EvaluationOptions) -> Examination:
    """Prepare the test windows of a scenario."""
    points = scored_points(scenario.tests.values(), section.points)
    scored = {name: build_windows(recipe, fleet, points=points) for name, fleet in scenario.tests.items()}
    drawn = {}
    if points == "last":
        for name, fleet in scenario.tests.items():
            drawn[name] = build_windows(recipe, _sample(fleet, scored[name]), stride=1)
    lives = {}
    if recipe.task == "rul":
        again = points == "last"
        lives = {name: build_windows(recipe, f) if again else scored[name] for name, f in scenario.tests.items()}
    clients = tuple(sorted(scenario.clients))
    return Examination(scenario.name, recipe, scored, drawn, lives, clients, scenario.shared_test, section.bootstrap)


def _sample(fleet: Fleet, windows: WindowSet) -> Fleet:
    """Some units, spread evenly over their true remaining life."""
    order = np.array(windows.unit_ids, dtype=object)[windows.unit[np.argsort(windows.labels, kind="stable")]]
    chosen = np.linspace(0, len(order) - 1, min(DRAWN_UNITS, len(order))).round().astype(int)
    return fleet.select([str(order[k]) for k in chosen])


def network_predictor(network: Network, recipe: Recipe) -> Predictor:
    """Predictions of one network, the same for every test client."""
    return lambda windows, _: predict(network, windows, recipe)


def errors(exam: Examination, clients: Sequence[str], predictor: Predictor) -> dict[str, tuple[float, float | None]]:
    """Raw and capped test RMSE by test client: what the history of rounds shows."""
    rows, _ = assess(exam, "", 0, tuple(clients), predictor, {"selected_on": "last"}, bootstrap=0, draw=False)
    return {row.test_client: (row.rmse, row.rmse_capped) for row in rows}


def assess(
    exam: Examination,
    method: str,
    seed: int,
    clients: tuple[str, ...],
    predictor: Predictor,
    facts: Mapping[str, Any],
    *,
    bootstrap: int | None = None,
    draw: bool = True,
) -> tuple[list[Row], list[Prediction]]:
    """Rows and predictions of one model; none where it cannot say anything about these tests.

    Parameters
    ----------
    clients
        Who trained it.
    facts
        The fields of a row that do not come from the predictions.
    """
    tests = exam.tests_of(clients)
    head = facts.get("head")
    predictions: list[Prediction] = []
    parts: list[tuple[str, FloatArray, FloatArray, NDArray[np.int64]]] = []
    for name in tests:
        windows = exam.scored[name]
        predicted = predictor(windows, name)
        if predicted is None:
            return [], []
        predictions.append(Prediction(exam.scenario, method, head, clients, name, seed, windows, predicted))
        if draw and seed == 0 and name in exam.drawn and (life := predictor(exam.drawn[name], name)) is not None:
            predictions.append(
                Prediction(exam.scenario, method, head, clients, name, seed, exam.drawn[name], life, scored=False)
            )
        if draw and name in exam.lives:
            way = exam.lives[name]
            if (life := predicted if way is windows else predictor(way, name)) is not None:
                one = Prediction(exam.scenario, method, head, clients, name, seed, way, life, scored=False, life=True)
                predictions.append(one)
        parts.append((name, windows.labels, predicted, windows.unit))
    if len(tests) > 1:
        parts.append(_pooled(parts, exam))
    samples = exam.bootstrap if bootstrap is None else bootstrap
    rows = []
    for name, truth, value, unit in parts:
        scores = score(truth, value, unit, task=exam.recipe.task, cap=exam.recipe.cap, bootstrap=samples)
        keys = {
            "scenario": exam.scenario,
            "method": method,
            "train_clients": clients,
            "test_client": name,
            "seed": seed,
        }
        rows.append(
            Row.model_validate({**NO_NETWORK, **facts, **scores.as_dict(), **keys, "measure": exam.recipe.target_unit})
        )
    return rows, predictions


NO_NETWORK = dict.fromkeys(("head", "round", "width", "parameters", "local_epochs", "bytes"))
"""Fields of a row that yardsticks leave empty."""


def _pooled(
    parts: Sequence[tuple[str, FloatArray, FloatArray, NDArray[np.int64]]], exam: Examination
) -> tuple[str, FloatArray, FloatArray, NDArray[np.int64]]:
    """All tests together, units kept apart."""
    before = np.cumsum([0, *(len(exam.scored[name].unit_ids) for name, *_ in parts)])
    units = [unit + shift for (_, _, _, unit), shift in zip(parts, before, strict=False)]
    truth, value = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
    return EVERYONE, truth, value, np.concatenate(units)


def assess_yardsticks(
    exam: Examination, scenario: Scenario, names: Sequence[str]
) -> tuple[list[Row], list[Prediction]]:
    """The yardsticks of every client by itself, and of all data pooled."""
    fleets: dict[tuple[str, ...], Fleet] = {(name,): fleet for name, fleet in scenario.clients.items()}
    if len(scenario.clients) > 1:
        fleets[exam.clients] = pool([scenario.clients[name] for name in exam.clients])
    rows: list[Row] = []
    predictions: list[Prediction] = []
    for clients, fleet in sorted(fleets.items()):
        train = build_windows(exam.recipe, fleet)
        for name in names:
            yardstick = YARDSTICKS[name]

            def predictor(windows: WindowSet, _: str, train: WindowSet = train, yardstick: Any = yardstick) -> Any:
                return yardstick(train, windows, exam.recipe)

            chosen = {"selected_on": "validation" if name == "ridge" else "last"}
            more = assess(exam, name, 0, clients, predictor, chosen)
            rows += more[0]
            predictions += more[1]
    return rows, predictions
