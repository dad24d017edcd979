"""Predictions along the whole lives of the test units: what maintenance decisions are judged by.

A file a job, small because it is binary (safetensors): the points of every test once, the predictions of each model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import DataError
from fedprognos.evaluation.predictions import ClientPredictions
from fedprognos.files import replacing

VERSION = 1
ENVELOPE = "fedprognos"
NAMES = ("scenario", "method", "head", "train_clients", "test_client")


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
        "version": VERSION,
        "tests": [{"test_client": name, "unit_ids": list(w.unit_ids)} for name, w in tests.items()],
        "models": [p.model for p in followed],
    }
    with replacing(path) as temporary:
        temporary.write_bytes(save_tensors(tensors, metadata={ENVELOPE: json.dumps(document)}))


def read_trajectories(path: Path) -> list[Trajectories]:
    """Read what :func:`write_trajectories` wrote.

    Raises
    ------
    DataError
        Where the file is not what it should be.
    """
    try:
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        document = json.loads(header["__metadata__"][ENVELOPE])
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']!r}, this program reads {VERSION}")
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
    if "setting" in model:  # as version 0.1 wrote it
        model = {**model, "scenario": model["setting"]}
    names = {name: str(model[name]) for name in NAMES}
    unit_ids, unit, truth = tests[names["test_client"]]
    prediction = values.astype(np.float64)
    if not (unit.shape == truth.shape == prediction.shape == (len(unit),)) or not len(unit):
        raise ValueError("points and predictions do not go together")
    if unit.min() < 0 or unit.max() >= len(unit_ids) or (np.diff(unit) < 0).any():
        raise ValueError("points of units that are not there")
    if not (np.isfinite(truth).all() and np.isfinite(prediction).all()):
        raise ValueError("values that are not numbers")
    return Trajectories(
        **names, seed=int(model["seed"]), unit_ids=unit_ids, unit=unit, truth=truth, prediction=prediction
    )
