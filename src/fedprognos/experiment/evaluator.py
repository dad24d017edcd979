"""From trained models to rows of the results table.

An :class:`Evaluator` scores the networks of one scenario: the runner itself on test windows that it holds
(:class:`HeldTests`), or sites on machines of their own, which send sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.evaluation import (
    EVERYONE,
    QUANTILE_LEVELS,
    ClientPredictions,
    EvaluationOptions,
    Fitted,
    Points,
    ResultRow,
    Scores,
    baselines,
    moments_scored,
    score,
)
from fedprognos.experiment.run_events import JobKey
from fedprognos.experiment.scenario import Scenario
from fedprognos.features import Recipe, WindowSet, build_windows
from fedprognos.federation import ClientFolder
from fedprognos.fleet import Fleet, pool
from fedprognos.networks import Calibration, Network, predict

Predictor = Callable[[WindowSet, str], FloatArray | None]
"""From windows and the name of the test client to predictions."""
Errors = Mapping[str, tuple[float, float | None]]
"""Raw and capped RMSE by test client."""
DRAWN_UNITS = 9
"""Test units of each client whose whole life is predicted for the report's figures."""


@dataclass(frozen=True, eq=False)
class FinishedModel:
    """A model as a job ends with it.

    Parameters
    ----------
    owners
        Who trained it.
    networks
        The network to evaluate, or several whose mean prediction counts.
    facts
        The fields of its rows that do not come from predictions.
    personal_heads
        Where clients have personal heads: the name of each client's head in its folder.
    """

    key: JobKey
    method: str
    owners: tuple[str, ...]
    networks: Sequence[Network]
    facts: Mapping[str, object]
    personal_heads: Mapping[str, str] | None = None
    calibration: Calibration | None = None


class Evaluator(Protocol):
    """Scores the networks of one scenario."""

    @property
    def clients(self) -> tuple[str, ...]:
        """All clients that may train, sorted."""

    @property
    def shared_test(self) -> bool:
        """True if every model is tested on the same fleet, so that no client has a test of its own."""

    @property
    def probe(self) -> NDArray[np.float32] | None:
        """A window to draw extractors with: (1, time, channels); None where there is none to show."""

    @property
    def raw_bytes(self) -> int:
        """Size of the data that central training pools; 0 where the data cannot be pooled."""

    def errors(self, owners: Sequence[str], network: Network) -> Errors:
        """Test errors of the model after a round; empty if models are only evaluated at the end."""

    def rows(self, model: FinishedModel) -> tuple[list[ResultRow], list[ClientPredictions]]:
        """Rows of the results table, and predictions where they may be seen."""


