"""The poisoning study: its page is made from its numbers, and attacks are what their names say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.exchanges.fit import FitReply, FitRequest
from fedprognos.networks import HeadStatistics, Network, NetworkSpec
from fedprognos.networks.model_options import TrainOptions
from small_fleets import recipe_of, series_fleet
from studies.attacks import (
    ATTACKS,
    HIDDEN,
    LATE,
    NEWEST,
    WORN,
    EarlyClient,
    HiddenWearClient,
    NewClient,
    ShuffledClient,
    WornNoiseClient,
    emptied,
    mimic,
)
from studies.poisoning import JSON, PAGE, PARTS, owners_cost, tables

WRONGLY_LEFT_OUT = {"hh", "overflow", "random", "statistics"}
"""Attacks in which an honest client was left out as well, as the page says."""
FOUND = json.loads(Path(JSON).read_text("utf-8"))


@pytest.mark.parametrize("part", [part for part in PARTS if JSON.with_stem(part).is_file()])
def test_the_page_holds_the_tables_of_the_numbers(part: str) -> None:
    measured = json.loads(JSON.with_stem(part).read_text("utf-8"))
    assert tables(measured, PARTS[part][0]) in PAGE.read_text("utf-8")


def test_one_hostile_client_of_five_costs_an_owner_five_percent_at_most() -> None:
    """In both modes, unless an impossible total ends the run."""
    for mode, attack, method in sorted({tuple(name.split("/")[:3]) for name in FOUND}):
        if not any(FOUND[f"{mode}/{attack}/{method}/{seed}"]["ended"] for seed in range(3)):
            assert owners_cost(FOUND, mode, attack, method) <= 0.05, (mode, attack, method)


def test_owners_lose_nothing_to_their_defences() -> None:
    """Without an attacker they end with less error than the shared model has."""
    for mode, method in {(name.split("/")[0], name.split("/")[2]) for name in FOUND}:
        runs = [FOUND[f"{mode}/none/{method}/{seed}"] for seed in range(3)]
        assert np.mean([run["owners"] for run in runs]) <= np.mean([run["rmse"]["exact"] for run in runs])


def test_checked_mode_leaves_out_few_honest_clients() -> None:
    wrong = {name for name, run in FOUND.items() if not set(run["left_out"]) <= {run["hostile"]}}
    assert {name.split("/")[1] for name in wrong} <= WRONGLY_LEFT_OUT
    assert len(wrong) <= 0.03 * len(FOUND)


def test_the_defences_of_checked_mode_cost_nothing_without_an_attacker() -> None:
    for method in ("fedavg", "concat"):
        masked, checked = (
            np.mean([FOUND[f"{mode}/none/{method}/{seed}"]["owners"] for seed in range(3)])
            for mode in ("masked", "checked")
        )
        assert checked <= 1.01 * masked, method


def test_attacks_on_weights_keep_shapes_and_go_where_they_should() -> None:
    recipe = recipe_of(series_fleet([60, 70], seed=1), window=8, cap=40, stride=2, conditions={"altitude": 0})
    start = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(3,), cell="lstm"), 0)
    request = FitRequest(recipe, TrainOptions().training(1), 0.2, 0, start=start)
    honest = {k: FitReply({n: w + k for n, w in start.weights.items()}, 10, (), 0, False) for k in (1, 2, 3)}
    others = {f"c{k}": reply for k, reply in honest.items()}
    for attack in (*ATTACKS, *NEWEST):
        sent = attack.change(request, honest[2], others)
        assert isinstance(sent, FitReply)
        assert {n: w.shape for n, w in sent.weights.items()} == {n: w.shape for n, w in start.weights.items()}
    by_name = {attack.name: attack.change(request, honest[2], others) for attack in (*ATTACKS, *NEWEST)}
    bias = "head.bias"
    np.testing.assert_allclose(by_name["sign"].weights[bias], start.weights[bias] - 2, rtol=1e-5)
    np.testing.assert_allclose(by_name["inner"].weights[bias], start.weights[bias] - 1, rtol=1e-5)
    np.testing.assert_allclose(
        by_name["little"].weights[bias], start.weights[bias] + 2 - 1.5 * np.std([1, 2, 3]), rtol=1e-4
    )
    assert by_name["random"].windows == 10**9


def test_further_attacks_are_what_their_names_say(tmp_path: Path) -> None:
    fleet = series_fleet([60, 70], seed=1)
    recipe = recipe_of(fleet, window=8, cap=40, stride=2, conditions={"altitude": 0})
    honest, new, worn = (kind("a", fleet, ClientFolder(tmp_path)) for kind in (Client, NewClient, WornNoiseClient))
    labels = recipe.capped(honest.windows(recipe).labels)
    assert set(new.windows(recipe).labels) == {40.0}
    drawn = worn.windows(recipe).labels
    assert (drawn != labels).any() and set(drawn) <= set(labels)
    zeros = emptied(HeadStatistics(10, 8.0, np.diag([4.0, 10.0]), np.array([3.0, 2.0])))
    assert (zeros.n, zeros.yy, zeros.hh.tolist(), zeros.hy.any()) == (10, 0.0, [[0.0, 0.0], [0.0, 10.0]], False)
    assert mimic(None, honest, {"b": new, "c": honest}) is honest  # type: ignore[arg-type,dict-item]


def test_labels_are_changed_as_the_newest_attacks_say(tmp_path: Path) -> None:
    fleet = series_fleet([90, 120], seed=1)
    recipe = recipe_of(fleet, window=8, cap=70, stride=2, conditions={"altitude": 0})
    kinds = (Client, EarlyClient, HiddenWearClient, ShuffledClient)
    labels, early, hidden, shuffled = (
        kind("a", fleet, ClientFolder(tmp_path)).windows(recipe).labels for kind in kinds
    )
    capped = recipe.capped(labels)
    np.testing.assert_array_equal(early, np.maximum(capped - LATE, 0.0))
    np.testing.assert_array_equal(hidden, np.where(capped < WORN, capped + HIDDEN, capped))
    assert (shuffled != labels).any() and sorted(shuffled) == sorted(labels)
