"""A client keeps the head that is best for its own machines, whatever it is offered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedprognos.errors import MessageError
from fedprognos.evaluation.baselines import ridge
from fedprognos.features import RecipeOptions, build_windows, hold_out
from fedprognos.features.recipe_survey import recipe_for
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.exchanges.choice import (
    HARMFUL,
    LEAST_ADJUSTED,
    MOST_DEVIATIONS,
    STEPS,
    ChoiceReply,
    ChoiceRequest,
    blend_share,
    choose,
    choose_ahead,
    columns_of_heads,
    correction_share,
    make_head,
    reservoir_head,
)
from fedprognos.federation.exchanges.personal import ONLY_HEAD
from fedprognos.fleet import Fleet, Schema, Unit
from fedprognos.networks import (
    OWN_RESERVOIR,
    HeadStatistics,
    Network,
    NetworkSpec,
    add_all,
    head_statistics,
    mean_squared_error,
    predict,
)
from fedprognos.networks.head import exact_head
from small_fleets import recipe_of, series_fleet

COLUMNS = {"personal": np.arange(5), "alone": np.arange(2), "linear": np.array([4]), "reservoir": np.arange(0)}


def sums(slopes: list[float], rows: int, seed: int) -> HeadStatistics:
    """Sums of five features whose label follows these slopes."""
    rng = np.random.default_rng(seed)
    h = np.concatenate([rng.normal(size=(rows, 5)), np.ones((rows, 1))], axis=1)
    y = h @ np.array([*slopes, 0.5]) + 0.1 * rng.normal(size=rows)
    return HeadStatistics(rows, float(y @ y), h.T @ h, h.T @ y)


def groups(slopes: list[float], rows: int, count: int = 4) -> list[HeadStatistics]:
    """What was kept out, in groups of units."""
    return [sums(slopes, rows, 10 + k) for k in range(count)]


def test_a_shared_head_that_suits_is_kept() -> None:
    slopes = [1.0, -1.0, 0.5, 0.5, 0.0]
    (kind, _), _ = choose(groups(slopes, 20), np.array([*slopes, 0.5]), COLUMNS)
    assert kind == "together"


def test_a_harmful_head_costs_nothing() -> None:
    slopes, poisoned = [1.0, -1.0, 0.0, 0.0, 0.0], 100 * np.ones(6)
    units, others = groups(slopes, 30), groups(slopes, 15)[:1]
    (kind, strength), _ = choose(units, poisoned, COLUMNS)
    assert kind in ("alone", "personal")
    assert mean_squared_error(others[0], make_head(kind, strength, add_all(units), poisoned, COLUMNS)) < 0.05


def test_one_unit_that_disagrees_with_all_others_does_not_decide() -> None:
    shared, own = [1.0, -1.0, 0.5, 0.5, 0.0], [9.0, -9.0, 0.0, 0.0, 0.0]
    units = [*groups(shared, 10, 7), sums(own, 10, 3)]
    (kind, _), _ = choose(units, np.array([*shared, 0.5]), COLUMNS)
    assert kind == "together"


def test_inputs_alone_win_where_they_say_everything() -> None:
    slopes = [0.0, 0.0, 0.0, 0.0, 2.0]
    units = groups(slopes, 10)
    (kind, strength), _ = choose(units, np.zeros(6), COLUMNS)
    assert kind == "linear"
    head = make_head(kind, strength, add_all(units), np.zeros(6), COLUMNS)
    assert np.count_nonzero(head[:-1]) == 1


def test_a_single_unit_keeps_the_linear_head_unless_it_fails() -> None:
    useful, useless = [0.2, 0.2, 0.0, 0.0, 1.0], [2.0, 2.0, 0.0, 0.0, 0.0]
    for slopes, kind in ((useful, "linear"), (useless, "alone")):
        fit, kept_out = sums(slopes, 60, 0), add_all(groups(slopes, 10))
        assert choose_ahead(fit, kept_out, np.zeros(6), COLUMNS)[0] == kind


def test_a_single_unit_keeps_the_linear_head_where_the_shared_one_did_better_so_far() -> None:
    """On NASA's cells what was better on the last training cycles was worse on those after them."""
    shared = [0.2, 0.2, 0.0, 0.0, 1.0]
    fit, kept_out = sums(shared, 60, 0), add_all(groups(shared, 10))
    assert choose_ahead(fit, kept_out, np.array([*shared, 0.5]), COLUMNS)[0] == "linear"