@dataclass(frozen=True, eq=False)
class EvaluationWindows:
    """Test windows of one scenario: those scored, whole lives of a few units for figures, and of all for decisions."""

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
    moments = moments_scored(tests.values(), section.score_at)
    scored = {name: build_windows(recipe, fleet, points=moments) for name, fleet in tests.items()}
    drawn = {}
    if moments == "last":
        for name, fleet in tests.items():
            drawn[name] = build_windows(recipe, _sample(fleet, scored[name]), stride=1)
    trajectories = {}
    if recipe.task == "rul":
        whole = moments == "all"  # then the windows scored are whole lives already
        trajectories = {name: scored[name] if whole else build_windows(recipe, f) for name, f in tests.items()}
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
    calibration: Calibration | None = None,
    coverage: float = 0.9,
    bootstrap: int | None = None,
    draw: bool = True,
) -> tuple[list[ResultRow], list[ClientPredictions]]:
    """Rows and predictions of one model; none where it makes no prediction for one of its tests.

    Parameters
    ----------
    clients
        Who trained it.
    facts
        The fields of a row that do not come from the predictions.
    calibration, coverage
        Gives prediction intervals, which should hold such a share of the labels and are then scored as well.
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
            lives = tests.trajectories[name]
            if (life := predicted if lives is windows else predictor(lives, name)) is not None:
                predictions.append(ClientPredictions(*shared, lives, life, scored=False, trajectory=True))
    if calibration is not None:
        predictions = [replace(p, bounds=calibration.interval(p.values, coverage)) for p in predictions]
    parts = {p.test_client: [p] for p in predictions if p.scored}
    if len(names) > 1:
        parts[EVERYONE] = [p for p in predictions if p.scored]
    samples = tests.bootstrap if bootstrap is None else bootstrap
    rows = []
    for name, scored in parts.items():
        scores = _scores(scored, tests.recipe, samples, calibration)
        keys = {"scenario": tests.scenario, "method": method, "train_clients": clients, "test_client": name}
        more = {"seed": seed, "measure": tests.recipe.target_measure}
        rows.append(ResultRow.model_validate({**facts, **scores, **keys, **more}))
    return rows, predictions


def _scores(
    parts: Sequence[ClientPredictions], recipe: Recipe, samples: int, calibration: Calibration | None
) -> Scores:
    """Scores over the points of all tests together, units kept apart."""
    first_unit = np.cumsum([0, *(len(p.windows.unit_ids) for p in parts)])
    unit = np.concatenate([p.windows.unit + first for p, first in zip(parts, first_unit, strict=False)])
    truth, prediction = (np.concatenate(a) for a in ([p.windows.labels for p in parts], [p.values for p in parts]))
    ends = [p.bounds for p in parts if p.bounds is not None]
    bounds = (np.concatenate([low for low, _ in ends]), np.concatenate([high for _, high in ends])) if ends else None
    quantiles = None if calibration is None else _quantiles(calibration, prediction)
    points = Points(truth, prediction, unit, task=recipe.task, cap=recipe.cap, bounds=bounds, quantiles=quantiles)
    return score(points, bootstrap=samples)


def _quantiles(calibration: Calibration, prediction: FloatArray) -> FloatArray:
    """Quantiles (Q, N) at :data:`QUANTILE_LEVELS`, as the ends of intervals of many coverages."""
    upper_levels = QUANTILE_LEVELS[QUANTILE_LEVELS > 0.5]
    lows, highs = zip(*(calibration.interval(prediction, float(2 * level - 1)) for level in upper_levels), strict=True)
    return np.array([*reversed(lows), *highs])


def assess_baselines(
    tests: EvaluationWindows, scenario: Scenario, names: Sequence[str]
) -> tuple[list[ResultRow], list[ClientPredictions]]:
    """The baselines of every client by itself and of all data pooled; windows are cut once, each rule fits once."""
    everything = build_windows(tests.recipe, pool([scenario.clients[name] for name in tests.clients]))
    train: dict[tuple[str, ...], WindowSet] = {tests.clients: everything}
    for name in tests.clients if len(tests.clients) > 1 else ():
        ids = set(scenario.clients[name].ids)
        owned = np.array([unit in ids for unit in everything.unit_ids])
        train[name,] = everything.select(owned[everything.unit])
    rows: list[ResultRow] = []
    predictions: list[ClientPredictions] = []
    for clients, windows in sorted(train.items()):
        for name in names:
            most = baselines[name].most_owners
            if clients != tests.clients and most is not None and len(tests.clients) > most:
                continue
            fitted = baselines[name].fit(windows, tests.recipe)
            if fitted is not None:
                predictor = _same_for_all(fitted)
                more = assess(tests, name, 0, clients, predictor, {"selected_on": baselines[name].selected_on})
                rows += more[0]
                predictions += more[1]
    return rows, predictions


def _same_for_all(fitted: Fitted) -> Predictor:
    """A baseline as a predictor: the same rule for every test client."""
    return lambda windows, _: fitted(windows)


@dataclass(frozen=True, eq=False)
class HeldTests:
    """Evaluates on test windows in this process; personal heads are read from the clients' folders.

    Parameters
    ----------
    coverage
        The share of labels that intervals should hold.
    """

    tests: EvaluationWindows
    folders: Mapping[str, ClientFolder]
    coverage: float
    raw_bytes: int = 0

    @property
    def clients(self) -> tuple[str, ...]:
        return self.tests.clients

    @property
    def shared_test(self) -> bool:
        return self.tests.shared_test

    @property
    def probe(self) -> NDArray[np.float32] | None:
        windows = next(iter(self.tests.scored.values()))
        return windows.batch(np.array([len(windows) // 2]))

    def errors(self, owners: Sequence[str], network: Network) -> Errors:
        return errors(self.tests, owners, network_predictor(network, self.tests.recipe))

    def rows(self, model: FinishedModel) -> tuple[list[ResultRow], list[ClientPredictions]]:
        calibration, draw = model.calibration, model.facts["selected_on"] != "test"
        about = (model.method, model.key.seed, model.owners, self._predictor(model), model.facts)
        rows, predictions = assess(self.tests, *about, calibration=calibration, coverage=self.coverage, draw=draw)
        return rows, predictions if draw else []

    def _predictor(self, model: FinishedModel) -> Predictor:
        if model.personal_heads is not None:
            return self._personal(model.networks[0], model.personal_heads)
        predictors = [network_predictor(network, self.tests.recipe) for network in model.networks]
        return _mean_predictor(predictors) if len(predictors) > 1 else predictors[0]

    def _personal(self, network: Network, heads: Mapping[str, str]) -> Predictor:
        def predictor(windows: WindowSet, test: str) -> FloatArray | None:
            if test not in heads:
                return None
            personal = network.with_head(self.folders[test].load_head(heads[test]))
            return network_predictor(personal, self.tests.recipe)(windows, test)

        return predictor


def _mean_predictor(predictors: Sequence[Predictor]) -> Predictor:
    def predictor(windows: WindowSet, test: str) -> FloatArray | None:
        predictions = [values for p in predictors if (values := p(windows, test)) is not None]
        total: FloatArray = np.sum(predictions, axis=0)
        return total / len(predictions)

    return predictor
