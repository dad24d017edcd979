"""A stream's memory as one file: arrays (safetensors), a JSON text and a checksum over both; no pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, OrderedDict
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
from fedprognos.prognosis.health import Health, Verdict
from fedprognos.prognosis.health_model import HealthModel
from fedprognos.prognosis.unit_state import UnitState

FORMAT = 7


def write(
    path: Path, digest: str, states: Mapping[str, UnitState], counts: Mapping[Verdict, int], evicted: int
) -> None:
    """Write the states of all units atomically, flushed to disk."""
    snapshots = [state.snapshot() for state in states.values()]
    names = snapshots[0] if snapshots else ()
    tensors = {name: np.stack([snapshot[name] for snapshot in snapshots]) for name in names}
    document = json.dumps(
        {
            "format": FORMAT,
            "model": digest,
            "counts": dict(counts),
            "evicted": evicted,
            "units": list(states),
            "healths": [None if state.health is None else asdict(state.health) for state in states.values()],
        }
    )
    content = save_tensors(tensors, metadata={"stream": document, "sha256": _checksum(document, tensors)})
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path, model: HealthModel) -> tuple[OrderedDict[str, UnitState], Counter[Verdict], int]:
    """States and counts from a file that :func:`write` made for the same model; refuse anything else."""
    if not path.is_file():
        raise DataNotFoundError("no such snapshot", where=str(path))
    try:
        with safe_open(path, framework="numpy") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        document = json.loads(facts["stream"])
        _check(document, facts, tensors, model, path)
        states: OrderedDict[str, UnitState] = OrderedDict()
        for k, (unit, health) in enumerate(zip(document["units"], document["healths"], strict=True)):
            state = states[unit] = model.start()
            state.restore({name: array[k] for name, array in tensors.items()})
            state.health = None if health is None else Health(**{**health, "flags": tuple(health["flags"])})
        counts = Counter({Verdict(name): int(n) for name, n in document["counts"].items()})
        return states, counts, int(document["evicted"])
    except (SafetensorError, KeyError, ValueError, TypeError, IndexError) as error:
        raise DataError(f"not a snapshot: {error}", where=str(path), hint="start without it") from None


def _check(
    document: Mapping[str, Any],
    facts: Mapping[str, str],
    tensors: Mapping[str, NDArray[Any]],
    model: HealthModel,
    path: Path,
) -> None:
    if document["format"] != FORMAT:
        raise DataError(
            f"snapshot of format {document['format']!r}, this program reads {FORMAT}",
            where=str(path),
            hint="it was made by another version; start without it",
        )
    if facts["sha256"] != _checksum(facts["stream"], tensors):
        raise DataError("the snapshot was altered or damaged", where=str(path), hint="start without it")
    if document["model"] != model.digest:
        raise DataError(
            "the snapshot belongs to another model",
            where=str(path),
            hint="use the bundle it was made with, or start without it",
        )


def _checksum(document: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(document.encode())
    for name, array in sorted(tensors.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
