"""Replies that no client can have sent: one thing wrong at every place of a message, kind by kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from fedprognos.federation.codec import ENVELOPE

Array = np.ndarray[Any, Any]
LEAVES: tuple[Any, ...] = (None, -1, 0, 2**62, 10**400, 1e308, "", "\x1b[2J", "a" * 5000, True, [], {}, [[0]])
"""What stands where a number, a text or a list should be."""


def malformed(whole: bytes) -> Iterator[tuple[str, bytes]]:
    """An encoded message with one thing wrong: which thing, and the message."""
    envelope, tensors = opened(whole)
    yield "nothing", b""
    yield "half of it", whole[: len(whole) // 2]
    yield "no tensors", closed(envelope, {})
    for key in ("version", "kind", "body"):
        for value in LEAVES:
            yield f"{key} = {value!r:.20}", closed({**envelope, key: value}, tensors)
    yield "a field too many", closed({**envelope, "body": {**envelope["body"], "more": 1}}, tensors)
    for path, _ in leaves(envelope["body"], ()):
        for value in LEAVES:
            yield f"{path} = {value!r:.20}", closed({**envelope, "body": put(envelope["body"], path, value)}, tensors)
    for name, tensor in tensors.items():
        yield f"{name} missing", closed(envelope, {k: v for k, v in tensors.items() if k != name})
        for what, changed in malformed_tensor(tensor):
            yield f"{name} {what}", closed(envelope, {**tensors, name: changed})


def malformed_tensor(tensor: Array) -> Iterator[tuple[str, Array]]:
    """A tensor of another shape or type, or whose numbers cannot be."""
    yield "of one number", tensor.reshape(-1)[:1]
    yield "empty", tensor.reshape(-1)[:0]
    yield "in another shape", tensor[None]
    yield "twice", np.concatenate([tensor, tensor]) if tensor.ndim else np.array([tensor, tensor])
    yield "as bytes", np.zeros(tensor.shape, np.uint8)
    yield "as float16", np.zeros(tensor.shape, np.float16)
    numbers = (-1, 0, 2**62) if tensor.dtype.kind == "i" else (np.nan, np.inf, -1.0, 0.0, 1e38, 1e-38, -1e9)
    for number in numbers:
        yield f"of {number}", np.full(tensor.shape, number, tensor.dtype)
        first = tensor.copy()
        first.reshape(-1)[:1] = number
        yield f"beginning with {number}", first


def leaves(content: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place of a JSON value that holds something, inner ones and tables as well."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key), value
        yield from leaves(value, (*path, key))


def put(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place."""
    copy = json.loads(json.dumps(content))
    inside = copy
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return copy


def opened(whole: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """The envelope and the tensors of a message."""
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    return json.loads(header["__metadata__"][ENVELOPE]), load(whole)


def closed(envelope: Any, tensors: dict[str, Array]) -> bytes:
    """The message of an envelope and tensors."""
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    return save(contiguous, metadata={ENVELOPE: json.dumps(envelope)})
