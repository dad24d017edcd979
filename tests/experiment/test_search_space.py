from __future__ import annotations

from typing import Any

import pytest

from fedprognos.errors import ConfigError
from fedprognos.experiment import config
from fedprognos.experiment.search_space import applied, own_values, space_of
from fedprognos.experiment.tuning import judged

PAPER = {
    "layers": {1, 2},
    "neurons": {50, 128, 256, 300},
    "train.learning_rate": {0.0005, 0.001, 0.005},
    "train.optimizer": {"adam", "rmsprop"},
}
_, ENGINES, _ = config.load("turbofan")
_, CELLS, _ = config.load("battery")


@pytest.mark.parametrize(
    ("experiment", "task", "method", "more"),
    [
        (ENGINES, "rul", "fedavg", {"recipe.window": {30, 40, 50}, "federation.fedavg.epochs": {5, 10, 15, 50, 75}}),
        (ENGINES, "rul", "fedma", {"recipe.window": {30, 40, 50}, "federation.fedma.epochs": {200}}),
        (CELLS, "soh", "fedprox", {"recipe.grid_points": {171}, "federation.fedprox.epochs": {2, 5, 10}}),
        (CELLS, "soh", "central", {"recipe.grid_points": {171}}),
    ],
)
def test_the_papers_space_and_the_experiments_own_values_are_searched(
    experiment: config.Experiment, task: Any, method: str, more: dict[str, set[int]]
) -> None:
    space = space_of(experiment, task, method)
    assert set(space) == set(PAPER) | set(more)
    for name, values in (PAPER | more).items():
        assert values <= set(space[name])
    own = own_values(experiment, space, method)
    assert set(own) == set(space)
    same = applied(experiment, own)
    if method != "fedma":  # whose epochs are those of [train] until they are searched
        assert same == experiment
    assert same.model == experiment.model


def test_a_window_is_searched_by_either_name_and_whole_lives_have_none() -> None:
    parts = {**ENGINES.dump(), "recipe": {**ENGINES.dump()["recipe"], "window": None, "history": 35}}
    named = config.parse(parts, "parts")
    space = space_of(named, "rul", "fedavg")
    assert space["recipe.window"] == (30, 35, 40, 50)
    assert own_values(named, space, "fedavg")["recipe.window"] == 35
    assert applied(named, {"recipe.window": 40}).recipe.length == 40
    _, lives, _ = config.load("turbofan-life")
    space = space_of(lives, "rul", "fedavg")
    assert "recipe.window" not in space
    assert applied(lives, own_values(lives, space, "fedavg")) == lives


def test_values_go_where_they_belong() -> None:
    values = {
        "layers": 2,
        "neurons": 50,
        "recipe.window": 40,
        "train.optimizer": "rmsprop",
        "federation.fedma.rounds": 3,
    }
    made = applied(ENGINES, values)
    assert made.model.widths == (50, 50)
    assert (made.recipe.window, made.train.optimizer, made.federation.fedma.rounds) == (40, "rmsprop", 3)
    assert made.data == ENGINES.data and made.partition == ENGINES.partition


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("neurons", "name="),
        ("neurons=3", "name="),
        ("neurons=[]", "name="),
        ("neurons=[[3]]", "only numbers"),
        ("neurons=[0]", "widths"),
        ("train.epoch=[3]", "did you mean 'epochs'"),
        ("recipe.cap=[100, 130]", "cannot be searched"),
        ("recipe.stride=[1, 2]", "cannot be searched"),
        ("recipe.grid_points=[20]", "cannot be searched"),
        ("train.validation_fraction=[0.1]", "cannot be searched"),
        ("federation.fedma.rounds=[2]", "cannot be searched for fedavg"),
        ("evaluation.seeds=[2]", "cannot be searched"),
    ],
)
def test_what_cannot_be_searched_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        space_of(ENGINES, "rul", "fedavg", (text,))
    assert words in str(refused.value)


def test_trials_keep_something_out_and_do_not_choose_the_epoch_where_the_experiment_would_not() -> None:
    assert ENGINES.train.validation_fraction == 0
    train = judged(ENGINES).train
    assert train.validation_fraction == 0.2 and train.warmup > 1000
    _, demo, _ = config.load("plants")
    assert judged(demo).train == demo.train
    assert judged(CELLS).federation.heads == ("exact",)  # personal heads are seen by their owner only
