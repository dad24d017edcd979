"""Messages as bytes: a checked JSON body and raw arrays (safetensors), never pickle.

Decoding follows the field types of the message's dataclass, so whatever a peer sends is either a
well-formed message or refused with the name of the field that is not. Fields at their default are not sent.

Weights can travel in half the bytes. Moments, sums and head statistics are float64 and never narrowed, but for those
that only choose neurons: a request can ask for their products as a float32 factor. Zeros of large tensors, as between
networks side by side, do not travel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedprognos.errors import FedprognosError, MessageError
from fedprognos.federation.federation_section import Wire
from fedprognos.files import parse_json
from fedprognos.matching import LabelledSums, OutputSums
from fedprognos.networks import HeadStatistics

VERSION, PACKED_VERSION = 2, 3
"""Of a message, and of one with zeros left out or with factors."""
ENVELOPE = "fedprognos"
DTYPES = ("float32", "float64", "int64")
WIRES: tuple[Wire, ...] = typing.get_args(Wire)
MAX_HEADER_IN_BYTES = 4 << 20
MAX_COUNT = 2**63 - 1
PACKED_COLUMNS = (64, 2048)
"""Sums of fewer columns are not worth a factor; of more, a short message would fill the memory of who reads it."""
PACKED_SIZE = 4096
"""Numbers in a tensor whose zeros are worth leaving out."""
PLACES, FACTOR = "|places", "|factor"
Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class LedgerLine:
    """One message that left a client: its kind, its tensors (name and shape) and its size."""

    kind: str
    bytes: int
    tensors: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)


def encode(
    message: Any,
    wire: Wire = "float32",
    tag: tuple[str, int] | None = None,
    all_units: bool = False,
    factors: bool = False,
) -> bytes:
    """Bytes of a message dataclass, its weights in the given precision; the answer is asked for in the same.

    With a `tag` the answer is to be masked, as a part of that sum of that batch. With `all_units` it is to be about
    the client's test units as well. With `factors`, products of many columns travel as float32 factors.
    """
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    body = _pack(message, "", tensors, factors)
    envelope: dict[str, Any] = {"version": VERSION, "kind": type(message).__name__, "body": body}
    if any(name.endswith(FACTOR) for name in tensors):
        envelope["version"] = PACKED_VERSION
    if tag is not None:
        envelope["sum"] = list(tag)
    if all_units:
        envelope["all_units"] = True
    if wire != "float32":
        envelope["wire"] = wire
        tensors = {name: narrowed(name, tensor, wire) for name, tensor in tensors.items()}
    if sparse := _leave_zeros_out(tensors):
        envelope |= {"version": PACKED_VERSION, "sparse": sparse}
    # One entry only: safetensors keeps metadata in a hash map, whose order differs between processes.
    return save_tensors(tensors, metadata={ENVELOPE: json.dumps(envelope, allow_nan=False)})


def envelope_of(data: bytes) -> Mapping[str, Any]:
    """A message's version, kind and body as plain JSON values; :class:`MessageError` where it is malformed."""
    return _envelope(data, "message")


def wire_of(data: bytes) -> Wire:
    """The precision in which the sender of a message wants its answer; float32 where it says nothing sensible."""
    with contextlib.suppress(MessageError):
        return next((w for w in WIRES if w == _envelope(data, "").get("wire")), "float32")
    return "float32"


def tag_of(data: bytes) -> tuple[str, int] | None:
    """The batch and number of the masked sum that a request belongs to; None for all other messages."""
    tag = _envelope(data, "message").get("sum")
    if tag is None:
        return None
    if not (isinstance(tag, list) and len(tag) == 2 and isinstance(tag[0], str) and type(tag[1]) is int):
        raise MessageError("malformed number of a sum", where="message")
    return tag[0], tag[1]


def is_about_all_units(data: bytes) -> bool:
    """Whether a request is about the client's test units as well."""
    return _envelope(data, "message").get("all_units") is True


def ledger_line(data: bytes) -> LedgerLine:
    """What an encoded message holds, for the client's ledger; :class:`MessageError` where it is malformed."""
    kind = _envelope(data, "message").get("kind")
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    try:
        tensors = {name: tuple(e["shape"]) for name, e in sorted(header.items()) if name != "__metadata__"}
    except (KeyError, TypeError):
        raise MessageError("malformed tensors", where="message") from None
    return LedgerLine(str(kind), len(data), tensors)


