"""Damaged messages, files and requests: an error in words or a good answer; no traceback, no hang, no memory blow-up.

A few of each here; `make fuzz CASES=2000` takes as many as it is told, and says what it did.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from feeds import ANSWERED, MAKERS, NAMES, Feed, check, requests_over_http
from mutations import bounded
from services import running, small_bundle

from small_fleets import series_fleet

FEW, MANY = 24, 2000 // len(NAMES) + 1
Get = Callable[[str], Feed]


@pytest.fixture(scope="module")
def feed_of(tmp_path_factory: pytest.TempPathFactory) -> Get:
    """Feeds by name, made when first asked for."""

    @cache
    def made(maker: Callable[[Path], dict[str, Feed]]) -> dict[str, Feed]:
        return maker(tmp_path_factory.mktemp(maker.__name__))

    def get(name: str) -> Feed:
        (maker,) = (maker for maker, names in MAKERS.items() if name in names)
        assert tuple(made(maker)) == MAKERS[maker]
        return made(maker)[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_an_error_in_words_or_does_no_harm(feed_of: Get, name: str) -> None:
    assert check(name, feed_of(name), range(FEW)) or name in ANSWERED


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_much_damage_is_an_error_in_words_or_does_no_harm(feed_of: Get, name: str) -> None:
    for begin in range(FEW, FEW + MANY, 20):
        check(name, feed_of(name), range(begin, begin + 20))


def test_damaged_requests_over_http_are_refused(tmp_path: Path) -> None:
    with running(small_bundle(series_fleet([28, 14]))) as client:
        post = requests_over_http(tmp_path, client)
        with bounded():
            for k in range(2 * FEW):
                post(random.Random(f"http {k}"))  # noqa: S311
        assert client.get("/readyz").status_code == 200
