"""How a check says that a promise is broken."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fedprognos.errors import FedprognosError

NAME = re.compile(r"[a-z][a-z0-9_-]*")
"""Names are written in experiment files and file names."""


class CheckError(FedprognosError, AssertionError):
    """A thing breaks a promise of its kind; test frameworks show it as a failed assertion."""

    code = "check"


def require(holds: object, what: str, *, where: str, hint: str = "") -> None:
    """Raise :class:`CheckError` unless a promise holds.

    >>> require(2 > 1, "two is not more than one", where="numbers")
    """
    if not holds:
        raise CheckError(what, where=where, hint=hint)


def check_named(kind: str, thing: Any) -> str:
    """The thing has a usable name, label and order. Returns how errors call it, such as "cell 'gru'"."""
    where = f"{kind} '{getattr(thing, 'name', thing)}'"
    require(NAME.fullmatch(thing.name), "its name is not made of a-z, 0-9, - and _", where=where)
    require(thing.label.strip(), "its label is empty", where=where, hint="the report shows the label")
    require(isinstance(thing.order, int), f"its order is {thing.order!r}", where=where, hint="give a whole number")
    return where


def same_bytes(first: Any, second: Any) -> bool:
    """Whether two arrays have the same shape, type and bytes."""
    a, b = np.asarray(first), np.asarray(second)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
