"""A stream's memory as one file: arrays (safetensors) and a JSON text, no pickle."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors

from fedprognos.errors import DataError, DataNotFoundError
from fedprognos.files import replacing
from fedprognos.prognosis.health import Health
from fedprognos.prognosis.predictor import Predictor
from fedprognos.prognosis.unit_state import STEPS, UnitState

FORMAT = 2
NONE = np.nan


def write(path: Path, predictor: Predictor, states: Mapping[str, UnitState], counts: Mapping[str, int]) -> None:
    """Write the states of all units atomically, flushed to disk."""
    units = list(states.values())
    shape = (predictor.recipe.window, predictor.recipe.channels)
    tensors = {
        "buffer": _stack([s.buffer for s in units], shape),
        "previous": _stack([_or_nan(s.previous, shape[1]) for s in units], shape[1:]),
        "steps": np.array([[*s.steps, *[NONE] * (STEPS - len(s.steps))] for s in units]).reshape(-1, STEPS),
        "whole": np.array(
            [[s.count, s.filled, s.done, s.ended, s.unseen_at, s.gap_at] for s in units], dtype=np.int64
        ).reshape(-1, 6),
        "cycle": np.array([s.cycle or 0 for s in units], dtype=np.int64),
        "places": np.array(
            [[_float(s.last), _float(s.suspect), NONE if s.cycle is None else 1.0] for s in units]
        ).reshape(-1, 3),
    }
    document = {
        "format": FORMAT,
        "recipe": predictor.recipe_digest,
        "counts": dict(counts),
        "units": list(states),
        "healths": [None if s.health is None else asdict(s.health) for s in units],
    }
    content = save_tensors(tensors, metadata={"stream": json.dumps(document)})
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path, predictor: Predictor) -> tuple[OrderedDict[str, UnitState], dict[str, int]]:
    """States and counts from a file that :func:`write` made for the same recipe; refuse anything else."""
    if not path.is_file():
        raise DataNotFoundError("no such snapshot", where=str(path))
    try:
        with safe_open(path, framework="numpy") as file:
            document = json.loads((file.metadata() or {})["stream"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        if document["format"] != FORMAT:
            raise DataError(
                f"snapshot of format {document['format']!r}, this program reads {FORMAT}",
                where=str(path),
                hint="it was made by another version; start without it",
            )
        if document["recipe"] != predictor.recipe_digest:
            raise DataError(
                "the snapshot belongs to a model with another recipe",
                where=str(path),
                hint="use the bundle it was made with, or start without it",
            )
        states = OrderedDict((unit, _state(tensors, document, k)) for k, unit in enumerate(document["units"]))
        return states, {name: int(n) for name, n in document["counts"].items()}
    except (SafetensorError, KeyError, ValueError, TypeError, IndexError) as error:
        raise DataError(f"not a snapshot: {error}", where=str(path), hint="start without it") from None


def _state(tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any], k: int) -> UnitState:
    count, filled, done, ended, unseen_at, gap_at = (int(n) for n in tensors["whole"][k])
    last, suspect, has_cycle = (float(x) for x in tensors["places"][k])
    previous = tensors["previous"][k]
    health = document["healths"][k]
    return UnitState(
        buffer=tensors["buffer"][k].copy(),
        count=count,
        filled=filled,
        last=_or_none(last),
        cycle=None if np.isnan(has_cycle) else int(tensors["cycle"][k]),
        previous=None if np.isnan(previous).any() else previous.copy(),
        done=bool(done),
        ended=bool(ended),
        steps=[float(s) for s in tensors["steps"][k] if not np.isnan(s)],
        suspect=_or_none(suspect),
        unseen_at=unseen_at,
        gap_at=gap_at,
        health=None if health is None else Health(**{**health, "flags": tuple(health["flags"])}),
    )


def _stack(arrays: list[NDArray[np.float32]], shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.stack(arrays) if arrays else np.empty((0, *shape), dtype=np.float32)


def _or_nan(row: NDArray[np.float32] | None, width: int) -> NDArray[np.float32]:
    return np.full(width, np.nan, dtype=np.float32) if row is None else row


def _float(value: float | None) -> float:
    return NONE if value is None else value


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
