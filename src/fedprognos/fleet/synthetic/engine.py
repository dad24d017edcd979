"""Embedded engine fleet: turbofan-like units that wear until their health is used up.

Wear creeps on a healthy plateau, then grows exponentially; the increments form a gamma process,
so that two engines of equal wear do not fail at the same time. Sites differ in routes, climate, dominant
fault and pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.fleet.synthetic.gas_path import CONDITIONS, FAULT_MODES, SENSORS, SETTINGS, readings
from fedprognos.fleet.synthetic.sites import Experience, per_site, site_name, stream, unit_id, whole
from fedprognos.fleet.unit import Fleet, Schema, Unit

ENGINE_SCHEMA = Schema(task="rul", sensors=tuple(s.name for s in SENSORS), settings=SETTINGS)
MIN_TEST_ROWS = 40
MIN_TEST_RUL = 5


@dataclass(frozen=True)
class EngineSite:
    """How a site flies its engines and what wears them out."""

    condition_mix: tuple[float, ...]
    fault_mix: tuple[float, ...]
    plateau_in_cycles: tuple[float, float]
    wear_in_cycles: tuple[float, float]
    climate: float


SITES = (
    EngineSite((0.28, 0.24, 0.20, 0.14, 0.08, 0.06), (0.90, 0.05, 0.05), (12, 110), (85, 115), 0.6),
    EngineSite((0.08, 0.08, 0.12, 0.10, 0.25, 0.37), (0.05, 0.90, 0.05), (60, 180), (115, 155), -0.6),
    EngineSite((0.12, 0.10, 0.14, 0.34, 0.16, 0.14), (0.05, 0.05, 0.90), (12, 190), (90, 140), 0.0),
)
"""Short haul, long haul, mixed; further sites are drawn at random."""
ROUTES = ("short haul", "long haul", "mixed")


@dataclass(frozen=True, eq=False)
class EngineTruth:
    """What the generator knows about an engine and no sensor shows, up to its failure.

    Parameters
    ----------
    health : (lifespan,)
        From nearly 1 when new to 0 in the cycle of failure; a test unit shows only the first part.
    wear : (lifespan, fault modes)
        Wear by fault mode, 1 for the engine's own fault at failure.
    condition : (lifespan,)
        Index of the flight condition of each cycle.
    onset_in_cycles
        Cycle in which the healthy plateau ends.
    """

    fault_mode: str
    health: FloatArray
    wear: FloatArray
    condition: IntArray
    onset_in_cycles: int

    @property
    def lifespan(self) -> int:
        return len(self.health)


def synthetic_engines(
    sites: int = 3,
    units_per_site: int | Sequence[int] = 12,
    conditions: int = 6,
    seed: int = 0,
    test_units_per_site: int | Sequence[int] = 4,
    experience: Experience = "mixed",
) -> tuple[Fleet, Fleet]:
    """Make a training fleet run to failure and a test fleet stopped at a random earlier cycle.

    Parameters
    ----------
    sites
        Number of data owners, named plant-a, plant-b, ...; each unit's `attributes["site"]` says whose it is.
    units_per_site, test_units_per_site
        One number for all sites or one for each.
    conditions
        Flight conditions in use, 1 to 6.
    seed
        Same seed, same bytes.
    experience
        "mixed": a site's test engines are like its training engines. "narrow": its training engines had one fault and
        flew one kind of routes, another pair at each of up to nine sites; its test engines have any fault on any route.

    Returns
    -------
    train, test
        Units `s1-e01`, ... and `s1-t01`, ...; those of `test` have `failed=False` and a known `rul_at_end`.

    Examples
    --------
    >>> train, test = synthetic_engines(sites=2, units_per_site=[3, 1], test_units_per_site=1)
    >>> train.ids
    ('s1-e01', 's1-e02', 's1-e03', 's2-e01')
    >>> unit = test["s2-t01"]
    >>> unit.attributes["site"], unit.failed
    ('plant-b', False)
    """
    sites = whole("sites", sites, 1)
    conditions = whole("conditions", conditions, 1, len(CONDITIONS))
    seed = whole("seed", seed, 0)
    fleets = []
    for name, kind, argument, counts in (
        ("synthetic-engines", "e", "units_per_site", units_per_site),
        ("synthetic-engines-test", "t", "test_units_per_site", test_units_per_site),
    ):
        many = per_site(argument, counts, sites)
        units = tuple(
            make_engine(seed, s, kind, i, conditions, experience)[0] for s in range(sites) for i in range(many[s])
        )
        fleets.append(Fleet(name, ENGINE_SCHEMA, units, source=f"{name}, seed {seed}"))
    return fleets[0], fleets[1]


def _site(seed: int, site: int) -> EngineSite:
    if site < len(SITES):
        return SITES[site]
    rng = stream(seed, "engine-site", site)
    shortest, pace = rng.uniform(12, 60), rng.uniform(85, 115)
    return EngineSite(
        condition_mix=tuple(rng.dirichlet(np.full(len(CONDITIONS), 4.0))),
        fault_mix=tuple(rng.dirichlet(np.full(len(FAULT_MODES), 0.5))),
        plateau_in_cycles=(shortest, shortest + rng.uniform(60, 120)),
        wear_in_cycles=(pace, pace + 35.0),
        climate=float(rng.normal(0.0, 0.5)),
    )


def _narrow(site: int, kind: str, index: int) -> tuple[EngineSite, int]:
    """Routes and fault: a pair of its own at each of nine sites in training; in the test all nine pairs in turn."""
    turn = site if kind == "e" else index
    fault, routes = turn % 3, (turn + turn // 3) % 3
    return replace(SITES[routes], fault_mix=tuple(float(m == fault) for m in range(3))), routes


def _wear(rng: np.random.Generator, site: EngineSite) -> tuple[FloatArray, int]:
    """Wear after each cycle, from its initial value to 1 at failure, and the cycle in which it takes off."""
    plateau, rise = rng.uniform(*site.plateau_in_cycles), rng.uniform(*site.wear_in_cycles)
    initial, creep, growth = rng.uniform(0.0, 0.06), rng.uniform(0.02, 0.08), rng.uniform(1.2, 2.4)
    life = plateau + rise
    exposure = np.cumsum(rng.gamma(4.0, 0.25, int(1.5 * life) + 50))  # mean one a cycle
    exposure = exposure[: int(np.argmax(exposure >= life)) + 1]
    progress = np.maximum(exposure - plateau, 0.0) / rise
    steep = np.expm1(growth * progress) / np.expm1(growth)
    wear = initial + creep * exposure / life + (1.0 - initial - creep) * steep
    return np.minimum(wear, 1.0), int(np.argmax(progress > 0)) + 1


def make_engine(
    seed: int, site: int, kind: str, index: int, conditions: int, experience: Experience
) -> tuple[Unit, EngineTruth]:
    """One engine of a fleet, and what no sensor shows of it."""
    rng, facts = stream(seed, kind, site, index), {"site": site_name(site)}
    if experience == "narrow":
        profile, routes = _narrow(site, kind, index)
        facts["routes"] = ROUTES[routes]
    else:
        profile = _site(seed, site)
    mode = int(rng.choice(len(FAULT_MODES), p=profile.fault_mix))
    unit_wear, onset = _wear(rng, profile)
    share = rng.uniform(0.0, 0.2, len(FAULT_MODES))  # the other modules age too, a little
    share[mode] = 1.0
    wear = unit_wear[:, None] * share
    mix = np.array(profile.condition_mix[:conditions])
    condition = rng.choice(conditions, size=len(unit_wear), p=mix / mix.sum()).astype(np.int64)
    settings, sensors = readings(rng, wear, condition, profile.climate)
    unit = Unit(
        id=unit_id(site, kind, index),
        time=np.arange(1.0, len(unit_wear) + 1.0),
        sensors=sensors,
        settings=settings,
        rul_at_end=0.0,
        attributes={**facts, "fault": FAULT_MODES[mode]},
    )
    if kind == "t":
        unit = unit.select_rows(int(rng.integers(MIN_TEST_ROWS, unit.rows - MIN_TEST_RUL, endpoint=True)))
    return unit, EngineTruth(FAULT_MODES[mode], 1.0 - unit_wear, wear, condition, onset)
