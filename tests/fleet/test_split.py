from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engines import batteries, battery, engines
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import ConfigError, DataError
from fedprognos.fleet.discharge import end_of_life
from fedprognos.fleet.partition import partition
from fedprognos.fleet.readers.nasa_battery import read_nasa_batteries
from fedprognos.fleet.split import split_cycles, split_units
from refusals import refuses


@pytest.mark.needs_data("nasa-battery")
def test_published_split_of_the_trio_comes_out(battery_folder: Path) -> None:
    fleet = read_nasa_batteries(battery_folder, ["B0006", "B0007", "B0018"])
    train, test = split_cycles(fleet.select([end_of_life(u, 1.4) for u in fleet]), 0.7)
    assert [len(u.positions) for u in train] == [85, 118, 85]
    assert [len(u.positions) for u in test] == [36, 50, 37]
    assert test["B0006"].positions[0] == 86


def test_first_cycles_train_and_last_ones_test() -> None:
    fleet = batteries(battery("b", [2.0, 1.9, 1.8, 1.3, 1.5, 1.2]))
    train, test = split_cycles(fleet.select([end_of_life(fleet["b"], 1.4)]), 0.6)
    assert train["b"].target.tolist() == [2.0, 1.9, 1.8]
    assert test["b"].target.tolist() == [1.3, 1.5]
    assert (train["b"].failed, test["b"].failed) == (False, True)
    whole = split_cycles(fleet, 0.01)
    assert [len(part["b"].positions) for part in whole] == [1, 5]


def test_what_cannot_be_split_by_cycles_is_refused() -> None:
    with refuses(DataError, "unit b", "1"):
        split_cycles(batteries(battery("b", [2.0])))
    with refuses(DataError, "unit e0"):
        split_cycles(engines([5, 6]))
    with refuses(ConfigError, "fraction", "1.5"):
        split_cycles(batteries(battery("b", [2.0, 1.9])), 1.5)


@settings(deadline=None)
@given(units=st.integers(2, 20), fraction=st.floats(0.05, 0.95), seed=st.integers(0, 2**32))
def test_two_units_are_on_both_sides(units: int, fraction: float, seed: int) -> None:
    fleet = engines([5] * units)
    train, test = split_units(fleet, fraction, seed)
    assert sorted([*train.ids, *test.ids]) == sorted(fleet.ids)
    assert len(train) >= 1
    assert len(test) >= 1
    assert split_units(fleet, fraction, seed)[1].ids == test.ids


def test_one_unit_cannot_be_split() -> None:
    with refuses(DataError, "fleet", "test"):
        split_units(engines([5]))


def test_units_that_have_not_failed_train_and_lives_of_a_machine_stay_together() -> None:
    fleet = engines([5] * 12)
    running = [replace(u, rul_at_end=None, failed=False) if k % 2 else u for k, u in enumerate(fleet)]
    train, test = split_units(fleet.select(running), 0.4, seed=3)
    assert len(test) == 5
    assert all(u.labels() is not None for u in test)
    assert sum(u.labels() is not None for u in train) == 1
    lives = [replace(u, attributes={"machine": f"m{k // 3}"}) for k, u in enumerate(fleet)]
    train, test = split_units(fleet.select(lives), 0.25)
    assert (len(train), len(test)) == (9, 3)
    assert len({u.attributes["machine"] for u in test}) == 1
    dealt = partition(fleet.select(lives), "random", clients=2, seed=1)
    assert [len({u.attributes["machine"] for u in part}) for part in dealt.values()] == [2, 2]
    assert {name: len(part) for name, part in partition(fleet.select(lives), "unit").items()} == dict.fromkeys(
        ["m0", "m1", "m2", "m3"], 3
    )


def test_the_share_and_the_seed_count() -> None:
    fleet = engines([5] * 40)
    train, test = split_units(fleet, 0.25, seed=1)
    assert (len(train), len(test)) == (30, 10)
    assert split_units(fleet, 0.25, seed=2)[1].ids != test.ids
