"""The front door in Python: a run with its report, its figures, and networks matched or absorbed into one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from numpy.typing import ArrayLike
    from torch import nn

    from fedprognos.experiment import Engine, Extras, Observer, Run
    from fedprognos.features import Recipe
    from fedprognos.fleet import Fleet
    from fedprognos.networks import Network


SECTIONS = ("title", "data", "partition", "recipe", "model", "train", "federation", "evaluation", "base", "scale")


def run(
    source: str | Path | Mapping[str, Any] | Fleet | None = None,
    *,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    seeds: int | None = None,
    overrides: tuple[str, ...] = (),
    workers: int | None = None,
    cluster: str | Engine | None = None,
    resume: bool = True,
    observers: Sequence[Observer] = (),
    extras: Extras | None = None,
    report_sections: Sequence[Any] = (),
    **more: Any,
) -> Run:
    """Run an experiment and write its folder, report included. To resume a killed run, call it again.

    Parameters
    ----------
    source
        Name of a preset, path of a TOML file, its content as a mapping, or a fleet of your own.
    extras
        Things of your own that the experiment may name. Or give them by kind: `run(..., strategies=[mine])`, likewise
        `cells`, `readers`, `channels`, `histories`, `aggregators`, `mechanisms`, `exchanges`, `metrics`, `baselines`
        and `partitions`.
    report_sections
        Sections of your own for the report.
    title, data, partition, recipe, model, train, federation, evaluation
        Sections of the experiment as mappings, on top of `source`: `run("demo", train={"steps": 40})`.
    workers
        Worker processes: as many as processors in a notebook, one in a script. A script that asks for more must call
        this under `if __name__ == "__main__":`.
    data_dir, out, seeds, overrides, cluster, resume, observers
        As in :func:`fedprognos.experiment.experiment_run.run`.
    """
    from fedprognos.errors import ConfigError, unknown_name
    from fedprognos.experiment import Extras, merged
    from fedprognos.experiment import experiment_run as experiments
    from fedprognos.fleet import Fleet, in_memory
    from fedprognos.report import sections, write_report

    given = {name: more.pop(name) for name in SECTIONS if name in more}
    if not isinstance(source, Fleet | str | Path | Mapping | None):
        hint = "make a fleet of a data frame: fp.Fleet.from_frame(frame, unit=..., time=..., site=...)"  # type: ignore[unreachable]
        raise ConfigError(f"cannot run a {type(source).__name__}", hint=hint)
    if isinstance(source, Fleet):
        reader, section = in_memory(source, given.pop("data", {}))
        more["readers"] = [*more.get("readers", ()), reader]
        given["data"] = section
    kinds_of_extras = [field.name for field in fields(Extras)]
    for name in more:
        if name not in kinds_of_extras:
            raise unknown_name("argument", name, (*SECTIONS, *kinds_of_extras))
    extras = replace(extras or Extras(), **more)
    main = sys.modules["__main__"]
    if workers is None and hasattr(main, "__file__") and main.__spec__ is None:
        workers = 1  # worker processes import the script that started them, and would run it again
    bare: str | Path | Mapping[str, Any] = {} if source is None or isinstance(source, Fleet) else source
    experiment = merged(bare, given) if given or source is None else bare
    with ExitStack() as stack:
        stack.enter_context(sections.including(report_sections))
        done = experiments.run(
            experiment,
            data_dir=data_dir,
            out=out,
            seeds=seeds,
            overrides=overrides,
            workers=workers,
            cluster=cluster,
            resume=resume,
            observers=observers,
            extras=extras,
        )
        with extras.on_shelves():
            return replace(done, report=write_report(done.folder))


def absorb(
    networks: Sequence[Network | nn.Module],
    recipe: Recipe,
    fleet: Fleet,
    *,
    width: int,
    alpha: float | None = None,
    ridge: float | None = None,
) -> Network:
    """Several networks as one of `width` neurons, matched by what they put out on a fleet, with an exact head.

    Parameters
    ----------
    networks
        Of the same cell and layers and any widths; networks of your own in torch are taken over.
    recipe, fleet
        What they see: rows to compare their outputs on and solve the head from; :func:`windows` makes them of arrays.
    width
        Neurons of the last layer; layers below keep as many at most.
    alpha, ridge
        As in :func:`fedprognos.matching.absorb`, which has the defaults. The head takes the same ridge.
    """
    from fedprognos import matching
    from fedprognos.errors import ConfigError
    from fedprognos.features import Recipe, build_windows
    from fedprognos.federation import layer_arrays, small_network
    from fedprognos.fleet import Fleet
    from fedprognos.networks import Network, head_statistics, output_sums, solve_head

    if not (isinstance(recipe, Recipe) and isinstance(fleet, Fleet)):
        raise ConfigError(
            f"absorb needs a recipe and a fleet, not {type(recipe).__name__} and {type(fleet).__name__}",
            hint="fp.windows makes both of arrays: fp.absorb(networks, *fp.windows(inputs, labels), width=...)",
        )
    points = build_windows(recipe, fleet)
    joint = Network.concat(_taken_over(networks))
    if joint.spec.inputs != recipe.channels:
        raise ConfigError(
            f"the networks have {joint.spec.inputs} inputs, the recipe makes {recipe.channels}",
            hint="pass the recipe they were trained with",
        )
    alpha, ridge = (matching.ALPHA if alpha is None else alpha), (matching.RIDGE if ridge is None else ridge)
    sums = output_sums(joint, points)
    head = head_statistics(joint, points, recipe).sums
    result = matching.absorb(layer_arrays(joint), sums, width=width, alpha=alpha, ridge=ridge, head=head)
    small = small_network(joint, result)
    return small.with_head(solve_head(head_statistics(small, points, recipe), ridge))


def match_networks(networks: Sequence[Network | nn.Module], **options: Any) -> Network:
    """Several networks as one, matched and averaged layer by layer by their weights: Algorithm 1 without retraining.

    Parameters
    ----------
    networks
        Of the same cell and number of layers; networks of your own in torch are taken over.
    options
        Keys of `[federation.fedma]`, such as `width_limit`.
    """
    from fedprognos.federation import FedMAOptions, algorithm_1
    from fedprognos.networks import check_alike
    from fedprognos.options import validated

    W = {f"{k:06d}": network for k, network in enumerate(_taken_over(networks))}
    check_alike(list(W.values()))
    return algorithm_1(W, dict.fromkeys(W, 1.0), validated(FedMAOptions, options, "match_networks"))[0]


def windows(inputs: ArrayLike, labels: ArrayLike) -> tuple[Recipe, Fleet]:
    """Arrays as a recipe and a fleet: sequences (N, T, inputs) as they are, and the label (N,) of each.

    Examples
    --------
    >>> import numpy as np
    >>> recipe, fleet = windows(np.zeros((5, 10, 2)), np.arange(5.0))
    >>> recipe.window, recipe.channels, len(fleet)
    (10, 2, 5)
    """
    import numpy as np

    from fedprognos.errors import DataError
    from fedprognos.features import Recipe
    from fedprognos.fleet import Fleet, Schema, Unit

    x, y = np.asarray(inputs, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if x.ndim != 3 or y.shape != x.shape[:1]:
        raise DataError(f"inputs {x.shape} and labels {y.shape}", hint="give inputs (N, T, C) and labels (N,)")
    sensors = tuple(f"input_{c}" for c in range(x.shape[2]))
    none, time = np.empty((x.shape[1], 0)), np.arange(1.0, x.shape[1] + 1)
    units = [
        Unit(f"{n:08d}", time, rows, none, target=np.full(len(rows), label))
        for n, (rows, label) in enumerate(zip(x, y, strict=True))
    ]
    zeros, ones = (0.0,) * len(sensors), (1.0,) * len(sensors)
    recipe = Recipe(task="rul", sensors=sensors, window=x.shape[1], mean=(zeros,), std=(ones,))
    return recipe, Fleet("windows", Schema("rul", sensors), tuple(units))


def plot(done: Run | str | Path, figure: str = "", *, scenario: str | None = None, choice: int = 0) -> go.Figure:
    """One of the report's figures as a plotly figure.

    Parameters
    ----------
    done
        A finished run or its folder.
    figure
        Name of a figure; an unknown one raises an error that lists them all.
    scenario
        Where there are several: which; the first by default.
    choice
        Where a figure offers a choice in the report: which entry.
    """
    from fedprognos.report import plot as draw

    return draw(done if isinstance(done, str | Path) else done.folder, figure, scenario, choice)


def _taken_over(networks: Sequence[Network | nn.Module]) -> list[Network]:
    from torch import nn

    from fedprognos.errors import ConfigError
    from fedprognos.networks import Network, network_of

    for network in networks:
        if not isinstance(network, Network | nn.Module):
            raise ConfigError(f"{network!r} is not a network", hint="pass Networks or torch modules")
    return [network if isinstance(network, Network) else network_of(network) for network in networks]
