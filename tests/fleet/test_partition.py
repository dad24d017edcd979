from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engines import engine, engines
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import ConfigError, DataError
from fedprognos.fleet.partition import partition, partitions
from fedprognos.fleet.readers.cmapss import read_cmapss
from fedprognos.fleet.unit import Fleet, Schema
from refusals import refuses

LIVES = st.lists(st.integers(2, 40), min_size=3, max_size=30)


@pytest.mark.needs_data("cmapss")
def test_published_clients_of_fd004_come_out(cmapss_folder: Path) -> None:
    train, _ = read_cmapss(cmapss_folder, "FD004")
    by_life = partition(train, "lifespan", edges=[200, 350])
    assert {name: len(part) for name, part in by_life.items()} == {
        "life-under-200": 82,
        "life-200-350": 142,
        "life-over-350": 25,
    }
    assert [len(part) for part in partition(train, "random", clients=3, seed=1).values()] == [83, 83, 83]


@settings(deadline=None)
@given(lives=LIVES, by=st.sampled_from(sorted(partitions)), clients=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_every_unit_has_exactly_one_client_and_none_is_empty(
    lives: list[int], by: str, clients: int, seed: int
) -> None:
    fleet = engines(lives, ["ab"[k % 2] for k in range(len(lives))])
    fleet = fleet.select([replace(unit, id=f"{unit.attributes['site']}-{unit.id}") for unit in fleet])
    options: dict[str, object] = {
        "lifespan": {"edges": [sorted(lives)[len(lives) // 2]]},
        "random": {"clients": clients},
        "column": {"column": "site"},
        "condition": {"decimals": {"load": 0}},
        "dirichlet": {"clients": clients, "alpha": 0.1},
    }.get(by, {})  # type: ignore[assignment]
    if by == "lifespan" and min(lives) == sorted(lives)[len(lives) // 2]:
        with refuses(ConfigError, "client"):
            partition(fleet, by, **options, seed=seed)
        return
    parts = partition(fleet, by, **options, seed=seed)
    assert sorted(i for part in parts.values() for i in part.ids) == sorted(fleet.ids)
    assert all(len(part) for part in parts.values())
    assert all(part.name == name for name, part in parts.items())
    again = partition(fleet, by, **options, seed=seed)
    assert {n: p.ids for n, p in again.items()} == {n: p.ids for n, p in parts.items()}


@settings(deadline=None)
@given(LIVES, st.integers(1, 3), st.integers(0, 2**32))
def test_random_shares_are_equal(lives: list[int], clients: int, seed: int) -> None:
    sizes = [len(p) for p in partition(engines(lives), "random", clients=clients, seed=seed).values()]
    assert len(sizes) == clients
    assert max(sizes) - min(sizes) <= 1


def test_lifespan_edges_belong_to_the_middle() -> None:
    fleet = engines([199, 200, 300, 350, 351])
    parts = partition(fleet, "lifespan", edges=[200, 300, 350])
    assert {n: p.ids for n, p in parts.items()} == {
        "life-under-200": ("e0",),
        "life-200-300": ("e1",),
        "life-300-350": ("e2", "e3"),
        "life-over-350": ("e4",),
    }
    cut = fleet.select([fleet["e0"], fleet["e4"].select_rows(100)])
    assert partition(cut, "lifespan", edges=[300])["life-from-300"].ids == ("e4",)  # its known RUL counts


def test_columns_and_units_name_the_clients() -> None:
    fleet = engines([5, 6, 7], ["south", "north", "south"])
    assert {n: p.ids for n, p in partition(fleet, "column", column="site").items()} == {
        "north": ("e1",),
        "south": ("e0", "e2"),
    }
    assert list(partition(fleet, "unit")) == ["e0", "e1", "e2"]
    warm = fleet.select([engine("w", 5, ambient=24.0), engine("x", 5, ambient=4.0)])
    assert list(partition(warm, "column", column="ambient")) == ["ambient-24", "ambient-4"]


def test_units_belong_to_the_condition_they_run_in_most() -> None:
    low, high = np.array([[0.001, 0.25]]), np.array([[41.999, 0.84]])
    schema = Schema("rul", ("t", "minus_t"), ("altitude", "speed"))
    units = (
        replace(engine("a", 5), settings=np.concatenate([low, low, low, high, high])),
        replace(engine("b", 5), settings=np.concatenate([-low * [1, -1], high, high, high, low])),
        replace(engine("c", 3), settings=np.concatenate([low * [-1, 1], low, high])),
    )
    fleet = Fleet("plant", schema, units)
    parts = partition(fleet, "condition", decimals={"altitude": 0, "speed": 2})
    assert {n: p.ids for n, p in parts.items()} == {"condition-0_0.25": ("a", "c"), "condition-42_0.84": ("b",)}
    assert list(partition(fleet, "condition", decimals={"altitude": 0})) == ["condition-0", "condition-42"]


def test_dirichlet_skews_labels_or_sizes_and_less_so_with_a_large_alpha() -> None:
    fleet = engines(list(range(2, 92)))

    def spread(alpha: float, skew: str) -> float:
        parts = partition(fleet, "dirichlet", clients=3, alpha=alpha, seed=0, skew=skew).values()
        if skew == "size":
            return float(np.ptp([len(p) for p in parts]))
        return float(np.ptp([np.mean([u.lifespan for u in p]) for p in parts]))

    for skew in ("label", "size"):
        assert spread(0.1, skew) > 5 * spread(1000.0, skew)


@pytest.mark.parametrize(
    ("by", "options", "values"),
    [
        ("lifespam", {}, ("'lifespam'", "'lifespan'")),
        ("random", {"client": 3}, ("random", "client", "'clients'")),
        ("lifespan", {}, ("edges",)),
        ("lifespan", {"edges": [3, 2]}, ("edges",)),
        ("lifespan", {"edges": [1000]}, ("5", "7")),
        ("random", {"clients": 4}, ("4", "3")),
        ("random", {"clients": 0}, ("clients", "0")),
        ("dirichlet", {"clients": 2, "alpha": 0}, ("alpha", "0")),
        (
            "dirichlet",
            {"clients": 2, "alpha": 1, "skew": "lable"},
            ("skew", "'label'", "'size'", "'lable'"),
        ),
        ("condition", {}, ("decimals",)),
        ("unit", {"units": ["e0", "e9"]}, ("'e9'",)),
        ("condition", {"decimals": {"lod": 1}}, ("'lod'", "'load'")),
    ],
)
def test_wrong_options_are_refused(by: str, options: dict[str, object], values: tuple[str, ...]) -> None:
    with refuses(ConfigError, *values):
        partition(engines([5, 6, 7]), by, **options)


def test_facts_that_the_fleet_lacks_are_named() -> None:
    fleet = engines([5, 6])
    with refuses(DataError, "unit e0", "'plant'", "site"):
        partition(fleet, "column", column="plant")
    bare = Fleet("f", Schema("rul", ("t", "u")), tuple(replace(u, settings=np.empty((u.rows, 0))) for u in fleet))
    with refuses(DataError, "condition"):
        partition(bare, "condition", decimals={"load": 0})


@settings(deadline=None)
@given(lives=LIVES, data=st.data(), seed=st.integers(0, 2**32))
def test_machines_that_failed_are_dealt_evenly_among_those_that_still_run(
    lives: list[int], data: st.DataObject, seed: int
) -> None:
    fleet = engines(lives)
    still = data.draw(st.sets(st.sampled_from(fleet.ids), min_size=1, max_size=len(fleet) - 1))
    fleet = fleet.select([replace(u, rul_at_end=None, failed=False) if u.id in still else u for u in fleet])
    shares = partition(fleet, "random", clients=3, seed=seed).values()
    failed = [sum(unit.id not in still for unit in share) for share in shares]
    assert max(failed) - min(failed) <= 1
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
