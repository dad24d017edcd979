"""Dividing a fleet into what is learnt from and what is tested on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedprognos.errors import ConfigError, DataError
from fedprognos.fleet.unit import MACHINE, Fleet, Unit


def split_cycles(fleet: Fleet, fraction: float = 0.7) -> tuple[Fleet, Fleet]:
    """First cycles of every unit for training, last cycles for the test.

    Parameters
    ----------
    fleet
        Cyclic units.
    fraction
        Share of each unit's cycles that trains, to the nearest cycle.

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
        n = len(unit.positions)
        if n < 2:
            raise DataError(f"{n} cycle cannot be split", where=f"unit {unit.id}", hint="leave the unit out")
        stop = min(max(_nearest(n * fraction), 1), n - 1)
        first.append(replace(unit.select_cycles(0, stop), failed=False))
        last.append(unit.select_cycles(stop, n))
    return fleet.select(first, f"{fleet.name}-train"), fleet.select(last, f"{fleet.name}-test")


def split_units(fleet: Fleet, test_fraction: float = 0.25, seed: int = 0) -> tuple[Fleet, Fleet]:
    """Whole machines for training and others for the test; it depends on their number, their labels and the seed only.

    Parameters
    ----------
    test_fraction
        Share of the machines that is tested on, to the nearest one but at least one on either side. Units without a
        label (they have not failed) train: they are scaled with, and nothing else.

    Returns
    -------
    train, test
    """
    _check_fraction(test_fraction, "test_fraction")
    groups = list(machines(fleet).values())
    labelled = [any(u.labels() is not None for u in units) for units in groups]
    if sum(labelled) < 2:
        raise DataError("one labelled unit leaves none for the test", where=f"fleet {fleet.name}", hint="add units")
    n = min(max(_nearest(len(groups) * test_fraction), 1), sum(labelled) - 1)
    order = np.random.default_rng([seed, 0]).permutation(len(groups))
    chosen = [int(k) for k in order if labelled[k]][:n]
    tested = {u.id for k in chosen for u in groups[k]}
    train = [u for u in fleet if u.id not in tested]
    test = [u for u in fleet if u.id in tested and u.labels() is not None]
    return fleet.select(train, f"{fleet.name}-train"), fleet.select(test, f"{fleet.name}-test")


def can_split(fleet: Fleet) -> bool:
    """Whether there are two machines with labels: one to learn from and one to test on."""
    return sum(any(u.labels() is not None for u in units) for units in machines(fleet).values()) > 1


def machines(fleet: Fleet) -> dict[str, list[Unit]]:
    """Units by the machine whose lives they are; a unit that is its machine's only life stands for itself."""
    by_machine: dict[str, list[Unit]] = {}
    for unit in fleet:
        by_machine.setdefault(str(unit.attributes.get(MACHINE, unit.id)), []).append(unit)
    return by_machine


def _nearest(value: float) -> int:
    return math.floor(value + 0.5)


def _check_fraction(fraction: float, name: str) -> None:
    if not 0 < fraction < 1:
        raise ConfigError(f"{name} is {fraction}", hint="give a number between 0 and 1")
