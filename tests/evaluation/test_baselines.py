from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from fedprognos.evaluation import baselines, rmse
from fedprognos.evaluation.baselines import boosting, constant, last, ridge, rolling_features
from fedprognos.features import build_windows
from fedprognos.fleet.split import split_cycles
from small_fleets import cyclic_fleet, recipe_of, series_fleet

TRAIN, TEST = series_fleet([80, 120, 100, 90], seed=1), series_fleet([95, 105], seed=2, name="unseen")
RECIPE = recipe_of(TRAIN, window=15, cap=60, conditions={"altitude": 0})
A, B = build_windows(RECIPE, TRAIN), build_windows(RECIPE, TEST)


def test_constant_says_the_mean_capped_label() -> None:
    assert set(constant(A, RECIPE)(B)) == {np.minimum(A.labels, 60).mean()}


def test_last_repeats_the_last_known_value_and_knows_when_there_is_none() -> None:
    fleet = cyclic_fleet(units=2, cycles=20)
    train, test = split_cycles(fleet, 0.7)
    recipe = recipe_of(train)
    got = last(build_windows(recipe, train), recipe)(build_windows(recipe, test))
    assert got is not None
    assert got[:6].tolist() == [train.units[0].target[-1]] * 6  # type: ignore[index]
    assert last(A, RECIPE)(build_windows(RECIPE, series_fleet([40], name="stranger"))) is None


def test_age_is_the_mean_residual_life_of_those_who_got_so_far() -> None:
    got = baselines["age"].predict(A, B, RECIPE)
    assert got is not None
    for position, value in zip(B.position, got, strict=True):
        left = [min(n - position, 60) for n in (80, 120, 100, 90) if n > position]
        assert value == pytest.approx(np.mean(left) if left else 0.0)


def test_ridge_recovers_a_linear_truth() -> None:
    linear = replace(A, labels=30 + 4 * A.features[A.starts + A.length - 1, 0].astype(float))
    recipe = RECIPE.model_copy(update={"cap": None, "label_mean": 30.0, "label_std": 4.0})
    assert rmse(linear.labels, ridge(linear, recipe)(linear)) < 0.01


@pytest.mark.parametrize("name", list(baselines))
def test_every_baseline_beats_or_equals_saying_nothing_much(name: str) -> None:
    values = baselines[name].predict(A, B, RECIPE)
    if values is None:
        assert name in ("last", "persistence", "extrapolation")
        return
    assert values.shape == (len(B),)
    assert (values >= 0).all()
    assert (values <= 60).all()
    capped = np.minimum(B.labels, 60)
    assert rmse(capped, values) <= rmse(capped, constant(A, RECIPE)(B)) * 1.001


@pytest.mark.parametrize("life", [False, True])
def test_rolling_features_are_those_of_the_rows_up_to_each_point(life: bool) -> None:
    recipe = recipe_of(TRAIN, window=None, history="life", cap=60) if life else RECIPE
    windows = build_windows(recipe, TRAIN)
    features = rolling_features(windows)
    for k in (0, 7, 41, len(windows) - 1):
        end = windows.starts[k] + windows.length
        first = windows.lives[windows.unit[k]] if windows.lives is not None else windows.starts[k]
        rows = windows.features[first:end].astype(float)
        span = rows[-30:]
        half = np.arange(len(span)) >= len(span) // 2
        earlier = span[~half].mean(0) if (~half).any() else 0.0
        by_hand = [
            rows[-1],
            rows[-5:].mean(0),
            span.mean(0),
            span.std(0),
            span[half].mean(0) - earlier,
            rows[-5:].mean(0) - rows[:10].mean(0),
        ]
        expected = np.array(by_hand).T.ravel()
        assert features[k, :-1] == pytest.approx(expected, abs=1e-4)
        assert features[k, -1] == windows.position[k]


def test_boosting_says_the_same_twice_on_more_windows_than_it_is_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("fedprognos.evaluation.baselines"), "BOOSTING_ROWS", 200)
    first, second = (baselines["boosting"].predict(A, B, RECIPE) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.tobytes() == second.tobytes()


def test_an_owner_s_rolling_features_do_not_depend_on_whose_rows_stand_before_its_own() -> None:
    fleet = series_fleet([40, 50, 60])
    recipe = recipe_of(fleet, window=None, history="life", cap=60)
    together, alone = build_windows(recipe, fleet), build_windows(recipe, fleet.select(["engines-1"]))
    own = together.select(together.unit == 1)
    np.testing.assert_allclose(rolling_features(own), rolling_features(alone), rtol=1e-5, atol=1e-5)


def test_owners_boosting_shares_the_rows_that_all_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    module, fitted = import_module("fedprognos.evaluation.baselines"), []
    monkeypatch.setattr(module, "BOOSTING_ROWS", 100)
    monkeypatch.setattr(
        module, "rolling_features", lambda windows: fitted.append(len(windows)) or rolling_features(windows)
    )
    boosting(A, RECIPE)
    boosting(A.select(A.unit == 0), RECIPE)
    part = np.count_nonzero(A.unit == 0) + RECIPE.window - 1
    assert fitted[2] == 100
    assert fitted[5] == round(100 * part / len(A.features))
