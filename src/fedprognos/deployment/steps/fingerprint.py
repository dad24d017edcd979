"""A request in a few numbers: its kind, and the shape and norm of each tensor.

Coordinator and sites make the requests of a run themselves, each on its own processor. Processors round differently, so
the last digits differ and bytes cannot be compared. A fingerprint can. Where two of them disagree, the runs have
diverged: other versions of a library, other code, a damaged file.

A site always answers the request that it made itself. A wrong fingerprint can end a run, but it changes no answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors.numpy import load as load_tensors

from fedprognos.federation import envelope_of, widened, wire_of

TOLERANCES = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Largest relative difference of two norms, by the precision of the weights in messages."""
SOLVED_TOLERANCE = 1e-3
"""The same for solutions of linear systems: rounding is amplified by their condition number."""
SOLVED_PARTS = ("head.", "/slopes/", "/sums/", "/ranges", "/edges")
"""What is solved from sums, or computed from such a solution, by parts of tensors' names."""
NEGLIGIBLE_NORM = 1e-9
"""Norms below this are zero up to rounding: inputs, weights and labels are standardised."""


class Fingerprint(BaseModel):
    """What a request must have in common with the one that another processor makes of the same run.

    Parameters
    ----------
    sum
        Batch and number of the masked sum that it belongs to.
    shapes, norms
        Of every tensor, by name.
    numbers
        Norm of the numbers outside the tensors, by field of the request: those of the recipe, a fraction.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    sum: tuple[str, int] | None = None
    shapes: dict[str, tuple[int, ...]] = {}
    norms: dict[str, float] = {}
    numbers: dict[str, float] = {}


def fingerprint_of(request: bytes) -> Fingerprint:
    """The fingerprint of an encoded request."""
    envelope = envelope_of(request)
    tensors = {name: widened(tensor) for name, tensor in sorted(load_tensors(request).items())}
    return Fingerprint(
        kind=str(envelope["kind"]),
        sum=envelope.get("sum"),
        shapes={name: tensor.shape for name, tensor in tensors.items()},
        norms={name: float(np.linalg.norm(tensor.astype(np.float64))) for name, tensor in tensors.items()},
        numbers={
            field: float(np.linalg.norm(numbers))
            for field, part in sorted(envelope["body"].items())
            if (numbers := list(_numbers(part)))
        },
    )


def divergence(request: bytes, theirs: Fingerprint) -> str:
    """How another's fingerprint differs from that of one's own request; empty where it does not."""
    ours, tolerance = fingerprint_of(request), TOLERANCES[wire_of(request)]
    if (ours.kind, ours.sum) != (theirs.kind, theirs.sum):
        return f"{theirs.kind[:40]} {theirs.sum or ''} instead of {ours.kind} {ours.sum or ''}"
    if ours.shapes != theirs.shapes or ours.norms.keys() != theirs.norms.keys():
        names = sorted(ours.shapes.keys() | theirs.shapes.keys())
        name = next((name for name in names if ours.shapes.get(name) != theirs.shapes.get(name)), "norms")
        return f"{name[:80]} has shape {theirs.shapes.get(name)} instead of {ours.shapes.get(name)}"
    for name, norm in ours.norms.items():
        solved = any(part in name for part in SOLVED_PARTS)
        if not _alike(norm, theirs.norms[name], max(tolerance, SOLVED_TOLERANCE if solved else 0.0)):
            return f"{name} has norm {theirs.norms[name]!r} instead of {norm!r}"
    for field, norm in ours.numbers.items():
        if not _alike(norm, theirs.numbers.get(field, np.nan), SOLVED_TOLERANCE):
            return f"the numbers of {field} have norm {theirs.numbers.get(field)!r} instead of {norm!r}"
    return ""


def _alike(ours: float, theirs: float, tolerance: float) -> bool:
    """Whether two norms are the same up to rounding; never true of NaN or infinity."""
    return abs(ours - theirs) <= max(tolerance * ours, NEGLIGIBLE_NORM)


def _numbers(body: Any) -> Iterator[float]:
    """Every floating-point number in a message's body."""
    if isinstance(body, float):
        yield body
    elif isinstance(body, dict | list):
        for part in body.values() if isinstance(body, dict) else body:
            yield from _numbers(part)