def decode(data: bytes, kinds: tuple[type, ...], where: str = "message") -> Any:
    """A message of one of the given kinds, or :class:`MessageError`."""
    envelope = _envelope(data, where)
    if envelope.get("version") not in (VERSION, PACKED_VERSION):
        raise MessageError(
            f"message version {str(envelope.get('version'))[:20]}, this program speaks {VERSION} and {PACKED_VERSION}",
            where=where,
            hint="use the same version of fedprognos on every site",
        )
    by_name = {kind.__name__: kind for kind in kinds}
    kind = by_name.get(str(envelope.get("kind")))
    if kind is None:
        raise MessageError(f"unexpected message {str(envelope.get('kind'))[:40]!r}", where=where)
    try:
        tensors = _put_zeros_in(load_tensors(data), envelope.get("sparse", {}))
        return _unpack(envelope["body"], kind, kind.__name__, tensors)
    except MessageError:
        raise
    # What a message holds may refuse its own values, as columns without a sensor do: no kind of error may end a run.
    except (SafetensorError, FedprognosError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as e:
        raise MessageError(f"malformed {kind.__name__}: {_short(e)}", where=where) from None


def _envelope(data: bytes, where: str) -> Mapping[str, Any]:
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else 0
    envelope = _parsed(data[8 : 8 + size]) if 0 < size <= min(len(data) - 8, MAX_HEADER_IN_BYTES) else None
    if envelope is None:
        raise MessageError("not a message", where=where)
    return envelope


@lru_cache(maxsize=2)  # a request, asked of one client after another in one process, and the reply at hand
def _parsed(header: bytes) -> Mapping[str, Any] | None:
    """The envelope in a header, which nobody changes; None where there is none."""
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        text = json.loads(header)["__metadata__"][ENVELOPE]
        envelope = parse_json(text, parse_float=_finite, parse_constant=_finite)
        return envelope if isinstance(envelope, dict) else None
    return None


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError("an infinite number")
    return value


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    return str(error)[:200]


def _pack(value: Any, path: str, tensors: dict[str, np.ndarray[Any, Any]], factors: bool) -> Any:
    if isinstance(value, np.ndarray):
        tensors[path] = np.ascontiguousarray(value)
        return None
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    if dataclasses.is_dataclass(value):
        fields = [f for f in dataclasses.fields(value) if not _at_default(f, getattr(value, f.name))]
        body = {f.name: _pack(getattr(value, f.name), f"{path}/{f.name}", tensors, factors) for f in fields}
        if factors and isinstance(value, HeadStatistics | OutputSums):
            _put_factor(value, path, tensors)
        return body
    if isinstance(value, Mapping):
        return [[_key(k), _pack(v, f"{path}/{_label(k)}", tensors, factors)] for k, v in sorted(value.items())]
    if isinstance(value, tuple | list):
        return [_pack(v, f"{path}/{i}", tensors, factors) for i, v in enumerate(value)]
    return value


def _put_factor(value: HeadStatistics | OutputSums, path: str, tensors: dict[str, Array]) -> None:
    """A factor in place of products, where there is one; of head statistics the column of ones stays."""
    products = f"{path}/hh" if isinstance(value, HeadStatistics) else f"{path}/S"
    sums = value.sums if isinstance(value, HeadStatistics) else value
    fewest, most = PACKED_COLUMNS
    if sums.n > 0 and fewest <= sums.width <= most and (factor := sums.factor()) is not None:
        del tensors[products]
        tensors[products + "|order"], tensors[products + FACTOR] = factor
        if isinstance(value, HeadStatistics):
            tensors[products + "|ones"] = np.ascontiguousarray(value.hh[-1])


def _products(kind: type, body: Mapping[str, Any], path: str, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The products that a factor stands for, by the name of their tensor; nothing where there is no factor."""
    name = path[path.index("/") :] + ("/hh" if kind is HeadStatistics else "/S")
    if name + FACTOR not in tensors:
        return {}

    def part(key: str) -> Array:
        return _tensor(key, tensors)

    factor = part(f"{name}|order"), part(name + FACTOR)
    n, none = _plain(body["n"], int, f"{path}/n"), np.zeros((0, 0))
    s = part(f"{name}|ones") if kind is HeadStatistics else part(name[:-1] + "s")
    if n < 1 or s.ndim != 1 or len(s) > PACKED_COLUMNS[1] + 1:
        raise ValueError(f"{path} has a factor that does not fit")
    if kind is not HeadStatistics:
        return {name: OutputSums(n, 0, s, none).with_factor(factor).S}
    hy, yy = part(name[:-2] + "hy"), _plain(body["yy"], float, f"{path}/yy")
    if hy.shape != s.shape:
        raise ValueError(f"{path} has a factor that does not fit")
    sums = LabelledSums(n, 0, s[:-1], none, hy[:-1], float(hy[-1]), yy).with_factor(factor)
    return {name: np.block([[sums.S, s[:-1, None]], [s[None]]])}


def _leave_zeros_out(tensors: dict[str, Array]) -> dict[str, list[int]]:
    """Keep of large tensors that are mostly zeros the other numbers, and their places as bits; returns the shapes."""
    sparse = {}
    for name, tensor in list(tensors.items()):
        there = tensor.view(f"u{tensor.itemsize}") != 0 if tensor.size >= PACKED_SIZE else np.ones(1, bool)
        if 2 * np.count_nonzero(there) <= there.size:
            sparse[name] = list(tensor.shape)
            tensors[name], tensors[name + PLACES] = tensor[there], np.packbits(there)
    return sparse


def _put_zeros_in(tensors: dict[str, Array], sparse: Mapping[str, Any]) -> dict[str, Array]:
    """The tensors as they were before zeros were left out. The bits of all places are there, so none can be huge."""
    for name, shape in sparse.items():
        size, bits, values = math.prod(shape), tensors.pop(name + PLACES), tensors[name]
        if bits.dtype != np.uint8 or bits.shape != (-(-size // 8),) or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"tensor {name[:60]} has places that do not fit")
        there = np.unpackbits(bits, count=size).astype(bool)
        if values.shape != (np.count_nonzero(there),):
            raise ValueError(f"tensor {name[:60]} has places that do not fit")
        tensors[name] = np.zeros(size, values.dtype)
        tensors[name][there] = values
        tensors[name] = tensors[name].reshape(shape)
    return tensors


def _at_default(field: dataclasses.Field[Any], value: Any) -> bool:
    plain = value is None or isinstance(value, str | int | float)
    return field.default is not dataclasses.MISSING and plain and bool(value == field.default)


def _key(key: Any) -> Any:
    return list(key) if isinstance(key, tuple) else key


def _label(key: Any) -> str:
    return ",".join(map(repr, key)) if isinstance(key, tuple) else str(key)


def _unpack(value: Any, kind: Any, path: str, tensors: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is np.ndarray:
        return _tensor(path[path.index("/") :], tensors)
    if origin in (typing.Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return None
        return _unpack(value, next(a for a in arguments if a is not types.NoneType), path, tensors)
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"{path} is {value!r}")
        return value
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_validate(value)
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        _check_fields(value, dataclasses.fields(kind), path)
        if kind in (HeadStatistics, OutputSums):
            tensors = {**tensors, **_products(kind, value, path, tensors)}
        return kind(**{n: _unpack(v, hints[n], f"{path}/{n}", tensors) for n, v in value.items()})  # type: ignore[operator]
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        pairs = [(_unpack(k, arguments[0], path, tensors), v) for k, v in value]
        return {k: _unpack(v, arguments[1], f"{path}/{_label(k)}", tensors) for k, v in pairs}
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{path} must be a list")
        return tuple(_unpack(v, arguments[0], f"{path}/{i}", tensors) for i, v in enumerate(value))
    return _plain(value, kind, path)


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Types of a message's fields."""
    return typing.get_type_hints(kind)


def _check_fields(value: Any, fields: tuple[dataclasses.Field[Any], ...], path: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{path} must be a table")
    for name in value.keys() - {f.name for f in fields}:
        raise ValueError(f"{path} has an unknown field '{str(name)[:40]}'")
    for f in fields:
        if f.name not in value and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ValueError(f"{path} lacks the field '{f.name}'")


def _plain(value: Any, kind: Any, path: str) -> Any:
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value):
        return float(value)
    if kind is int and type(value) is int and abs(value) > MAX_COUNT:
        raise ValueError(f"{path} is a number of more than 18 digits")
    if kind in (int, str, bool) and type(value) is kind:
        return value
    raise ValueError(f"{path} must be {getattr(kind, '__name__', kind)}")


def _tensor(name: str, tensors: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    if name not in tensors:
        raise ValueError(f"tensor {name} is missing")
    tensor = widened(tensors[name])
    if str(tensor.dtype) not in DTYPES:
        raise ValueError(f"tensor {name} is {tensor.dtype}")
    if not np.isfinite(tensor).all():
        raise ValueError(f"tensor {name} holds NaN or infinity")
    return tensor


def narrowed(name: str, tensor: Array, wire: Wire) -> Array:
    """A weight as it travels: bfloat16 as the upper half of float32, in uint16, because NumPy has no such type.

    Raises
    ------
    MessageError
        Where a weight is beyond what the narrow type can hold.
    """
    if tensor.dtype != np.float32 or wire == "float32":
        return tensor
    with np.errstate(over="ignore"):
        narrow = tensor.astype(np.float16) if wire == "float16" else _upper_half(tensor)
    if not np.isfinite(widened(narrow)).all():
        raise MessageError(
            f"tensor {name} holds a number beyond {wire}",
            hint="set federation.wire = 'float32'; weights that large are a sign of training gone wrong",
        )
    return narrow


def widened(tensor: Array) -> Array:
    """A tensor as it is computed with: whatever was narrowed is float32 again."""
    if tensor.dtype == np.float16:
        return tensor.astype(np.float32)
    if tensor.dtype == np.uint16:
        return (tensor.astype(np.uint32) << 16).view(np.float32)
    return tensor


def as_travelled(weights: Mapping[str, NDArray[np.float32]], wire: Wire) -> dict[str, NDArray[np.float32]]:
    """Weights as the other side gets them.

    >>> as_travelled({"w": np.array([0.1], dtype=np.float32)}, "bfloat16")["w"].tolist()
    [0.10009765625]
    """
    return {name: widened(narrowed(name, np.asarray(array), wire)) for name, array in weights.items()}


def _upper_half(tensor: Array) -> Array:
    """The upper 16 bits, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(tensor).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
