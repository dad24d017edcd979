"""Predictors that need no training: networks as they are first drawn, on recipes of small fleets."""

from __future__ import annotations

import numpy as np

from fedprognos.features import Recipe
from fedprognos.fleet import Fleet, Unit
from fedprognos.networks import Bundle, Calibration, Network, NetworkSpec
from fedprognos.prognosis import Row

RULE = {"altitude": 0, "mach": 2}
CALIBRATION = Calibration(
    ranges=(),
    edges=tuple(np.linspace(-1, 1, 41).round(3).tolist()),
    counts=((0, *[1] * 40, 0),),
    units=(40,),
    unit=1.0,
    growing=False,
)


def bundle_of(recipe: Recipe, widths: tuple[int, ...] = (6,), seed: int = 3, **options: object) -> Bundle:
    spec = NetworkSpec(inputs=recipe.channels, widths=widths, **options)  # type: ignore[arg-type]
    network = Network.seeded(spec, seed)  # with a bias of 0
    head = 5 * network.head  # so that health moves over a good part of its range
    head[head == 0] = np.random.default_rng(seed).normal(0, 0.05, np.count_nonzero(head == 0))
    return Bundle(recipe, network.with_head(head), calibration=CALIBRATION)


def rows_of(unit: Unit, fleet: Fleet, recipe: Recipe) -> list[Row]:
    """A unit's history row by row, as a machine would send it."""
    sensors, settings = recipe.check(fleet.schema, "test")
    cycles = None if unit.cycles is None else np.repeat(unit.cycle_numbers, np.diff(unit.cycles)).tolist()
    return [
        Row(
            unit.id,
            float(unit.time[k]),
            dict(zip(recipe.sensors, unit.sensors[k, sensors].tolist(), strict=True)),
            dict(zip(recipe.settings, unit.settings[k, settings].tolist(), strict=True)),
            None if cycles is None else cycles[k],
        )
        for k in range(unit.rows)
    ]


def interleaved(fleet: Fleet, recipe: Recipe, seed: int = 0) -> list[Row]:
    """Rows of all units in an order that keeps each unit's own."""
    rng = np.random.default_rng(seed)
    queues = [rows_of(unit, fleet, recipe) for unit in fleet]
    order = rng.permutation(np.repeat(np.arange(len(queues)), [len(q) for q in queues]))
    places = [iter(q) for q in queues]
    return [next(places[k]) for k in order]
