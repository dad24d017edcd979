"""What both embedded fleets share: sites and their names, unit ids, random streams, checked arguments."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedprognos.errors import ConfigError

Experience = Literal["mixed", "narrow"]
STREAMS = {"engine-site": 0, "battery-site": 1, "e": 2, "t": 3, "b": 4, "c": 5}
"""First number of a stream's key; one letter is the kind of unit in its id."""


def stream(seed: int, kind: str, *key: int) -> np.random.Generator:
    """Random numbers of one site or unit, independent of how many others there are."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAMS[kind], *key)))


def site_name(site: int) -> str:
    """Name of the site with this number, counted from 0.

    >>> site_name(0), site_name(25), site_name(26)
    ('plant-a', 'plant-z', 'plant-aa')
    """
    letters, left = "", site + 1
    while left:
        left, letter = divmod(left - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return f"plant-{letters}"


def unit_id(site: int, kind: str, index: int) -> str:
    """Id of a unit, site and index counted from 0.

    >>> unit_id(0, "e", 6)
    's1-e07'
    """
    return f"s{site + 1}-{kind}{index + 1:02d}"


def whole(name: str, value: object, at_least: int, at_most: int | None = None) -> int:
    """The argument as an int, or a :class:`ConfigError` that quotes it.

    >>> whole("sites", 3, 1)
    3
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < at_least or (at_most is not None and number > at_most):
        limits = f">= {at_least}" if at_most is None else f"from {at_least} to {at_most}"
        raise ConfigError(f"{name} = {value!r}", where="embedded fleet", hint=f"use a whole number {limits}")
    return number


def per_site(name: str, units: int | Sequence[int], sites: int) -> tuple[int, ...]:
    """Number of units of every site, given one number for all or one for each.

    >>> per_site("units_per_site", 4, 3), per_site("units_per_site", [4, 2], 2)
    ((4, 4, 4), (4, 2))
    """
    if not isinstance(units, Sequence):
        return (whole(name, units, 1),) * sites
    if len(units) != sites:
        raise ConfigError(
            f"{name} has {len(units)} numbers for {sites} site(s)",
            where="embedded fleet",
            hint="give one number for all sites, or one for each",
        )
    return tuple(whole(f"{name}[{i}]", n, 1) for i, n in enumerate(units))
