"""Predictions beside the truth, as a table on disk: what the report draws."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.features import WindowSet
from fedprognos.files import from_spreadsheet, replacing, spreadsheet_safe
from fedprognos.fleet.exact_csv import read_exact_csv

COLUMNS = (
    "scenario",
    "method",
    "head",
    "train_clients",
    "test_client",
    "seed",
    "unit",
    "position",
    "truth",
    "prediction",
    "low",
    "high",
    "scored",
)
TEXTS = frozenset({"scenario", "method", "head", "train_clients", "test_client", "unit"})
"""Columns of names, which may come from anybody."""


@dataclass(frozen=True, eq=False)
class ClientPredictions:
    """One model's predictions for one test client.

    Parameters
    ----------
    scored
        Points that count in the table; the others only draw a unit's way through life.
    bounds
        Lower and upper ends of the intervals, where the model has any.
    trajectory
        Test units along their whole lives, for decisions: kept apart from the points that are scored or drawn.
    """

    scenario: str
    method: str
    head: str | None
    train_clients: tuple[str, ...]
    test_client: str
    seed: int
    windows: WindowSet
    values: FloatArray
    scored: bool = True
    bounds: tuple[FloatArray, FloatArray] | None = None
    trajectory: bool = False

    @property
    def model(self) -> dict[str, str | int]:
        """Which model and test client they are of, as files say it."""
        return {
            "scenario": self.scenario,
            "method": self.method,
            "head": self.head or "",
            "train_clients": "+".join(self.train_clients),
            "test_client": self.test_client,
            "seed": self.seed,
        }

    def frame(self) -> pd.DataFrame:
        """One line a point."""
        w = self.windows
        low, high = self.bounds or (np.nan, np.nan)
        return pd.DataFrame(
            {
                **self.model,
                "unit": np.array(w.unit_ids, dtype=object)[w.unit],
                "position": w.position,
                "truth": w.labels,
                "prediction": self.values,
                "low": low,
                "high": high,
                "scored": self.scored,
            },
            columns=list(COLUMNS),
        )


def write_predictions(path: Path, predictions: list[ClientPredictions]) -> None:
    """Write the points scored and drawn as a CSV whose floats read back to the same bits."""
    parts = [p.frame() for p in predictions if not p.trajectory]
    frame = pd.concat(parts) if parts else pd.DataFrame(columns=list(COLUMNS))
    for name in TEXTS & set(frame.columns):
        frame[name] = [spreadsheet_safe(text) if isinstance(text, str) else text for text in frame[name]]
    with replacing(path) as temporary:
        frame.to_csv(temporary, index=False)


def read_predictions(paths: list[Path]) -> pd.DataFrame:
    """Read what :func:`write_predictions` wrote, several files into one table."""
    text = dict.fromkeys((*TEXTS, "setting"), str)
    empty = {"low": [""], "high": [""]}
    frames = [read_exact_csv(p, dtype=text, keep_default_na=False, na_values=empty) for p in sorted(paths)]
    frames = [frame.rename(columns={"setting": "scenario"}) for frame in frames]  # as version 0.1 wrote it
    for frame in frames:
        for name in TEXTS & set(frame.columns):
            frame[name] = frame[name].map(from_spreadsheet)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))
