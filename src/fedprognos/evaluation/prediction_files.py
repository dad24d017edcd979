"""Predictions beside the truth, on disk: points scored and drawn as CSV, whole lives of test units as safetensors.

Maintenance decisions are judged by predictions along whole lives. These are many, so one binary file a job holds the
points of every test fleet once and the predictions of each model beside them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import DataError
from fedprognos.features import WindowSet
from fedprognos.files import from_spreadsheet, replacing, spreadsheet_safe
from fedprognos.tables import read_exact_csv

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
"""Columns of names. A name may come from anybody, so it is written such that no spreadsheet runs it as a formula."""
TRAJECTORIES_VERSION = 1
METADATA = "fedprognos"
"""The key of our document in the header of a safetensors file."""
MODEL_NAMES = ("scenario", "method", "head", "train_clients", "test_client")


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
        Test units along their whole lives, for maintenance decisions; kept apart from the points scored or drawn.
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
    text = dict.fromkeys(TEXTS, str)
    empty = {"low": [""], "high": [""]}
    frames = [read_exact_csv(p, dtype=text, keep_default_na=False, na_values=empty) for p in sorted(paths)]
    for frame in frames:
        for name in TEXTS & set(frame.columns):
            frame[name] = frame[name].map(from_spreadsheet)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))


@dataclass(frozen=True, eq=False)
class Trajectories:
    """One model's predictions along the lives of one test client's units.

    Parameters
    ----------
    unit, truth, prediction : (N,)
        Index into `unit_ids`, true and predicted remaining life; each unit's points one after another, in order of
        time.
    """

    scenario: str
    method: str
    head: str
    train_clients: str
    test_client: str
    seed: int
    unit_ids: tuple[str, ...]
    unit: IntArray
    truth: FloatArray
    prediction: FloatArray


def write_trajectories(path: Path, predictions: Sequence[ClientPredictions]) -> None:
    """Write the trajectories among one job's predictions; nothing where there are none."""
    followed = [p for p in predictions if p.trajectory]
    if not followed:
        return
    tests = {p.test_client: p.windows for p in followed}
    tensors: dict[str, NDArray[np.generic]] = {}
    for k, windows in enumerate(tests.values()):
        tensors[f"test{k}/unit"] = windows.unit.astype(np.int32)
        tensors[f"test{k}/truth"] = windows.labels.astype(np.float32)
    for k, p in enumerate(followed):
        tensors[f"model{k}"] = p.values.astype(np.float32)
    document = {
        "version": TRAJECTORIES_VERSION,
        "tests": [{"test_client": name, "unit_ids": list(w.unit_ids)} for name, w in tests.items()],
        "models": [p.model for p in followed],
    }
    with replacing(path) as temporary:
        temporary.write_bytes(save_tensors(tensors, metadata={METADATA: json.dumps(document)}))


def read_trajectories(path: Path) -> list[Trajectories]:
    """Read what :func:`write_trajectories` wrote.

    Raises
    ------
    DataError
        The file is damaged or of another version.
    """
    try:
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        document = json.loads(header["__metadata__"][METADATA])
        if document["version"] != TRAJECTORIES_VERSION:
            raise ValueError(f"version {document['version']!r}, this program reads {TRAJECTORIES_VERSION}")
        tensors = load_tensors(data)
        tests = {}
        for k, test in enumerate(document["tests"]):
            tests[str(test["test_client"])] = (
                tuple(str(name) for name in test["unit_ids"]),
                tensors[f"test{k}/unit"].astype(np.int64),
                tensors[f"test{k}/truth"].astype(np.float64),
            )
        return [_trajectories(model, tests, tensors[f"model{k}"]) for k, model in enumerate(document["models"])]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), hint="run the experiment again") from None


def _trajectories(
    model: Mapping[str, Any],
    tests: Mapping[str, tuple[tuple[str, ...], IntArray, FloatArray]],
    values: NDArray[np.generic],
) -> Trajectories:
    names = {name: str(model[name]) for name in MODEL_NAMES}
    unit_ids, unit, truth = tests[names["test_client"]]
    prediction = values.astype(np.float64)
    if not (unit.shape == truth.shape == prediction.shape == (len(unit),)) or not len(unit):
        raise ValueError("points and predictions differ in number")
    if unit.min() < 0 or unit.max() >= len(unit_ids) or (np.diff(unit) < 0).any():
        raise ValueError("points of units that the file does not name")
    if not (np.isfinite(truth).all() and np.isfinite(prediction).all()):
        raise ValueError("values that are not numbers")
    return Trajectories(
        **names, seed=int(model["seed"]), unit_ids=unit_ids, unit=unit, truth=truth, prediction=prediction
    )
