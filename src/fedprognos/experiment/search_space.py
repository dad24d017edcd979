"""What is searched: the paper's table of hyper-parameters (Table III) and its local epochs E, or one's own choices.

A space is a list of values for each name. Names are keys of an experiment that are marked `Tunable`, those of the
method's own section among them, and `layers` and `neurons`, which together make `model.widths`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from fedprognos.errors import ConfigError
from fedprognos.experiment import config
from fedprognos.federation.strategies import strategies
from fedprognos.files import parse_toml
from fedprognos.fleet import Task
from fedprognos.networks import TrainOptions
from fedprognos.options import Tunable

Choice = bool | int | float | str
Space = dict[str, tuple[Choice, ...]]

LAYERS, NEURONS, WINDOW, GRID = "layers", "neurons", "recipe.window", "recipe.grid_points"
WINDOWS = (30, 40, 50)
GRIDS = (43, 86, 171)
"""The paper takes 171 points of every cycle; a half and a quarter of them cost that much less."""
INPUTS = ("recipe.setting_inputs", "recipe.condition_inputs")
UNSEARCHED = ("train.validation_fraction", "train.device", "model.widths")


def space_of(experiment: config.Experiment, task: Task, method: str, chosen: Sequence[str] = ()) -> Space:
    """The paper's space for a method, each list with the experiment's own value, changed by `name=[values]`."""
    space: Space = {LAYERS: (1, 2), NEURONS: (50, 128, 256, 300)}
    if task != "soh" and experiment.recipe.series == "window":
        space = {WINDOW: WINDOWS, **space}
    elif task == "soh" and experiment.recipe.cycle == "grid":
        space = {GRID: GRIDS, **space}
    for name, marked in _marked(method).items():
        space[name] = marked.choices if task != "soh" or marked.soh is None else marked.soh
    experiment_values = _values(experiment, space, method)
    space = {name: tuple(sorted({*values, experiment_values[name]} - {None})) for name, values in space.items()}
    for text in chosen:
        name, values = _parsed(text)
        _check_name(name, task, method)
        space[name] = values
        for value in values:
            applied(experiment, {name: value}, where=f"--space {text}")
    return space


def own_values(experiment: config.Experiment, space: Space, method: str) -> dict[str, Choice]:
    """The experiment's own value of every name, as far as it is among the choices."""
    values = _values(experiment, space, method)
    return {name: value for name, value in values.items() if value is not None and value in space[name]}


def applied(experiment: config.Experiment, values: Mapping[str, Choice], where: str = "trial") -> config.Experiment:
    """The experiment with these values in place."""
    document = experiment.dump()
    if WINDOW in values and isinstance(experiment.recipe.history, int):
        document["recipe"]["history"] = None  # the other name of the window
    layers = values.get(LAYERS, len(experiment.model.widths))
    if LAYERS in values or NEURONS in values:
        document["model"]["widths"] = [values.get(NEURONS, experiment.model.widths[0])] * int(layers)
    for name, value in values.items():
        if name not in (LAYERS, NEURONS):
            *sections, key = name.split(".")
            place: dict[str, Any] = document
            for section in sections:
                place = place.setdefault(section, {})
            place[key] = value
    return config.parse(document, where)


def _marked(method: str) -> dict[str, Tunable]:
    """The keys of [train] and of the method's section that are to be searched."""
    return {
        f"{section}.{key}": mark
        for section, options in (("train", TrainOptions), (f"federation.{method}", strategies[method].options))
        for key, field in sorted(options.model_fields.items())
        for mark in field.metadata
        if isinstance(mark, Tunable)
    }


def _values(experiment: config.Experiment, space: Space, method: str) -> dict[str, Any]:
    widths = experiment.model.widths
    values: dict[str, Any] = {LAYERS: len(widths), NEURONS: widths[0] if len(set(widths)) == 1 else None}
    for name in set(space) - set(values):
        values[name] = experiment.recipe.length if name == WINDOW else attrgetter(name)(experiment)
    for name, mark in _marked(method).items():
        if values.get(name, 0) is None and mark.default is not None:
            values[name] = attrgetter(mark.default)(experiment)
    return {name: values[name] for name in space}


def _parsed(text: str) -> tuple[str, tuple[Choice, ...]]:
    name, sign, listed = (part.strip() for part in text.partition("="))
    try:
        values = parse_toml(f"v = {listed}")["v"] if sign else None
    except ConfigError:
        values = None
    if not name or not isinstance(values, list) or not values:
        raise ConfigError(f"cannot read '{text}'", where="--space", hint="write --space 'name=[value, value]'")
    if not all(isinstance(value, Choice) for value in values):
        raise ConfigError(f"{name}: only numbers, words and true or false can be searched", where=f"--space {text}")
    return name, tuple(dict.fromkeys(values))


def _check_name(name: str, task: Task, method: str) -> None:
    """Only what leaves the points and labels that trials are judged on as they are can be searched."""
    if name in (LAYERS, NEURONS):
        return
    recipe = (WINDOW if task != "soh" else GRID, *INPUTS)
    section = next((s for s in ("model", "train", f"federation.{method}") if name.startswith(f"{s}.")), None)
    if name not in recipe and (section is None or name in UNSEARCHED):
        raise ConfigError(
            f"{name} cannot be searched for {method}",
            where="--space",
            hint=f"{LAYERS}, {NEURONS}, {', '.join(recipe)} and keys of [model], [train] and the method can",
        )