def test_the_linear_head_is_the_ridge_baseline() -> None:
    """Same strengths, same penalty, same points kept out: it cannot lose against it."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 5, 1)).astype(np.float32).cumsum(axis=1)
    cell = Unit(
        "b", np.arange(200.0), rows.reshape(-1, 1), np.empty((200, 0)), target=1 + rows[:, -1, 0].astype(float) / 9,
        cycles=np.arange(0, 201, 5), cycle_numbers=np.arange(1, 41),
    )  # fmt: skip
    schema = Schema("soh", ("volt",), target="capacity")
    fleet = Fleet("cells", schema, (cell,))
    recipe = recipe_for(RecipeOptions(cycle="index"), {"a": fleet})
    windows = build_windows(recipe, fleet)
    train, held = hold_out(windows, 0.25, 0, "soh")
    assert held is not None
    network = Network.seeded(NetworkSpec(inputs=1, widths=(3,), direct=windows.length), 0, 0.0)
    columns = {"personal": np.arange(8), "alone": np.arange(8), "linear": np.arange(3, 8)}
    fit, kept_out = (head_statistics(network, part, recipe) for part in (train, held))
    option = choose_ahead(fit, kept_out, np.zeros(9), columns)
    assert option[0] == "linear"
    head = make_head(*option, fit.add(kept_out), np.zeros(9), columns)
    assert predict(network.with_head(head), windows, recipe) == pytest.approx(ridge(windows, recipe)(windows), abs=1e-6)


@pytest.mark.parametrize("cells", [3, 1])
def test_cells_choose_by_their_last_cycles(tmp_path: Path, cells: int) -> None:
    """Health is linear in an input, and the shared head says the mean: its owner takes the linear head.

    The last cycles of a single cell are too few for sums of them to leave; then no shared head was fitted without them.
    """
    units = []
    for k in range(cells):
        health = 1 - (0.005 + 0.001 * k) * np.arange(40)
        rows = np.column_stack([3 * health, np.sin(np.arange(40))])
        target, cycles, numbers = health.copy(), np.arange(41), np.arange(1, 41)
        units.append(
            Unit(f"c{k}", np.arange(40.0), rows, np.empty((40, 0)), target=target, cycles=cycles, cycle_numbers=numbers)
        )
    fleet = Fleet("cells", Schema("soh", ("volt", "noise"), target="soh"), tuple(units))
    recipe = recipe_for(RecipeOptions(cycle="index"), {"a": fleet})
    network = Network.seeded(NetworkSpec(inputs=2, widths=(3,), direct=1), 0, 0.0)
    network = network.with_head(np.zeros_like(network.head))
    client = Client("a", fleet, ClientFolder(tmp_path))
    fitted = network.head if cells > 1 else np.empty(0)
    reply = client.answer(ChoiceRequest(recipe, network, 0, 0.25, fitted, head=ONLY_HEAD))
    assert isinstance(reply, ChoiceReply)
    assert (reply.kind, reply.windows) == ("linear", 40 * cells)


def test_neurons_of_others_are_left_alone_where_they_are_many() -> None:
    recipe_free = Network.seeded(NetworkSpec(inputs=2, widths=(MOST_DEVIATIONS + 88,), direct=1), 0, 0.0)
    request = ChoiceRequest(None, recipe_free, 0, 0.2, np.empty(0), neurons=(64, 128))  # type: ignore[arg-type]
    personal = columns_of_heads(request, recipe_free)["personal"]
    assert personal.tolist() == [*range(64, 128), 600, 601]


def test_a_poisoned_body_costs_nothing_where_a_fixed_random_one_suits(tmp_path: Path) -> None:
    """Every head of the shared model stands on dead neurons; the owner's head brings a reservoir of its own."""
    fleet = series_fleet([60 + 4 * k for k in range(10)], conditions=1)
    recipe = recipe_for(RecipeOptions(window=8), {"a": fleet})
    dead = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(4,)), 0, 0.0)
    dead = Network(dead.spec, {name: 0 * tensor for name, tensor in dead.weights.items()})
    client = Client("a", fleet, ClientFolder(tmp_path))
    reply = client.answer(ChoiceRequest(recipe, dead, 0, 0.2, dead.head, head=ONLY_HEAD))
    assert isinstance(reply, ChoiceReply)
    assert reply.kind == "reservoir"
    owner = dead.with_head(client.folder.load_head(ONLY_HEAD))
    windows = build_windows(recipe, fleet)
    truth = recipe.capped(windows.labels)
    error, before = (np.sqrt(np.mean((predict(n, windows, recipe) - truth) ** 2)) for n in (owner, dead))
    assert owner.spec.reservoir == OWN_RESERVOIR
    assert error < before / 2


