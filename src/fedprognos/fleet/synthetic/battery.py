"""Embedded battery fleet: cells cycled at constant current until well past their end of life.

Sites differ in chemistry, rate and climate; columns are those of the NASA batteries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.fleet.discharge import BATTERY_SCHEMA, END_OF_LIFE_SHARE, RATED
from fedprognos.fleet.synthetic.ageing import Ageing, age
from fedprognos.fleet.synthetic.cell import CHEMISTRIES, Discharges, discharge
from fedprognos.fleet.synthetic.sites import per_site, site_name, stream, unit_id, whole
from fedprognos.fleet.unit import Fleet, Unit


@dataclass(frozen=True)
class BatterySite:
    """How a site uses its cells; `ambient` is in C."""

    chemistry: str
    c_rate: float
    ambient: float


SITES = (BatterySite("NMC", 1.0, 24.0), BatterySite("LFP", 1.4, 35.0), BatterySite("NCA", 0.8, 12.0))
"""Further sites are drawn at random."""
LOADS = tuple(
    BatterySite("NMC", c_rate, ambient)
    for c_rate, ambient in ((0.6, 10.0), (1.0, 35.0), (1.4, 20.0), (0.8, 38.0), (1.2, 12.0), (1.0, 24.0))
)
"""In what ways the cells of :func:`synthetic_battery_loads` are used."""


@dataclass(frozen=True, eq=False)
class BatteryTruth:
    """What the generator knows about a cell and no sensor shows.

    Parameters
    ----------
    ageing
        Fade parameters, health, resistance and rests.
    charge : (K,)
        Ah in the full cell.
    capacity : (K,)
        Ah delivered down to the cut-off, less than the former by what the resistance keeps back.
    """

    ageing: Ageing
    charge: FloatArray
    capacity: FloatArray


def synthetic_batteries(
    sites: int = 3,
    units_per_site: int | Sequence[int] = 4,
    cycles: int = 160,
    seed: int = 0,
    samples: int = 300,
) -> Fleet:
    """Make a fleet of cells with their discharge cycles and the capacity of each cycle.

    Parameters
    ----------
    sites
        Number of data owners, named plant-a, plant-b, ...; each unit's `attributes["site"]` says whose it is.
    units_per_site
        One number for all sites or one for each.
    cycles
        Length of the ageing campaign; cells are aged so that nearly all end their life within it.
    seed
        Same seed, same bytes.
    samples
        Samples of a new cell's discharge, roughly: the interval changes between cycles, old cells have fewer.

    Returns
    -------
    Fleet
        Units `s1-b01`, ...; discharge current is negative, and its integral is the capacity. The last
        sample of a cycle is the first at or below the cut-off voltage.

    Examples
    --------
    >>> fleet = synthetic_batteries(sites=2, units_per_site=1, cycles=30, samples=40)
    >>> cell = fleet["s2-b01"]
    >>> cell.attributes["chemistry"], len(cell.target)
    ('LFP', 30)
    >>> first = cell.cycle(0)
    >>> round(float(np.trapezoid(-cell.sensors[first, 2], cell.time[first]) / 3600 / cell.target[0]), 6)
    1.0
    """
    sites, cycles = whole("sites", sites, 1), whole("cycles", cycles, 20)
    seed, samples = whole("seed", seed, 0), whole("samples", samples, 20)
    many = per_site("units_per_site", units_per_site, sites)
    pairs = [(s, i) for s in range(sites) for i in range(many[s])]
    units = tuple(make_battery(seed, s, "b", i, cycles, samples, site_usage(seed, s))[0] for s, i in pairs)
    return Fleet("synthetic-batteries", BATTERY_SCHEMA, units, source=f"synthetic-batteries, seed {seed}")


def synthetic_battery_loads(
    sites: int = 6,
    units_per_site: int | Sequence[int] = 2,
    cycles: int = 160,
    seed: int = 0,
    samples: int = 300,
    test_units_per_site: int | Sequence[int] = 6,
) -> tuple[Fleet, Fleet]:
    """Make cells of one make whose owners have used them in a way or two, and test cells used in all six ways.

    A way is a rate and a temperature; the cells of a site take one each, from the site's own on. Arguments are those of
    :func:`synthetic_batteries`.

    Returns
    -------
    train, test
        Units `s1-b01`, ... and `s1-c01`, ...; `attributes["load"]` names the way.

    Examples
    --------
    >>> train, test = synthetic_battery_loads(2, 1, cycles=20, samples=20, test_units_per_site=2)
    >>> [unit.attributes["load"] for unit in train]
    ['0.6 C at 10 °C', '1 C at 35 °C']
    >>> [unit.attributes["load"] for unit in test if unit.attributes["site"] == "plant-b"]
    ['0.6 C at 10 °C', '1 C at 35 °C']
    """
    sites, cycles = whole("sites", sites, 1), whole("cycles", cycles, 20)
    seed, samples = whole("seed", seed, 0), whole("samples", samples, 20)
    fleets = []
    for name, kind, argument, counts in (
        ("synthetic-batteries", "b", "units_per_site", units_per_site),
        ("synthetic-batteries-test", "c", "test_units_per_site", test_units_per_site),
    ):
        many = per_site(argument, counts, sites)
        pairs = [(s, i) for s in range(sites) for i in range(many[s])]
        loads = [LOADS[(s + i if kind == "b" else i) % len(LOADS)] for s, i in pairs]
        cells = [make_battery(seed, s, kind, i, cycles, samples, u)[0] for (s, i), u in zip(pairs, loads, strict=True)]
        units = tuple(
            replace(cell, attributes={**cell.attributes, "load": f"{u.c_rate:g} C at {u.ambient:g} °C"})
            for cell, u in zip(cells, loads, strict=True)
        )
        fleets.append(Fleet(name, BATTERY_SCHEMA, units, source=f"{name}, seed {seed}"))
    return fleets[0], fleets[1]


def site_usage(seed: int, site: int) -> BatterySite:
    if site < len(SITES):
        return SITES[site]
    rng = stream(seed, "battery-site", site)
    chemistry = str(rng.choice(list(CHEMISTRIES)))
    return BatterySite(chemistry, c_rate=round(rng.uniform(0.6, 1.5), 1), ambient=round(rng.uniform(10.0, 38.0), 0))


def make_battery(
    seed: int, site: int, kind: str, index: int, cycles: int, samples: int, usage: BatterySite
) -> tuple[Unit, BatteryTruth]:
    """One cell of a fleet, used in a way, and what no sensor shows of it."""
    rng = stream(seed, kind, site, index)
    chemistry = CHEMISTRIES[usage.chemistry]
    current = usage.c_rate * chemistry.rated
    ageing = age(rng, cycles, usage.ambient)
    charge = chemistry.rated * rng.uniform(1.0, 1.06) * ageing.charge
    ambient = usage.ambient + rng.normal(0.0, 0.2, cycles)
    curves = discharge(
        chemistry,
        current,
        charge_in_Ah=charge,
        resistance=ageing.resistance,
        ambient_in_C=ambient,
        start_in_C=ambient + rng.uniform(0.8, 1.8, cycles),  # still warm from charging
    )
    offsets, time = _sample_times(rng, curves.end_in_s, samples)
    sensors = _measure(rng, curves, offsets, time, (current, chemistry.cutoff))
    capacity = _delivered(time, sensors[:, 2], offsets)
    unit = Unit(
        id=unit_id(site, kind, index),
        time=time,
        sensors=sensors,
        settings=np.empty((len(time), 0)),
        target=capacity,
        failed=bool(capacity[-1] < END_OF_LIFE_SHARE * chemistry.rated),
        cycles=offsets,
        cycle_numbers=np.arange(1, cycles + 1),
        attributes={
            "site": site_name(site),
            "chemistry": chemistry.name,
            "ambient_temperature_in_C": usage.ambient,
            RATED: chemistry.rated,
            "cutoff_in_V": chemistry.cutoff,
            "current_in_A": current,
        },
    )
    return unit, BatteryTruth(ageing, charge, capacity=current * curves.end_in_s / 3600.0)


def _sample_times(rng: np.random.Generator, end_in_s: FloatArray, samples: int) -> tuple[IntArray, FloatArray]:
    """Row offsets of the cycles and the time of every sample, the last one when the cut-off is reached.

    Recorders get reconfigured: the interval is coarse at first, then fine and drifting, now and then coarse again.
    """
    cycles = len(end_in_s)
    drift = np.linspace(0.8, rng.uniform(0.85, 1.0), cycles)
    coarse = np.arange(cycles) < rng.uniform(0.1, 0.25) * cycles
    coarse |= rng.uniform(size=cycles) < 0.01
    interval = np.where(coarse, 1.4, drift) * end_in_s[0] / samples
    counts = (end_in_s / interval).astype(np.int64) + 1
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    cycle = np.repeat(np.arange(cycles), counts)
    place = np.arange(offsets[-1]) - offsets[cycle]
    time: FloatArray = (place + rng.uniform(-0.1, 0.1, len(place))) * interval[cycle]
    time[offsets[:-1]], time[offsets[1:] - 1] = 0.0, end_in_s
    return offsets, time


def _measure(
    rng: np.random.Generator,
    curves: Discharges,
    offsets: IntArray,
    time: FloatArray,
    usage: tuple[float, float],
) -> FloatArray:
    """Voltage, temperature and current as recorded, with the noise of the instruments."""
    current, cutoff = usage
    cycle = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    voltage, temperature = curves.at(cycle, time)
    voltage += rng.normal(0.0, 0.0012, len(time))
    voltage = np.maximum(voltage, cutoff + 0.001)  # the tester stops at the first sample below
    voltage[offsets[1:] - 1] = cutoff - np.abs(rng.normal(0.0, 0.0012, len(offsets) - 1))
    temperature += rng.normal(0.0, 0.03, len(time))
    amperes = -current * rng.normal(1.0, 0.0015, len(time))
    return np.stack([voltage, temperature, amperes], axis=1)


def _delivered(time: FloatArray, current_in_A: FloatArray, offsets: IntArray) -> FloatArray:
    """Ah of each cycle: the trapezoidal integral of its current."""
    mean = 0.5 * (current_in_A[1:] + current_in_A[:-1])
    piece = np.concatenate([[0.0], -mean * np.diff(time) / 3600.0])
    piece[offsets[:-1]] = 0.0  # from the end of one cycle to the start of the next nothing flows
    capacity: FloatArray = np.add.reduceat(piece, offsets[:-1])
    return capacity
