"""From trained models to rows of the results table, on test fleets that belong to the runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedprognos.config import EvaluationSection
from fedprognos.errors import RecipeError
from fedprognos.evaluation import YARDSTICKS, Prediction, Row, score
from fedprognos.features import Recipe, WindowSet, build_windows
from fedprognos.federation.scenario import EVERYONE, Scenario
from fedprognos.federation.strategies import Model
from fedprognos.fleet import Fleet, pool
from fedprognos.model import network_with, parameters_of, predict

FloatArray = NDArray[np.float64]
SelectedOn = Literal["validation", "last"]
DRAWN_UNITS = 9
"""Test units of each client whose whole way through life is predicted for the report."""


@dataclass(frozen=True, eq=False)
class Examination:
    """Test windows of one setting: those that are scored, and whole lives of a few units to draw."""

    setting: str
    recipe: Recipe
    scored: Mapping[str, WindowSet]
    drawn: Mapping[str, WindowSet]
    clients: tuple[str, ...]
    shared_test: bool
    bootstrap: int


def examination(scenario: Scenario, recipe: Recipe, section: EvaluationSection) -> Examination:
    """Prepare the test windows of a setting."""
    points: Literal["last", "all"] = _points(scenario, section)
    scored = {name: build_windows(recipe, fleet, points=points) for name, fleet in scenario.tests.items()}
    drawn = {}
    if points == "last":
        for name, fleet in scenario.tests.items():
            drawn[name] = build_windows(recipe, _sample(fleet, scored[name]), stride=1)
    return Examination(
        scenario.setting,
        recipe,
        scored,
        drawn,
        tuple(sorted(scenario.clients)),
        scenario.shared_test,
        section.bootstrap,
    )


def _points(scenario: Scenario, section: EvaluationSection) -> Literal["last", "all"]:
    if section.points != "auto":
        return section.points
    cut = any(unit.rul_at_end for fleet in scenario.tests.values() for unit in fleet)
    return "last" if cut else "all"


def _sample(fleet: Fleet, windows: WindowSet) -> Fleet:
    """Some units, spread evenly over their true remaining life."""
    order = np.array(windows.unit_ids, dtype=object)[windows.unit[np.argsort(windows.labels, kind="stable")]]
    chosen = np.linspace(0, len(order) - 1, min(DRAWN_UNITS, len(order))).round().astype(int)
    return fleet.select([str(order[k]) for k in chosen])


def assess(
    exam: Examination, method: str, seed: int, model: Model, *, selected_on: SelectedOn
) -> tuple[list[Row], list[Prediction]]:
    """Rows and predictions of one model: on the common test, or on the tests of those who trained it."""
    network = network_with(model.network, model.weights)
    facts = {
        "head": "mean",
        "round": None,
        "selected_on": selected_on,
        "width": model.network.widths,
        "parameters": parameters_of(model.network),
        "local_epochs": model.epochs,
        "bytes": model.bytes,
        "collapsed": model.collapsed,
    }
    return _rows(exam, method, seed, model.train_clients, lambda w: predict(network, w, exam.recipe), facts)


def assess_yardsticks(
    exam: Examination, scenario: Scenario, names: Sequence[str]
) -> tuple[list[Row], list[Prediction]]:
    """The yardsticks of every client by itself, and of all data pooled."""
    fleets: dict[tuple[str, ...], Fleet] = {(name,): fleet for name, fleet in scenario.clients.items()}
    if len(scenario.clients) > 1:
        fleets[exam.clients] = pool([scenario.clients[name] for name in exam.clients])
    rows: list[Row] = []
    predictions: list[Prediction] = []
    facts = dict.fromkeys(("head", "round", "width", "parameters", "local_epochs", "bytes"))
    for clients, fleet in sorted(fleets.items()):
        train = build_windows(exam.recipe, fleet)
        for name in names:
            more = _rows(
                exam,
                name,
                0,
                clients,
                lambda w, train=train, name=name: YARDSTICKS[name](train, w, exam.recipe),  # type: ignore[misc]
                {**facts, "selected_on": "validation" if name == "ridge" else "last"},
            )
            rows += more[0]
            predictions += more[1]
    return rows, predictions


def _rows(
    exam: Examination,
    method: str,
    seed: int,
    clients: tuple[str, ...],
    predictor: Callable[[WindowSet], FloatArray | None],
    facts: Mapping[str, object],
) -> tuple[list[Row], list[Prediction]]:
    tests = [name for name in sorted(exam.scored) if exam.shared_test or name in clients]
    rows, predictions = [], []
    truths, values, units = [], [], []
    for name in tests:
        windows = exam.scored[name]
        predicted = predictor(windows)
        if predicted is None:
            return [], []
        predictions.append(Prediction(exam.setting, method, clients, name, seed, windows, predicted))
        if seed == 0 and name in exam.drawn and (life := predictor(exam.drawn[name])) is not None:
            predictions.append(Prediction(exam.setting, method, clients, name, seed, exam.drawn[name], life, False))
        truths.append(windows.labels)
        values.append(predicted)
        units.append(windows.unit + sum(len(exam.scored[n].unit_ids) for n in tests[: tests.index(name)]))
        rows.append((name, truths[-1], predicted, windows.unit))
    if len(tests) > 1:
        rows.append((EVERYONE, np.concatenate(truths), np.concatenate(values), np.concatenate(units)))
    return [
        Row.model_validate(
            {
                **facts,
                **score(
                    truth, value, unit, task=exam.recipe.task, cap=exam.recipe.cap, bootstrap=exam.bootstrap
                ).as_dict(),
                "setting": exam.setting,
                "method": method,
                "train_clients": clients,
                "test_client": name,
                "seed": seed,
                "unit": exam.recipe.target_unit,
            }
        )
        for name, truth, value, unit in rows
    ], predictions


def usable(scenario: Scenario, recipe: Recipe) -> None:
    """Refuse a setting in which some client has no window at all, naming the client."""
    for name, fleet in sorted(scenario.clients.items()):
        try:
            build_windows(recipe, fleet)
        except RecipeError as error:
            raise RecipeError(error.what, where=f"client {name}", hint=error.hint) from None