def late_units(shift: float, slopes: list[float], count: int = 8) -> tuple[list[HeadStatistics], np.ndarray]:
    """Units of an owner, and a shared head that says too much, the less life is left: labels of others were late."""
    honest = np.array([*slopes, 0.5])
    shared = np.append((1 - shift) * honest[:-1], honest[-1] + shift)
    return groups(slopes, 30, count), shared


def test_a_shared_head_that_is_shifted_is_adjusted() -> None:
    slopes = [1.0, -1.0, 0.5, 0.5, 0.0]
    units, shared = late_units(0.08, slopes)
    (kind, share), _ = choose(units, shared, {**COLUMNS, "personal": np.arange(0), "linear": np.arange(0)})
    assert kind == "adjusted"
    assert share >= LEAST_ADJUSTED
    head = make_head(kind, share, add_all(units), shared, COLUMNS)
    other = sums(slopes, 200, 99)
    assert mean_squared_error(other, head) < 0.5 * mean_squared_error(other, shared)


def test_a_shared_head_without_bias_is_seldom_adjusted() -> None:
    slopes = [1.0, -1.0, 0.5, 0.5, 0.0]
    honest, shares = np.array([*slopes, 0.5]), []
    for seed in range(200):
        units = [sums(slopes, 30, 100 * seed + k) for k in range(8)]
        shares.append(correction_share(units, honest))
    assert np.mean(np.array(shares) >= LEAST_ADJUSTED) < 0.2
    assert np.mean(np.array(shares) >= HARMFUL) < 0.05
    assert correction_share(units[:3], honest) == 0.0


