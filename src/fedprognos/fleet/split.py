"""Dividing a fleet into what is learnt from and what is tested on."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace

import numpy as np

from fedprognos.errors import ConfigError, DataError
from fedprognos.fleet.discharge import end_of_life as cut_at_end_of_life
from fedprognos.fleet.unit import Fleet


def split_cycles(fleet: Fleet, fraction: float = 0.7, end_of_life: float | None = None) -> tuple[Fleet, Fleet]:
    """First cycles of every unit for training, last cycles for the test.

    Parameters
    ----------
    fleet
        Cyclic units.
    fraction
        Share of each unit's cycles that trains, to the nearest cycle.
    end_of_life
        Capacity at which life ends; units are cut there first (see
        :func:`fedprognos.fleet.discharge.end_of_life`). None keeps whole histories.

    Returns
    -------
    train, test
        Fleets with the same unit ids.
    """
    _check_fraction(fraction, "fraction")
    first, last = [], []
    for unit in fleet:
        if unit.cycle_numbers is None:
            raise DataError(
                "not a cyclic unit", where=f"unit {unit.id}", hint="split fleets of series units by whole units"
            )
        whole = unit if end_of_life is None else cut_at_end_of_life(unit, end_of_life)
        n = len(whole.positions)
        if n < 2:
            raise DataError(f"{n} cycle cannot be split", where=f"unit {unit.id}", hint="leave the unit out")
        stop = min(max(_nearest(n * fraction), 1), n - 1)
        first.append(replace(whole.select_cycles(0, stop), failed=False))
        last.append(whole.select_cycles(stop, n))
    return fleet.select(first, f"{fleet.name}-train"), fleet.select(last, f"{fleet.name}-test")


def split_units(fleet: Fleet, test_fraction: float = 0.25, seed: int = 0, by_site: bool = True) -> tuple[Fleet, Fleet]:
    """Whole units for training and others for the test.

    Parameters
    ----------
    test_fraction
        Share of the units (of each site) that is tested on, to the nearest unit but at least one on either side
        where there are two; the only unit of a site trains.
    by_site
        Divide every site (`attributes["site"]`) by itself. A site's division then does not depend on which
        other sites there are, so each can make it on its own machine.

    Returns
    -------
    train, test
    """
    _check_fraction(test_fraction, "test_fraction")
    groups: dict[str, list[str]] = {}
    for unit in fleet:
        groups.setdefault(str(unit.attributes.get("site", "")) if by_site else "", []).append(unit.id)
    tested: set[str] = set()
    for site, ids in groups.items():
        n = min(max(_nearest(len(ids) * test_fraction), 1), len(ids) - 1)
        order = _stream(seed, site).permutation(len(ids))
        tested.update(ids[int(k)] for k in order[:n])
    if not tested:
        raise DataError(
            f"{len(fleet)} unit(s) leave none for the test", where=f"fleet {fleet.name}", hint="add units to a site"
        )
    train = [u for u in fleet if u.id not in tested]
    test = [u for u in fleet if u.id in tested]
    return fleet.select(train, f"{fleet.name}-train"), fleet.select(test, f"{fleet.name}-test")


def cut_units(fleet: Fleet, seed: int = 0, shares: tuple[float, float] = (0.2, 0.95)) -> Fleet:
    """Units that ran to failure, each stopped at a random point of its life with the RUL there known.

    This is what the C-MAPSS test files are, made from any fleet of labelled series units.

    Parameters
    ----------
    shares
        Between which shares of its rows a unit is stopped.

    Examples
    --------
    >>> from fedprognos.fleet.unit import Schema, Unit
    >>> unit = Unit("e1", np.arange(1., 101.), np.ones((100, 1)), np.empty((100, 0)), rul_at_end=0.0)
    >>> cut = cut_units(Fleet("plant", Schema("rul", ("vibration",)), (unit,)), seed=1)["e1"]
    >>> cut.rows + cut.rul_at_end, cut.failed
    (100.0, False)
    """
    low, high = shares
    if not 0 < low <= high <= 1:
        raise ConfigError(f"shares {shares} are not 0 < low <= high <= 1")
    cut = []
    for unit in fleet:
        if unit.labels() is None:
            raise DataError("RUL unknown", where=f"unit {unit.id}", hint="only labelled units can be cut for a test")
        least = min(max(2, math.ceil(low * unit.rows)), unit.rows)
        most = max(least, math.floor(high * unit.rows))
        cut.append(unit.select_rows(int(_stream(seed, unit.id).integers(least, most + 1))))
    return fleet.select(cut, f"{fleet.name}-cut")


def _stream(seed: int, name: str) -> np.random.Generator:
    """Random numbers that depend on the name alone, not on who else is there."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _nearest(value: float) -> int:
    return math.floor(value + 0.5)


def _check_fraction(fraction: float, name: str) -> None:
    if not 0 < fraction < 1:
        raise ConfigError(f"{name} is {fraction}", hint="give a number between 0 and 1")
