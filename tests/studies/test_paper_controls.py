"""The paper's batteries with controls: what stands in the place of matching, and what the pages say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedprognos.features import WindowSet
from fedprognos.federation.strategies.fedma import FedMAOptions, Matcher, algorithm_1
from fedprognos.networks import Network, NetworkSpec
from studies import paper_controls, paper_factors
from studies.paper_controls import (
    BATTERY_TABLE,
    COURSES,
    ENGINE_TABLE,
    FEDAVG,
    FEDMA,
    FIRST,
    LOCAL,
    Cell,
    Size,
    cells,
    shuffled,
    unpermuted,
)
from studies.paper_factors import BATTERIES, FACTORS, dealt

SMALL = Size(8, 3, 2, seeds=1, local=2, fedavg=(3, 2), equal=2)
TABLE = replace(BATTERY_TABLE, sizes=(SMALL,))
SPEC = NetworkSpec(inputs=2, widths=(6,))
OPTIONS = FedMAOptions(width_limit=1.0, cost="pfnm", signature="ih", estimate=False)


def merged(matcher: Matcher | None) -> Network:
    """What becomes of a network and of the same network with its neurons in another order."""
    first = Network.seeded(SPEC, 0)
    order = {str(first.anatomy.layers[0].group): np.array([3, 1, 5, 0, 2, 4])}
    networks = {"a": first, "b": first.slice(order)}
    return algorithm_1(networks, {"a": 1.0, "b": 1.0}, OPTIONS, matcher=matcher)[0]


def body(network: Network) -> np.ndarray:
    layer = network.anatomy.layers[0]
    return np.sort(np.abs(layer.signature(network.weights)).sum(axis=1))


def test_matching_recovers_a_permuted_copy_and_the_controls_do_not() -> None:
    truth = body(Network.seeded(SPEC, 0))
    assert np.allclose(body(merged(None)), truth, atol=1e-5)
    for control in (unpermuted, shuffled):
        assert not np.allclose(body(merged(control)), truth, atol=1e-2)


def test_no_permutation_is_the_mean_of_coordinates() -> None:
    first = Network.seeded(SPEC, 0)
    networks = {"a": first, "b": Network.seeded(SPEC, 1)}
    result = algorithm_1(networks, {"a": 1.0, "b": 1.0}, OPTIONS, matcher=unpermuted)[0]
    for name, tensor in result.weights.items():
        assert np.allclose(tensor, (networks["a"].weights[name] + networks["b"].weights[name]) / 2, atol=1e-6)


@pytest.mark.parametrize("table", [BATTERY_TABLE, ENGINE_TABLE])
def test_every_cell_has_a_name_of_its_own_and_what_matching_is_worth_comes_first(table: paper_controls.Table) -> None:
    for size in table.sizes:
        keys = [cell.key for cell in cells(table, size)]
        assert len(keys) == len(set(keys))
    trainings = list(cells(table, table.sizes[0]))
    assert {cell.course for cell in trainings} == set(COURSES)
    first = [cell for cell in trainings if cell.scenario == trainings[0].scenario][: FIRST * table.sizes[0].seeds]
    assert {cell.course for cell in first} == set(COURSES[:FIRST])


def test_what_is_equal_has_as_many_local_epochs_as_fedma() -> None:
    for table, trainings in ((BATTERY_TABLE, 1), (ENGINE_TABLE, 1 + len(("input", "recurrent")))):
        for size in table.sizes:
            each = [size.epochs, *[size.again or size.epochs] * (trainings - 1)]
            assert size.equal == sum(each)


def test_the_page_takes_the_last_round_the_best_and_the_one_chosen_on_cycles_kept_out() -> None:
    course = {b: [0.5, 0.1, 0.2] for b in BATTERIES}
    results = {Cell("all", FEDMA, SMALL, 0).key: course, Cell("all", FEDAVG, SMALL, 0).key: course}
    results[Cell("all", FEDMA, SMALL, 0, kept_out=True).key] = {**course, "kept out": [0.1, 0.3, 0.4]}
    text = paper_controls.page(TABLE, results)
    line = next(line for line in text.splitlines() if line.startswith("| all three | FedMA |"))
    assert line.count("0.5000") == line.count("0.2000") == line.count("0.1000") == len(BATTERIES)
    chosen = next(line for line in text.splitlines() if line.startswith("| FedMA |"))
    assert chosen.count("0.5000") == len(BATTERIES)
    missing = len(list(cells(TABLE, SMALL))) - len(results)
    assert text.count("\n- all: ") + text.count("\n- B0006+B0018: ") == missing


def test_owners_who_train_alone_have_a_line_each() -> None:
    entry = {"a, raw": [3.0], "a, capped": [2.0], "b, raw": [5.0], "b, capped": [4.0]}
    size, together = ENGINE_TABLE.sizes[0], {"raw": [1.0], "capped": [1.0]}
    results = {Cell("homogeneous", LOCAL, size, 0).key: entry, Cell("homogeneous", FEDMA, size, 0).key: together}
    text = paper_controls.page(ENGINE_TABLE, results)
    lines = [line for line in text.splitlines() if line.startswith("| homogeneous | Local, ")]
    assert [line.split(" | ")[1] for line in lines[:2]] == ["Local, a", "Local, b"]
    assert [("3.00" in line, "4.00" in line) for line in lines[:2]] == [(True, False), (False, True)]


def test_the_page_of_factors_names_seeds_that_are_missing() -> None:
    entry = {"train": 0.01, "epoch": 1, **{m: dict.fromkeys(BATTERIES, 0.02) for m in ("central", "local")}}
    text = paper_factors.page({paper_factors.Cell(FACTORS[0], seed).key: entry for seed in range(paper_factors.SEEDS)})
    assert text.count("3 seeds missing") == len(FACTORS) - 1
    assert text.count("0.0200") == 2 * len(BATTERIES)


@pytest.mark.parametrize("count", [1, 5])
def test_windows_are_dealt_out_without_loss(count: int) -> None:
    at = np.arange(12)
    every = WindowSet(np.zeros((12, 1), np.float32), at, 1, at * 1.0, at * 0, at * 1.0, at.astype(np.uint8), ("a",))
    kept, others = dealt(every, count, np.random.default_rng(0))
    assert len(others) == count
    assert sorted([*kept.starts, *others.starts]) == sorted(every.starts)