def test_an_adjusted_head_is_made_again_for_other_sums() -> None:
    """After a refit the same share of a new correction is taken; a share of one is the line that fits best."""
    slopes = [1.0, -1.0, 0.5, 0.5, 0.0]
    units, shared = late_units(0.3, slopes)
    whole = add_all(units)
    errors = [mean_squared_error(whole, make_head("adjusted", s, whole, shared, COLUMNS)) for s in (0.5, 0.9, 1.0)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * mean_squared_error(whole, shared)


def guesses(errors: tuple[float, float], rows: int, seed: int) -> HeadStatistics:
    """Sums of two features that each say the label with errors of their own."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=rows)
    h = np.column_stack([*(y + error * rng.normal(size=rows) for error in errors), np.ones(rows)])
    return HeadStatistics(rows, float(y @ y), h.T @ h, h.T @ y)


@pytest.mark.parametrize(
    ("errors", "low", "high"), [((0.5, 0.5), 0.45, 0.55), ((9.0, 0.3), 0.95, 1.0), ((0.1, 3.0), 0.0, 0.2)]
)
def test_a_blend_takes_more_of_the_better_head(errors: tuple[float, float], low: float, high: float) -> None:
    units = [guesses(errors, 60, seed) for seed in range(8)]
    first, second = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    share = blend_share(units, [first] * 8, [second] * 8)
    assert low <= share <= high
    other = guesses(errors, 1000, 99)
    blended = mean_squared_error(other, (1 - share) * first + share * second)
    assert blended < 1.05 * min(mean_squared_error(other, head) for head in (first, second))


def test_a_poisoned_head_is_blended_with_one_that_nobody_else_has_a_part_in() -> None:
    """What an owner keeps is hardly worse than what it would keep without the attack."""
    columns = {"personal": np.arange(0), "alone": np.arange(0), "linear": np.arange(0), "reservoir": np.array([1])}
    units, other = [guesses((0.5, 0.5), 60, seed) for seed in range(8)], guesses((0.5, 0.5), 1000, 99)
    ended = {}
    for name, shared in (("honest", [1.0, 0.0, 0.0]), ("turned around", [-1.0, 0.0, 0.0]), ("dead", [0.0, 0.0, 0.0])):
        head = np.array(shared)
        (kind, strength), share = choose(units, head, columns)
        assert share > 0 or kind == "reservoir"
        kept = make_head(kind, strength, add_all(units), head, columns)
        own = reservoir_head(units, head, columns)
        ended[name] = mean_squared_error(other, (1 - share) * kept + share * own)
    alone = mean_squared_error(other, reservoir_head(units, head, columns))
    assert ended["honest"] < 0.8 * alone
    assert ended["turned around"] < 1.05 * alone
    assert ended["dead"] < 1.05 * alone


def test_a_blend_is_made_again_for_another_network(tmp_path: Path) -> None:
    """The same kind, strength and share; the body that nobody else has a part in comes along."""
    fleet = series_fleet([60 + 4 * k for k in range(10)], conditions=1)
    recipe = recipe_for(RecipeOptions(window=8), {"a": fleet})
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(4,)), 0, 0.0)
    client, none = Client("a", fleet, ClientFolder(tmp_path)), np.empty(0)
    asked = ChoiceRequest(recipe, network, 0, 0.0, none, kind="together", share=0.25, head=ONLY_HEAD)
    reply = client.answer(asked)
    assert (reply.kind, reply.share) == ("together", 0.25)
    owner = network.with_head(client.folder.load_head(ONLY_HEAD))
    assert owner.spec.reservoir == OWN_RESERVOIR
    np.testing.assert_allclose(owner.head[:4], 0.75 * network.head[:4], rtol=1e-6)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_cannot_be_is_refused(tmp_path: Path, share: float) -> None:
    fleet = series_fleet([60 + 4 * k for k in range(10)], conditions=1)
    recipe = recipe_for(RecipeOptions(window=8), {"a": fleet})
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(4,)), 0, 0.0)
    request = ChoiceRequest(recipe, network, 0, 0.0, np.empty(0), kind="together", share=share)
    with pytest.raises(MessageError):
        Client("a", fleet, ClientFolder(tmp_path)).answer(request)


def test_a_choice_is_told_in_steps_and_is_no_number_made_of_rows() -> None:
    """Another row changes a sum in its last digits, and a coordinator that compares two runs could read it there."""
    columns = {"personal": np.arange(0), "alone": np.arange(0), "linear": np.arange(0), "reservoir": np.array([1])}
    shares = set()
    for seed in range(20):
        units = [guesses((0.5, 0.4), 60, 100 * seed + k) for k in range(8)]
        (kind, strength), share = choose(units, np.array([1.0, 0.0, 0.1]), columns)
        shares |= {share, strength if kind == "adjusted" else 1.0}
    assert shares <= {k / STEPS for k in range(STEPS + 1)}
    assert len(shares) > 3


def test_a_client_keeps_what_its_head_says_of_units_that_it_was_not_fitted_to(tmp_path: Path) -> None:
    fleet = series_fleet([60 + k for k in range(12)], name="a")
    recipe = recipe_of(fleet, window=8, cap=40, stride=1)
    client = Client("a", fleet, ClientFolder(tmp_path))
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(4,)), 0)
    windows = client.windows(recipe)
    fitted = exact_head(head_statistics(network, windows, recipe), None, 1e-3).head
    shifted = fitted.copy()
    shifted[-1] += 1.0
    request = ChoiceRequest(recipe, network.with_head(shifted), 0, 0.3, shifted)
    reply = client.answer(request)
    assert reply.kind != "together"  # type: ignore[union-attr]
    kept_out = client.folder.load_kept_out(request.head)
    assert kept_out is not None
    predictions, labels, unit = kept_out
    assert len(np.unique(unit)) == 12
    error = np.sqrt(np.mean(np.square(predictions - recipe.capped(labels))))
    shared = np.sqrt(
        np.mean(np.square(predict(network.with_head(shifted), windows, recipe) - recipe.capped(windows.labels)))
    )
    assert error < 0.8 * shared
    untouched = ChoiceRequest(recipe, network.with_head(fitted), 0, 0.3, np.empty(0))
    client.answer(untouched)
    assert client.folder.load_kept_out(untouched.head) is None
