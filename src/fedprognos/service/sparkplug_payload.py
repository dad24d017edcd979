"""Payloads of Sparkplug B: the few fields of its protobuf message that carry values, read and written by hand.

The message is `org.eclipse.tahu.protobuf.Payload` of the Sparkplug specification 3.0. A field is a key, which holds the
field's number and its wire type, and a value; fields that are not needed are passed over.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedprognos.errors import DataError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
SIGNED_BITS = {1: 8, 2: 16, 3: 32, 4: 64}
"""Bits of the signed whole numbers, by data type; they travel as unsigned ones."""
BOOLEAN, DOUBLE, INT64 = 11, 10, 4
MOST_METRICS = 10_000
Value = float | int | bool | str | None


@dataclass(frozen=True, slots=True)
class Metric:
    """A value. A birth gives name and alias; later messages may give the alias alone. Times are in milliseconds."""

    name: str = ""
    alias: int | None = None
    timestamp_in_ms: int | None = None
    datatype: int = 0
    value: Value = None


@dataclass(frozen=True, slots=True)
class Payload:
    """What one message holds; `seq` counts the messages of an edge node from 0 to 255 and over again."""

    timestamp_in_ms: int | None = None
    metrics: Sequence[Metric] = ()
    seq: int | None = None


def read_payload(data: bytes) -> Payload:
    """The payload of a message.

    >>> read_payload(write_payload(Payload(5, (Metric("heat", 1, None, DOUBLE, 3.5),), 7))).metrics[0].value
    3.5
    """
    timestamp = seq = None
    metrics: list[Metric] = []
    try:
        for number, value in _fields(data):
            if number == 1 and isinstance(value, int):
                timestamp = value
            elif number == 2 and isinstance(value, bytes):
                metrics.append(_metric(value))
            elif number == 3 and isinstance(value, int):
                seq = value
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise DataError(f"not a Sparkplug payload: {error}") from None
    if len(metrics) > MOST_METRICS:
        raise DataError(f"a payload has at most {MOST_METRICS} metrics, not {len(metrics)}")
    return Payload(timestamp, metrics, seq)


def _metric(data: bytes) -> Metric:
    name, alias, timestamp, datatype, null = "", None, None, 0, False
    value: Value = None
    for number, field in _fields(data):
        if isinstance(field, bytes):
            if number == 1:
                name = field.decode("utf-8")
            elif number == 12 and len(field) == 4:
                value = struct.unpack("<f", field)[0]
            elif number == 13 and len(field) == 8:
                value = struct.unpack("<d", field)[0]
            elif number == 15:
                value = field.decode("utf-8")
        elif number == 2:
            alias = field
        elif number == 3:
            timestamp = field
        elif number == 4:
            datatype = field
        elif number == 7:
            null = bool(field)
        elif number in (10, 11):
            value = field
        elif number == 14:
            value = bool(field)
    bits = SIGNED_BITS.get(datatype)
    if bits is not None and type(value) is int:
        value &= (1 << bits) - 1
        value -= (value >> (bits - 1)) << bits
    if null or (isinstance(value, float) and math.isnan(value)):
        value = None
    return Metric(name, alias, timestamp, datatype, value)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field; the fixed ones as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if wire == BYTES:
            length, place = _varint(data, place)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if place + length > len(data):
            raise ValueError("it ends within a field")
        yield number, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
    raise ValueError("a number is too long")


def write_payload(payload: Payload) -> bytes:
    """The bytes of a payload whose values are doubles, 64-bit whole numbers or booleans."""
    parts = [] if payload.timestamp_in_ms is None else [_number(1, payload.timestamp_in_ms)]
    for metric in payload.metrics:
        body = b"" if not metric.name else _bytes(1, metric.name.encode("utf-8"))
        body += b"" if metric.alias is None else _number(2, metric.alias)
        body += b"" if metric.timestamp_in_ms is None else _number(3, metric.timestamp_in_ms)
        body += _number(4, metric.datatype)
        if metric.value is None:
            body += _number(7, 1)
        elif metric.datatype == BOOLEAN:
            body += _number(14, int(bool(metric.value)))
        elif metric.datatype == INT64:
            body += _number(11, int(metric.value) & 0xFFFF_FFFF_FFFF_FFFF)
        else:
            body += _key(13, FIXED64) + struct.pack("<d", float(metric.value))
        parts.append(_bytes(2, body))
    parts += [] if payload.seq is None else [_number(3, payload.seq)]
    return b"".join(parts)


def _key(number: int, wire: int) -> bytes:
    return _written(number << 3 | wire)


def _number(number: int, value: int) -> bytes:
    return _key(number, VARINT) + _written(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _key(number, BYTES) + _written(len(value)) + value


def _written(value: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
