"""Hostile experiments: a value that cannot be, at every key there is, is refused in words or does no harm."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from typing import Any

import pytest
from malformed import leaves, put

from fedprognos.errors import FedprognosError
from fedprognos.experiment import config

VALUES: tuple[Any, ...] = (
    *(-1, 0, 2**62, 10**400, 1e308, -1e308, math.nan, math.inf, "", "\x1b[2J", "../../x", "a" * 5000, True),
    *([], {}, [[0]], {"x": {}}, datetime.date(2026, 1, 1)),
)
"""What TOML can hold in place of a number, a text or a table."""


@pytest.fixture(scope="module", params=["demo", "turbofan-fd001", "battery"])
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A preset with every key written out."""
    return config.load(request.param)[1].dump()


def hostile(document: dict[str, Any], step: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The document with one value or key wrong: every `step`-th of all combinations."""
    places = [path for path, _ in leaves(document, ())]
    cases = [(path, value) for path in places for value in VALUES]
    for path, value in cases[::step]:
        yield f"{path} = {value!r:.30}", _put(document, path, value)
    for key in ("base", "scale", "scales", *document):
        yield from ((f"{key} = {value!r:.30}", {**document, key: value}) for value in VALUES)
    for path in places[::step]:
        if isinstance(path[-1], str):
            yield f"{path} twice", _put(document, (*path[:-1], f"{path[-1]}x"), 1)


def _put(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = put(document, path, 0)
    inside: Any = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return changed


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 23])
def test_a_value_that_cannot_be_is_refused_in_words_whatever_its_key(document: dict[str, Any], step: int) -> None:
    refused = accepted = 0
    for what, changed in hostile(document, step):
        try:
            _, experiment, _ = config.load(changed)
        except FedprognosError as error:
            refused += 1
            assert "\x1b" not in str(error), what
            assert len(str(error)) < 20_000, what
        else:
            accepted += 1
            assert config.load(experiment.dump())[1] == experiment, what  # it can be written down and read again
    assert refused > accepted
