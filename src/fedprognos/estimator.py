"""A federated model with the interface of scikit-learn: `fit`, `predict` and `score` on data frames."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedprognos.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from fedprognos.fleet import Fleet
    from fedprognos.prognosis import Predictor


PARAMETERS = ("unit", "time", "owner", "method", "options", "folder")


class FederatedModel:
    """Remaining useful life of machines whose owners do not share data.

    Parameters
    ----------
    unit, time, owner
        Columns: which machine, when, and whose it is. Without an owner everything is one client's.
    method
        Name of a method, such as "absorb", "fedavg" or "central".
    options
        Sections of an experiment: `{"recipe": {"history": "life"}, "train": {"steps": 300}}`.
    folder
        Where the run is kept; a temporary folder by default.

    Attributes
    ----------
    predictor_
        The fitted model.

    Examples
    --------
    >>> FederatedModel(unit="pump", time="hour", owner="plant").get_params()["method"]
    'absorb'
    """

    def __init__(
        self,
        unit: str = "unit",
        time: str = "time",
        owner: str | None = None,
        method: str = "absorb",
        options: dict[str, Any] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.unit = unit
        self.time = time
        self.owner = owner
        self.method = method
        self.options = options
        self.folder = folder

    def fit(self, frame: pd.DataFrame, y: None = None) -> Self:
        """Train on every machine of the frame; each is taken to fail after its last row."""
        from fedprognos.api import run
        from fedprognos.prognosis import Predictor

        clients = {"by": "column", "column": "site"} if self.owner is not None else {"by": "random", "clients": 1}
        sections = {"partition": clients, "recipe": {"history": "life"}, **(self.options or {})}
        federation = {"heads": ["exact"], **sections.pop("federation", {}), "methods": [self.method]}
        evaluation = {"seeds": 1, "baselines": [], "bootstrap": 0, **sections.pop("evaluation", {})}
        with tempfile.TemporaryDirectory() as folder:
            done = run(
                self._fleet(frame),
                out=self.folder or Path(folder) / "run",
                federation=federation,
                evaluation=evaluation,
                **sections,
            )
        self.predictor_: Predictor = Predictor.from_bundle(done.bundle)
        return self

    def predict(self, frame: pd.DataFrame) -> pd.Series[float]:
        """Health at every row of the frame; NaN where a machine has too few rows so far."""
        from fedprognos.prognosis import row_healths

        healths = row_healths(self._fitted(), frame, unit=self.unit, time=self.time)
        return frame[self.unit].map(lambda _: 0.0).add(healths).rename("health")

    def score(self, frame: pd.DataFrame, y: None = None) -> float:
        """R² over the rows with a prediction; machines fail after their last row, labels are capped as in training."""
        recipe, fleet = self._fitted().recipe, self._fleet(frame)
        truth, names = np.full(len(frame), np.nan), frame[self.unit].astype(str).to_numpy()
        for unit in fleet:
            labels = unit.labels()
            truth[names == unit.id] = np.nan if labels is None else recipe.capped(labels)
        predicted = self.predict(frame).to_numpy()
        kept = np.isfinite(predicted) & np.isfinite(truth)
        error, spread = truth[kept] - predicted[kept], truth[kept] - truth[kept].mean()
        return float(1 - (error @ error) / (spread @ spread))

    def __repr__(self) -> str:
        return f"FederatedModel({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name."""
        for name, value in parameters.items():
            if name not in self.get_params():
                raise ConfigError(f"unknown parameter '{name}'", hint=", ".join(self.get_params()))
            setattr(self, name, value)
        return self

    def _fitted(self) -> Predictor:
        if not hasattr(self, "predictor_"):
            raise ConfigError("this model is not fitted", hint="call fit(frame) first")
        return self.predictor_

    def _fleet(self, frame: pd.DataFrame) -> Fleet:
        from fedprognos.fleet import Fleet

        return Fleet.from_frame(frame, unit=self.unit, time=self.time, site=self.owner)
