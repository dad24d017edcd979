"""The front door in Python: a run with its report, and networks absorbed into a smaller one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedprognos import matching
from fedprognos.experiment import run as experiments
from fedprognos.experiment.events import Observer
from fedprognos.experiment.run import Extras, Run
from fedprognos.features import Recipe, build_windows
from fedprognos.federation.absorption import head_sums, layer_arrays, small_network
from fedprognos.fleet import Fleet
from fedprognos.matching import OutputSums
from fedprognos.networks import Network
from fedprognos.networks.head import head_statistics, solve_head
from fedprognos.networks.outputs import output_sums
from fedprognos.report import sections, write_report


def run(
    source: str | Path | Mapping[str, Any],
    *,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    seeds: int | None = None,
    overrides: tuple[str, ...] = (),
    workers: int | None = None,
    resume: bool = True,
    observers: Sequence[Observer] = (),
    extras: Extras | None = None,
    report_sections: Sequence[Any] = (),
    **objects: Sequence[Any],
) -> Run:
    """Run an experiment and write its folder, report included; a run that was killed goes on where it was.

    Parameters
    ----------
    source
        Name of a preset, path of a TOML file, or its content as a mapping.
    extras, strategies, cells, readers, aggregators, metrics, baselines
        Things of your own that the experiment may name, as objects: `run(..., strategies=[mine])`.
    report_sections
        Sections of your own for the report.
    data_dir, out, seeds, overrides, workers, resume, observers
        As in :func:`fedprognos.experiment.run.run`.
    """
    extras = replace(extras or Extras(), **objects)
    with ExitStack() as stack:
        stack.enter_context(sections.including(report_sections))
        done = experiments.run(
            source,
            data_dir=data_dir,
            out=out,
            seeds=seeds,
            overrides=overrides,
            workers=workers,
            resume=resume,
            observers=observers,
            extras=extras,
        )
        with extras.on_shelves():
            return replace(done, report=write_report(done.folder))


def absorb(
    networks: Sequence[Network], recipe: Recipe, fleet: Fleet, *, width: int, alpha: float = 0.3, ridge: float = 0.01
) -> Network:
    """Several networks as one of `width` neurons, matched by what they put out on a fleet, with an exact head.

    Parameters
    ----------
    networks
        Of the same cell and layers and any widths.
    recipe, fleet
        What they see: rows to compare their outputs on and to solve the head from.
    width
        Neurons of the last layer; layers below keep as many at most.
    alpha, ridge
        As in :func:`fedprognos.matching.absorb`.
    """
    points = build_windows(recipe, fleet)
    joint = Network.concat(list(networks))
    sums = [OutputSums(float(o.n), float(o.starts), o.s, o.S) for o in output_sums(joint, points)]
    head = head_sums(head_statistics(joint, points, recipe))
    result = matching.absorb(layer_arrays(joint), sums, width=width, alpha=alpha, ridge=ridge, head=head)
    small = small_network(joint, result)
    return small.with_head(solve_head(head_statistics(small, points, recipe), ridge))
