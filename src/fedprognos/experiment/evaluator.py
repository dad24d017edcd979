"""Who evaluates networks: the runner, on test windows it holds; or sites on machines of their own, who send sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.evaluation import ClientPredictions, ResultRow
from fedprognos.experiment.assess import EvaluationWindows, Predictor, assess, errors, network_predictor
from fedprognos.experiment.events import JobKey
from fedprognos.features import WindowSet
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.networks import Calibration, Network

Errors = Mapping[str, tuple[float, float | None]]
"""Raw and capped RMSE by test client."""


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
    own
        Where clients have heads of their own: the names under which they keep them.
    """

    key: JobKey
    method: str
    owners: tuple[str, ...]
    networks: Sequence[Network]
    facts: Mapping[str, object]
    own: Mapping[str, str] | None = None
    calibration: Calibration | None = None


class Evaluator(Protocol):
    """Scores the networks of one scenario."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody who may train, sorted."""

    @property
    def shared_test(self) -> bool:
        """Whether every model is tested on the same fleet, so that nobody has a test of their own."""

    @property
    def probe(self) -> NDArray[np.float32] | None:
        """A window to draw extractors with: (1, time, channels); None where there is none to show."""

    @property
    def raw_bytes(self) -> int:
        """Size of the data that central training brings together; 0 where nobody does."""

    def errors(self, owners: Sequence[str], network: Network) -> Errors:
        """How the model after a round does; empty where that is asked for in the end only."""

    def rows(self, model: FinishedModel) -> tuple[list[ResultRow], list[ClientPredictions]]:
        """Rows of the results table, and predictions where they may be seen."""


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
        interval = None if calibration is None else partial(calibration.interval, coverage=self.coverage)
        about = (model.method, model.key.seed, model.owners, self._predictor(model), model.facts)
        rows, predictions = assess(self.tests, *about, interval=interval, draw=draw)
        return rows, predictions if draw else []

    def _predictor(self, model: FinishedModel) -> Predictor:
        if model.own is not None:
            return self._personal(model.networks[0], model.own)
        voices = [network_predictor(network, self.tests.recipe) for network in model.networks]
        return _mean(voices) if len(voices) > 1 else voices[0]

    def _personal(self, network: Network, own: Mapping[str, str]) -> Predictor:
        def predictor(windows: WindowSet, test: str) -> FloatArray | None:
            if test not in own:
                return None
            personal = network.with_head(self.folders[test].load_head(own[test]))
            return network_predictor(personal, self.tests.recipe)(windows, test)

        return predictor


def _mean(voices: Sequence[Predictor]) -> Predictor:
    def predictor(windows: WindowSet, test: str) -> FloatArray | None:
        heard = [v for voice in voices if (v := voice(windows, test)) is not None]
        total: FloatArray = np.sum(heard, axis=0)
        return total / len(heard)

    return predictor
