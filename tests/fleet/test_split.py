from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engines import batteries, battery, engines
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import ConfigError, DataError
from fedprognos.fleet.nasa_battery import read_nasa_batteries
from fedprognos.fleet.split import cut_units, split_cycles, split_units


@pytest.mark.needs_data("nasa-battery")
def test_published_split_of_the_trio_comes_out(battery_folder: Path) -> None:
    fleet = read_nasa_batteries(battery_folder, ["B0006", "B0007", "B0018"])
    train, test = split_cycles(fleet, 0.7, end_of_life=1.4)
    assert [len(u.positions) for u in train] == [85, 118, 85]
    assert [len(u.positions) for u in test] == [36, 50, 37]
    assert test["B0006"].positions[0] == 86


def test_first_cycles_train_and_last_ones_test() -> None:
    fleet = batteries(battery("b", [2.0, 1.9, 1.8, 1.3, 1.5, 1.2]))
    train, test = split_cycles(fleet, 0.6, end_of_life=1.4)
    assert train["b"].target.tolist() == [2.0, 1.9, 1.8]
    assert test["b"].target.tolist() == [1.3, 1.5]
    assert (train["b"].failed, test["b"].failed) == (False, True)
    whole = split_cycles(fleet, 0.01)
    assert [len(part["b"].positions) for part in whole] == [1, 5]


def test_what_cannot_be_split_by_cycles_is_refused() -> None:
    with pytest.raises(DataError, match="1 cycle cannot be split"):
        split_cycles(batteries(battery("b", [2.0])))
    with pytest.raises(DataError, match="not a cyclic unit"):
        split_cycles(engines([5, 6]))
    with pytest.raises(ConfigError, match=r"fraction is 1\.5"):
        split_cycles(batteries(battery("b", [2.0, 1.9])), 1.5)


@settings(deadline=None)
@given(
    sites=st.lists(st.sampled_from("abc"), min_size=2, max_size=20),
    fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 2**32),
)
def test_every_site_with_two_units_is_on_both_sides(sites: list[str], fraction: float, seed: int) -> None:
    fleet = engines([5] * len(sites), sites)
    if max(sites.count(s) for s in sites) == 1:
        with pytest.raises(DataError, match="leave none for the test"):
            split_units(fleet, fraction, seed)
        return
    train, test = split_units(fleet, fraction, seed)
    assert sorted([*train.ids, *test.ids]) == sorted(fleet.ids)
    assert split_units(fleet, fraction, seed)[1].ids == test.ids
    for site in set(sites):
        sides = [sum(u.attributes["site"] == site for u in part) for part in (train, test)]
        assert sides[0] >= 1
        assert sides[1] >= (sites.count(site) > 1)


def test_the_share_and_the_seed_count() -> None:
    fleet = engines([5] * 40)
    train, test = split_units(fleet, 0.25, seed=1)
    assert (len(train), len(test)) == (30, 10)
    assert split_units(fleet, 0.25, seed=2)[1].ids != test.ids


def test_a_site_divides_the_same_whoever_else_is_there() -> None:
    alone = engines([5] * 8, ["a"] * 8)
    among = engines([5] * 16, ["a"] * 8 + ["b"] * 8)
    own = [i for i in split_units(among, 0.25, 3)[1].ids if among[i].attributes["site"] == "a"]
    assert list(split_units(alone, 0.25, 3)[1].ids) == own


@settings(deadline=None)
@given(st.lists(st.integers(2, 60), min_size=1, max_size=10), st.integers(0, 2**32))
def test_cut_units_keep_their_life(lives: list[int], seed: int) -> None:
    fleet = engines(lives)
    cut = cut_units(fleet, seed)
    for unit, whole in zip(cut, fleet, strict=True):
        assert 2 <= unit.rows <= whole.rows
        assert unit.time[-1] + unit.rul_at_end == whole.rows
        assert unit.failed == (unit.rows == whole.rows)
    assert [u.rows for u in cut_units(fleet, seed)] == [u.rows for u in cut]


def test_units_without_labels_cannot_be_cut() -> None:
    with pytest.raises(DataError, match="RUL unknown"):
        cut_units(batteries(battery("b", [2.0, 1.9])).select([replace(battery("b", [2.0, 1.9]), target=None)]))
    with pytest.raises(ConfigError, match="shares"):
        cut_units(engines([5]), shares=(0.9, 0.1))
