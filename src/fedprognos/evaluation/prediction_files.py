"""Predictions beside the truth, on disk: points scored and drawn as CSV, whole lives of test units as safetensors.

Maintenance decisions are judged by predictions along whole lives. These are many, so one binary file a job holds the
points of every test fleet once and the predictions of each model beside them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from fedprognos.tables import exact_csv_parts, read_exact_csv

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
LINES, WRITTEN = 100_000, 10_000
"""Lines that are read and made at a time, so that memory does not grow with the file."""
LONGEST_NAMES = 200
"""Characters of the names of those who trained a model, in every line of a file."""
READ_IN_BYTES = 100_000_000
"""Of larger files some units are read: figures need no more points."""
TRAJECTORIES_VERSION = 1
METADATA = "fedprognos"
"""The key of our document in the header of a safetensors file."""
MODEL_NAMES = ("scenario", "method", "head", "train_clients", "test_client")


def written_clients(clients: Sequence[str]) -> str:
    """Clients as every line of a file names them: many by their number and a digest of their names.

    >>> written_clients(["a", "b"]), written_clients([f"site{k}" for k in range(100)])
    ('a+b', '100 clients b0fc7507')
    """
    names = "+".join(clients)
    if len(clients) == 1 or len(names) <= LONGEST_NAMES:
        return names
    return f"{len(clients)} clients {hashlib.sha256(names.encode()).hexdigest()[:8]}"


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
            "train_clients": written_clients(self.train_clients),
            "test_client": self.test_client,
            "seed": self.seed,
        }

    def lines(self) -> Iterator[str]:
        """One line a point, some thousand lines at a time, names safe for spreadsheets."""
        w = self.windows
        model = _fields(spreadsheet_safe(v) if isinstance(v, str) else str(v) for v in self.model.values())
        units = np.array([_fields([spreadsheet_safe(name)]) for name in w.unit_ids], dtype=object)
        none = np.full(len(self.values), np.nan)
        low, high = (none, none) if self.bounds is None else self.bounds
        numbers = [w.position, w.labels, self.values.astype(np.float64), low, high]
        for start in range(0, len(self.values), WRITTEN):
            points = slice(start, start + WRITTEN)
            columns = [units[w.unit[points]], *(_texts(column[points]) for column in numbers)]
            yield "".join(f"{model},{line},{self.scored}\n" for line in map(",".join, zip(*columns, strict=True)))


def _fields(texts: Iterable[str]) -> str:
    """Texts as fields of a line, in quotes where they need any."""
    line = io.StringIO()
    csv.writer(line).writerow([*texts, ""])  # one field that is empty would be quoted
    return line.getvalue().removesuffix(",\r\n")


def _texts(numbers: NDArray[np.generic]) -> list[str]:
    """Numbers as the shortest text that reads back to the same bits; NaN as nothing."""
    return ["" if math.isnan(number) else repr(number) for number in numbers.tolist()]


def write_predictions(path: Path, predictions: list[ClientPredictions]) -> None:
    """Write the points scored and drawn as a CSV whose floats read back to the same bits."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(COLUMNS) + "\n")
        for part in predictions:
            if not part.trajectory:
                file.writelines(part.lines())


def read_predictions(paths: list[Path]) -> pd.DataFrame:
    """Read what :func:`write_predictions` wrote, several files into one table.

    Of large files every k-th unit is read, with all its points; `attrs["every"]` of the table says which k.
    """
    every = max(math.ceil(sum(path.stat().st_size for path in paths) / READ_IN_BYTES), 1)
    numbers: dict[str, int] = {}
    frames = [part for path in sorted(paths) for part in _parts(path, every, numbers)]
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))
    whole.attrs["every"] = every
    return whole


def _parts(path: Path, every: int, numbers: dict[str, int]) -> Iterator[pd.DataFrame]:
    """Every k-th unit of a file, some lines at a time; `numbers` counts units as they come."""
    text: dict[str, Any] = dict.fromkeys(TEXTS, str)
    empty = {"low": [""], "high": [""]}
    options: dict[str, Any] = {"dtype": text, "keep_default_na": False, "na_values": empty}
    parts = exact_csv_parts(path, LINES, **options) if every > 1 else [read_exact_csv(path, **options)]
    for part in parts:
        frame = part
        if every > 1:
            chosen = {unit: numbers.setdefault(unit, len(numbers)) % every == 0 for unit in frame["unit"].unique()}
            frame = frame[frame["unit"].map(chosen)].copy()
        for name in TEXTS & set(frame.columns) if len(frame) else ():
            frame[name] = frame[name].map({written: from_spreadsheet(written) for written in frame[name].unique()})
        yield frame


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
