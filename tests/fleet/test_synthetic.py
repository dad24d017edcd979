"""The embedded fleets keep to their own physics, to their seed, and to the truth they tell about themselves."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedprognos.errors import ConfigError
from fedprognos.fleet import Fleet, Unit
from fedprognos.fleet.discharge import end_of_life, samples_before_cutoff
from fedprognos.fleet.synthetic import (
    synthetic_batteries,
    synthetic_battery_loads,
    synthetic_engines,
)
from fedprognos.fleet.synthetic.battery import BatteryTruth, make_battery, site_usage
from fedprognos.fleet.synthetic.engine import EngineTruth, make_engine
from fedprognos.fleet.synthetic.sites import Experience
from refusals import refuses

CAP = 125.0
ALTITUDES = [0.0, 10.0, 20.0, 25.0, 35.0, 42.0]


def engine_truth(unit: str, experience: Experience = "mixed") -> EngineTruth:
    """What the generator knows about an engine of the fleet of seed 0, such as `s1-e07`."""
    site, number = unit[1:].split("-")
    return make_engine(0, int(site) - 1, number[0], int(number[1:]) - 1, len(ALTITUDES), experience)[1]


def battery_truth(unit: str) -> BatteryTruth:
    """What the generator knows about a cell of the fleet of seed 0, such as `s1-b07`."""
    site, number = unit[1:].split("-")
    return make_battery(0, int(site) - 1, "b", int(number[1:]) - 1, 160, 20, site_usage(0, int(site) - 1))[1]


@pytest.fixture(scope="module")
def engines() -> tuple[Fleet, Fleet]:
    return synthetic_engines(units_per_site=36, test_units_per_site=8)


@pytest.fixture(scope="module")
def batteries() -> Fleet:
    return synthetic_batteries(samples=80)


def at_site(fleet: Fleet, site: str) -> list[Unit]:
    return [unit for unit in fleet if unit.attributes["site"] == site]


def sites_of(fleet: Fleet) -> list[str]:
    return sorted({str(unit.attributes["site"]) for unit in fleet})


def same_bytes(a: Unit, b: Unit) -> bool:
    return a.id == b.id and all(
        x.tobytes() == y.tobytes()
        for x, y in ((a.time, b.time), (a.sensors, b.sensors), (a.settings, b.settings), (a.positions, b.positions))
    )


# ---- engines


def test_health_falls_from_one_to_zero_and_falls_faster_late(engines: tuple[Fleet, Fleet]) -> None:
    for unit in engines[0]:
        truth = engine_truth(unit.id)
        assert truth.lifespan == unit.lifespan == unit.rows
        assert 0.9 < truth.health[0] <= 1.0
        assert truth.health[-1] == 0.0
        assert (np.diff(truth.health) < 0).all()
        assert truth.health[truth.onset_in_cycles - 2] > 0.8  # the plateau is a plateau
        early, late = np.array_split(-np.diff(truth.health[truth.onset_in_cycles :]), 2)
        assert late.mean() > 1.5 * early.mean()


def test_lifespans_are_those_of_turbofans(engines: tuple[Fleet, Fleet]) -> None:
    lives = np.array([unit.lifespan for unit in engines[0]])
    assert lives.min() >= 85
    assert lives.max() <= 350
    assert lives.std() > 35


@pytest.mark.parametrize("decimals", [0, 1, 2])
def test_rounding_the_settings_finds_the_six_conditions(engines: tuple[Fleet, Fleet], decimals: int) -> None:
    for unit in engines[0]:
        rounded = np.round(unit.settings, decimals)
        assert len(np.unique(rounded, axis=0)) == 6
        assert rounded[:, 0].tolist() == [ALTITUDES[c] for c in engine_truth(unit.id).condition]
        assert len(np.unique(unit.settings[:, 0])) > 80


def test_fewer_conditions_can_be_asked_for() -> None:
    train, _ = synthetic_engines(units_per_site=2, conditions=1)
    assert {float(a) for unit in train for a in np.round(unit.settings[:, 0])} == {0.0}


def test_a_test_unit_stops_before_failure_with_the_true_rul(engines: tuple[Fleet, Fleet]) -> None:
    for unit in engines[1]:
        truth = engine_truth(unit.id)
        assert not unit.failed
        assert unit.rul_at_end == truth.lifespan - unit.rows
        assert unit.rul_at_end >= 5
        assert unit.rows >= 40
    assert all(unit.failed and unit.rul_at_end == 0.0 for unit in engines[0])


def test_each_fault_moves_its_own_sensors_and_two_sensors_never_move(engines: tuple[Fleet, Fleet]) -> None:
    train, _ = engines
    shift = dict(zip(train.schema.sensors, np.zeros((len(train.schema.sensors), 3)), strict=True))
    for m, mode in enumerate(("compressor", "fan", "turbine")):
        moved = []
        for unit in (u for u in train if engine_truth(u.id).fault_mode == mode):
            z = standardised(unit, scaler([unit]))
            moved.append(z[-20:].mean(axis=0) - z[: unit.rows // 2].mean(axis=0))
        for name, value in zip(shift, np.mean(moved, axis=0), strict=True):
            shift[name][m] = value
    assert shift["hpc_outlet_pressure_in_kPa"][0] < -1
    assert shift["bypass_duct_pressure_in_kPa"][1] < -1
    assert abs(shift["bypass_duct_pressure_in_kPa"][0]) < 0.5
    assert shift["lpt_outlet_temperature_in_K"].min() > 0.7
    assert shift["core_speed_in_rpm"][0] > 1
    assert shift["core_speed_in_rpm"][2] < -1
    for name in ("inlet_temperature_in_K", "oil_pressure_in_kPa"):
        assert np.abs(shift[name]).max() < 0.35


def test_readings_are_plausible_and_never_constant(engines: tuple[Fleet, Fleet]) -> None:
    train, _ = engines
    names = train.schema.sensors
    for unit in train:
        column = dict(zip(names, unit.sensors.T, strict=True))
        assert (unit.sensors > 0).all()
        assert (column["inlet_temperature_in_K"] < column["lpc_outlet_temperature_in_K"]).all()
        assert (column["lpc_outlet_temperature_in_K"] < column["lpt_outlet_temperature_in_K"]).all()
        assert (column["bypass_duct_pressure_in_kPa"] < column["hpc_outlet_pressure_in_kPa"]).all()
        assert 600 < column["hpc_outlet_temperature_in_K"].min() < column["hpc_outlet_temperature_in_K"].max() < 1000
        assert 7500 < column["core_speed_in_rpm"].min() < column["core_speed_in_rpm"].max() < 9300
        climb = np.round(unit.settings[:, 0]) == 20.0
        assert (unit.sensors[climb].std(axis=0) > 0).all()


def test_noise_is_correlated_in_time_and_across_sensors(engines: tuple[Fleet, Fleet]) -> None:
    names = engines[0].schema.sensors
    inlet, fuel, speed = (
        names.index(n) for n in ("inlet_temperature_in_K", "fuel_flow_in_kg_per_s", "fan_speed_in_rpm")
    )
    across, after = [], []
    for unit in engines[0]:
        healthy = unit.select_rows(max(20, engine_truth(unit.id).onset_in_cycles))
        z = standardised(healthy, scaler([unit]))
        across.append(np.corrcoef(z[:, fuel], z[:, speed])[0, 1])
        after.append(np.corrcoef(z[1:, inlet], z[:-1, inlet])[0, 1])
    assert np.mean(across) > 0.1
    assert np.mean(after) > 0.35


def test_sites_differ_in_life_fault_and_routes(engines: tuple[Fleet, Fleet]) -> None:
    sites = [at_site(engines[0], f"plant-{letter}") for letter in "abc"]
    assert [len(s) for s in sites] == [36, 36, 36]
    lives = [np.mean([u.lifespan for u in s]) for s in sites]
    assert lives[0] < lives[2] < lives[1]
    modes = [[engine_truth(u.id).fault_mode for u in s] for s in sites]
    assert [max(set(m), key=m.count) for m in modes] == ["compressor", "fan", "turbine"]
    take_off = [np.mean(np.concatenate([np.round(u.settings[:, 0]) for u in s]) == 0.0) for s in sites]
    assert take_off[0] > 2 * take_off[1]


def test_a_window_tells_more_than_the_last_row_and_home_more_than_abroad(engines: tuple[Fleet, Fleet]) -> None:
    train, _ = engines
    fit = [u for u in train if int(u.id[4:]) <= 24]
    held_out = [u for u in train if int(u.id[4:]) > 24]
    constant = np.std(np.concatenate([np.minimum(u.time[-1] - u.time, CAP) for u in held_out]))
    row, window = ridge_rmse(fit, held_out, 1), ridge_rmse(fit, held_out, 30)
    assert row < 0.7 * constant
    assert window < 0.85 * row
    assert window > 8.0  # not given away

    def site(units: list[Unit], letter: str) -> list[Unit]:
        return [u for u in units if u.attributes["site"] == f"plant-{letter}"]

    rmse = np.array([[ridge_rmse(site(fit, s), site(held_out, t), 30) for t in "abc"] for s in "abc"])
    home = np.diag(rmse)
    abroad = (rmse.sum(axis=0) - home) / 2  # models of the other two sites, on the same units
    assert abroad.mean() > 1.2 * home.mean()


def test_narrow_experience_is_one_fault_and_one_kind_of_routes_each_and_any_in_the_test() -> None:
    train, test = synthetic_engines(sites=9, units_per_site=2, test_units_per_site=9, experience="narrow")
    pairs = [
        {(u.attributes["fault"], u.attributes["routes"]) for u in at_site(train, site)} for site in sites_of(train)
    ]
    assert [len(pair) for pair in pairs] == [1] * 9
    assert len(set.union(*pairs)) == 9
    for site in sites_of(test):
        assert len({(u.attributes["fault"], u.attributes["routes"]) for u in at_site(test, site)}) == 9
    for unit in (*train, *test):
        assert engine_truth(unit.id, experience="narrow").fault_mode == unit.attributes["fault"]


def test_cells_of_one_make_are_used_in_two_ways_at_home_and_in_six_in_the_test() -> None:
    train, test = synthetic_battery_loads(cycles=20, samples=20)
    assert {u.attributes["chemistry"] for u in (*train, *test)} == {"NMC"}
    for site in sites_of(train):
        assert len({u.attributes["load"] for u in at_site(train, site)}) == 2
        assert len({u.attributes["load"] for u in at_site(test, site)}) == 6
    same = synthetic_battery_loads(sites=1, units_per_site=1, cycles=20, samples=20, test_units_per_site=1)
    assert all(same_bytes(few.units[0], many.units[0]) for few, many in zip(same, (train, test), strict=True))


def test_the_demo_fleet_takes_no_time() -> None:
    began = time.perf_counter()
    synthetic_engines()
    assert time.perf_counter() - began < 1.0


# ---- batteries


def test_capacity_is_the_integral_of_the_current(batteries: Fleet) -> None:
    current = batteries.schema.sensors.index("current_in_A")
    for unit in batteries:
        assert unit.target is not None
        delivered = [
            np.trapezoid(-unit.sensors[rows, current], unit.time[rows]) / 3600.0
            for rows in map(unit.cycle, range(len(unit.target)))
        ]
        np.testing.assert_allclose(unit.target, delivered, rtol=1e-9)
        truth = battery_truth(unit.id)
        np.testing.assert_allclose(unit.target, truth.capacity, rtol=2e-3)
        assert (truth.capacity < truth.charge).all()
        assert (truth.capacity > 0.85 * truth.charge).all()


def test_a_discharge_falls_from_full_to_the_cut_off(batteries: Fleet) -> None:
    for unit in batteries:
        cutoff = float(unit.attributes["cutoff_in_V"])
        assert unit.target is not None
        for k in range(len(unit.target)):
            voltage = unit.sensors[unit.cycle(k), 0]
            assert voltage[0] - cutoff > 1.0
            assert cutoff - 0.01 < voltage[-1] <= cutoff
            assert np.diff(voltage).max() < 0.01  # nothing but noise goes up
        np.testing.assert_array_equal(samples_before_cutoff(unit), np.diff(unit.cycles) - 1)


def test_chemistries_have_their_shape(batteries: Fleet) -> None:
    def spread(unit: Unit) -> float:
        rows = unit.cycle(0)
        middle = np.interp([0.25, 0.75], unit.time[rows] / unit.time[rows][-1], unit.sensors[rows, 0])
        return float(middle[0] - middle[1])

    chemistry = {str(u.attributes["chemistry"]): spread(u) for u in batteries}
    assert set(chemistry) == {"NMC", "LFP", "NCA"}
    assert chemistry["LFP"] < 0.1
    assert min(chemistry["NMC"], chemistry["NCA"]) > 0.25


def test_cells_warm_above_ambient_and_old_cells_more(batteries: Fleet) -> None:
    for unit in batteries:
        ambient = float(unit.attributes["ambient_temperature_in_C"])
        temperature = unit.sensors[:, 1]
        assert (temperature > ambient).all()
        assert temperature.max() < ambient + 30
        new, old = temperature[unit.cycle(0)], temperature[unit.cycle(159)]
        assert new[-1] > new[0] + 3
        assert old.max() > new.max() + 1


def test_cells_fade_to_their_end_of_life_and_rests_give_some_back(batteries: Fleet) -> None:
    reached, knees = [], []
    for unit in batteries:
        truth, capacity = battery_truth(unit.id), unit.target
        assert capacity is not None
        life = truth.ageing
        assert life.health[0] == 1.0
        assert (np.diff(life.health) < 0).all()
        assert life.film + life.material + life.knee == pytest.approx(1 - life.health[-1], abs=0.01)
        rated = float(unit.attributes["rated_capacity_in_Ah"])
        assert 0.93 * rated < capacity[0] < 1.08 * rated
        assert 0.5 * rated < capacity[-1] < 0.8 * rated
        assert len(life.rests) >= 3
        jumps = capacity[life.rests - 1] - capacity[life.rests - 2]
        assert (jumps > 0.005 * rated).all()
        others = np.setdiff1d(np.arange(1, len(capacity)), life.rests - 1)
        assert np.median(np.diff(capacity)[others - 1]) < 0
        assert 1.4 < life.resistance[-1] / life.resistance[0] < 2.5
        assert unit.failed == (capacity[-1] < 0.7 * rated)
        reached.append(end_of_life(unit).lifespan < len(capacity))
        knees.append(life.knee > 0)
    assert np.mean(reached) > 0.6
    assert 0 < np.mean(knees) < 1


def test_the_sampling_interval_differs_between_cycles() -> None:
    unit = synthetic_batteries(sites=1, units_per_site=1).units[0]
    assert unit.cycles is not None
    counts = np.diff(unit.cycles)
    assert counts.min() >= 120
    assert counts.max() <= 400
    steps = [np.diff(unit.time[unit.cycle(k)])[:-1] for k in range(len(counts))]
    assert max(s.mean() for s in steps) > 1.5 * min(s.mean() for s in steps)
    assert all(0.02 < s.std() / s.mean() < 0.2 for s in steps)


def test_battery_sites_differ_in_chemistry_rate_and_climate(batteries: Fleet) -> None:
    facts = {
        u.attributes["site"]: (
            u.attributes["chemistry"],
            float(u.attributes["current_in_A"]) / float(u.attributes["rated_capacity_in_Ah"]),
            u.attributes["ambient_temperature_in_C"],
        )
        for u in batteries
    }
    assert list(facts) == ["plant-a", "plant-b", "plant-c"]
    assert all(len({fact[i] for fact in facts.values()}) == 3 for i in range(3))


# ---- both


Maker = Callable[..., Sequence[Fleet]]


def cells(**arguments: object) -> list[Fleet]:
    return [synthetic_batteries(cycles=24, samples=20, **arguments)]  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [synthetic_engines, cells])
def test_a_unit_depends_on_seed_site_and_number_only(make: Maker) -> None:
    small, again = make(sites=2, units_per_site=2, seed=5), make(sites=2, units_per_site=2, seed=5)
    large, other = make(sites=4, units_per_site=[3, 4, 1, 2], seed=5), make(sites=2, units_per_site=2, seed=6)
    for few, same, more, different in zip(small, again, large, other, strict=True):
        for unit in few:
            assert same_bytes(unit, same[unit.id])
            assert same_bytes(unit, more[unit.id])
            assert not same_bytes(unit, different[unit.id])
        assert len({unit.sensors[:5].tobytes() for unit in more}) == len(more)
        assert [u.attributes["site"] for u in more][-1] == "plant-d"


@pytest.mark.parametrize("make", [synthetic_engines, cells])
def test_many_sites_are_possible(make: Maker) -> None:
    for fleet in make(sites=30, units_per_site=1):
        assert len({u.attributes["site"] for u in fleet}) == 30


@pytest.mark.parametrize("make", [synthetic_engines, synthetic_batteries])
@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ({"sites": 0}, ("sites = 0",)),
        ({"sites": 2.5}, ("sites = 2.5",)),
        ({"seed": -1}, ("seed = -1",)),
        ({"units_per_site": 0}, ("units_per_site = 0",)),
        ({"units_per_site": [3, 4]}, ("2", "3")),
        ({"units_per_site": [3, 4, -1]}, ("units_per_site[2] = -1",)),
    ],
)
def test_a_bad_argument_is_named(make: Maker, arguments: dict[str, object], values: tuple[str, ...]) -> None:
    with refuses(ConfigError, *values) as caught:
        make(**arguments)
    assert caught.value.hint


@pytest.mark.parametrize("conditions", [0, 7])
def test_there_are_one_to_six_conditions(conditions: int) -> None:
    with refuses(ConfigError, "1", "6"):
        synthetic_engines(conditions=conditions)


def test_a_campaign_has_some_cycles() -> None:
    with refuses(ConfigError, "cycles = 3"):
        synthetic_batteries(cycles=3)
    with refuses(ConfigError, "samples = 1"):
        synthetic_batteries(samples=1)


def test_the_generator_needs_no_torch() -> None:
    code = "import sys, fedprognos.fleet.synthetic; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- a linear baseline, written out here so that these tests stand on the fleet alone

Scaler = dict[float, tuple[np.ndarray, np.ndarray]]


def scaler(units: Sequence[Unit]) -> Scaler:
    sensors = np.concatenate([u.sensors for u in units])
    altitude = np.concatenate([np.round(u.settings[:, 0]) for u in units])
    return {a: (sensors[altitude == a].mean(axis=0), sensors[altitude == a].std(axis=0)) for a in ALTITUDES}


def standardised(unit: Unit, scale: Scaler) -> np.ndarray:
    altitude = np.round(unit.settings[:, 0])
    mean, std = (np.stack([scale[a][i] for a in altitude]) for i in (0, 1))
    return (unit.sensors - mean) / std


def windows(units: Sequence[Unit], scale: Scaler, length: int) -> tuple[np.ndarray, np.ndarray]:
    views = [np.lib.stride_tricks.sliding_window_view(standardised(u, scale), length, axis=0) for u in units]
    rul = [np.minimum(u.time[-1] - u.time, CAP)[length - 1 :] for u in units]
    return np.concatenate([v.reshape(len(v), -1) for v in views]), np.concatenate(rul)


def ridge_rmse(fit: Sequence[Unit], test: Sequence[Unit], length: int, strength: float = 100.0) -> float:
    scale = scaler(fit)
    x, y = windows(fit, scale, length)
    centre = x.mean(axis=0)
    gram = (x - centre).T @ (x - centre) + strength * length * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, (x - centre).T @ (y - y.mean()))
    x_test, y_test = windows(test, scale, length)
    predicted = np.clip((x_test - centre) @ weights + y.mean(), 0.0, CAP)
    return float(np.sqrt(np.mean((predicted - y_test) ** 2)))
