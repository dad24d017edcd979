"""Who examines models: the runner, on test windows it holds; or sites on machines of their own, who tell sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedprognos.evaluation import Prediction, Row
from fedprognos.experiment.assess import Examination, FloatArray, Predictor, assess, errors, network_predictor
from fedprognos.experiment.events import JobKey
from fedprognos.features import WindowSet
from fedprognos.federation.client_folder import Site
from fedprognos.federation.heads import Finished
from fedprognos.federation.intervals import coverage_of
from fedprognos.networks import Calibration
from fedprognos.networks.head import with_head

Errors = Mapping[str, tuple[float, float | None]]
"""Raw and capped RMSE by test client."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What is examined: a model, or several whose mean prediction counts.

    Parameters
    ----------
    own
        Where clients have heads of their own: the names under which they keep them.
    """

    members: tuple[Finished, ...]
    own: Mapping[str, str] | None = None


class Examiner(Protocol):
    """Scores the models of one setting."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody who may train, sorted."""

    @property
    def shared_test(self) -> bool:
        """Whether every model is tested on the same fleet, so that nobody has a test of their own."""

    @property
    def probe(self) -> NDArray[np.float32] | None:
        """A window to draw extractors with: (1, time, channels); None where there is none to show."""

    def errors(self, owners: Sequence[str], finished: Finished) -> Errors:
        """How the model after a round does; empty where that is asked for in the end only."""

    def rows(
        self,
        key: JobKey,
        method: str,
        owners: tuple[str, ...],
        subject: Subject,
        facts: Mapping[str, object],
        calibration: Calibration | None,
    ) -> tuple[list[Row], list[Prediction]]:
        """Rows of the results table, and predictions where they may be seen."""


@dataclass(frozen=True, eq=False)
class HeldTests:
    """Examines on test windows in this process; personal heads are read from the clients' folders.

    Parameters
    ----------
    coverage
        The share of labels that intervals should hold.
    """

    exam: Examination
    sites: Mapping[str, Site]
    coverage: float

    @property
    def clients(self) -> tuple[str, ...]:
        return self.exam.clients

    @property
    def shared_test(self) -> bool:
        return self.exam.shared_test

    @property
    def probe(self) -> NDArray[np.float32] | None:
        windows = next(iter(self.exam.scored.values()))
        return windows.batch(np.array([len(windows) // 2]))

    def errors(self, owners: Sequence[str], finished: Finished) -> Errors:
        return errors(self.exam, owners, self._plain(finished))

    def rows(
        self,
        key: JobKey,
        method: str,
        owners: tuple[str, ...],
        subject: Subject,
        facts: Mapping[str, object],
        calibration: Calibration | None,
    ) -> tuple[list[Row], list[Prediction]]:
        predictor = self._predictor(subject)
        draw = facts["selected_on"] != "test"
        rows, predictions = assess(self.exam, method, key.seed, owners, predictor, facts, draw=draw)
        if calibration is not None:
            rows = [self._with_coverage(row, calibration, predictor) for row in rows]
            predictions = [replace(p, bounds=calibration.interval(p.values, self.coverage)) for p in predictions]
        return rows, predictions if draw else []

    def _predictor(self, subject: Subject) -> Predictor:
        if subject.own is not None:
            return self._personal(subject, subject.own)
        voices = [self._plain(member) for member in subject.members]
        return voices[0] if len(voices) == 1 else _mean(voices)

    def _plain(self, finished: Finished) -> Predictor:
        return network_predictor(finished.model.network, finished.weights, self.exam.recipe)

    def _personal(self, subject: Subject, own: Mapping[str, str]) -> Predictor:
        (shared,) = subject.members

        def predictor(windows: WindowSet, test: str) -> FloatArray | None:
            if test not in own:
                return None
            weights = with_head(shared.weights, self.sites[test].load_head(own[test]))
            return network_predictor(shared.model.network, weights, self.exam.recipe)(windows, test)

        return predictor

    def _with_coverage(self, row: Row, calibration: Calibration, predictor: Predictor) -> Row:
        """The row with the share of test labels that intervals hold."""
        tests = self.exam.scored
        names = [row.test_client] if row.test_client in tests else sorted(tests)
        truth = np.concatenate([tests[name].labels for name in names])
        said = np.concatenate([v for name in names if (v := predictor(tests[name], name)) is not None])
        return row.model_copy(update=coverage_of(calibration, truth, said, self.coverage))


def _mean(voices: Sequence[Predictor]) -> Predictor:
    def predictor(windows: WindowSet, test: str) -> FloatArray | None:
        heard = [v for voice in voices if (v := voice(windows, test)) is not None]
        total: FloatArray = np.sum(heard, axis=0)
        return total / len(heard)

    return predictor
