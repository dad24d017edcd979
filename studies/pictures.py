"""The pictures of the results pages, drawn from the JSON files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedprognos.evaluation import EVERYONE, rmse
from studies import plotting
from studies.lines import Column, Comparison, comparisons, label
from studies.plotting import BLUE, BROWN, CYCLE, GREEN, INK, ORANGE, PURPLE, QUIET, RED, legend, named, panels
from studies.record import Record

COLOURS = {"local": ORANGE, "fedavg": RED, "fedma": GREEN, "central": BLUE, "concat": PURPLE, "single": BROWN}
COMPARED = {"soh": ("local", "fedma"), "rul": ("local", "fedavg", "fedma", "central")}
"""Whose predictions are drawn: too many lines hide each other, clouds have a panel each."""
IN_ROUNDS, WITHOUT_ROUNDS = ("fedavg", "fedma"), ("local", "central")
SIGNALS_OF = "B0018"
Fleet = Mapping[str, Any]


@dataclass(frozen=True)
class Picture:
    """A file of docs/results and what stands below it."""

    name: str
    title: str
    caption: str
    svg: str


def pictures(records: Mapping[str, Record]) -> list[Picture]:
    """All pictures the records allow."""
    collected: list[Picture] = []
    for kind in ("battery", "turbofan"):
        both = [r for preset in (f"{kind}-paper", f"{kind}-tuned") if (r := records.get(preset)) is not None]
        if both:
            collected += _fleet(kind, both[0])
            collected += _extractors(both[0])
        for record in both:
            collected += [*_rounds(record), *_predictions(record)]
    return collected


def _colour(method: str) -> str:
    return COLOURS.get(method, INK)


def _stored(record: Record, part: str) -> tuple[Comparison, Any]:
    """A part of what the record keeps for pictures of its first scenario."""
    first = comparisons(record)[0]
    return first, record.pictures.get(first.name, {}).get(part)


def _fleet(kind: str, record: Record) -> Iterator[Picture]:
    """What the data look like."""
    _, fleet = _stored(record, "fleet")
    if fleet is None:
        return
    if fleet["schema"]["task"] == "soh":
        yield _signals(kind, fleet)
        yield _fade(kind, fleet)
    else:
        yield _lifespans(kind, fleet)
        yield _targets(kind, fleet)


def _signals(kind: str, fleet: Fleet) -> Picture:
    title = "Voltage and temperature"
    cycles = [c for c in fleet["cycles"] if c["unit"] == SIGNALS_OF] or fleet["cycles"][-6:]
    with panels(2, 2) as (figure, axes):
        for ax, channel in zip(axes, ("voltage_in_V", "temperature_in_C"), strict=True):
            for k, cycle in enumerate(cycles):
                ax.plot(cycle["time"], cycle["channels"][channel], color=BLUE, alpha=0.25 + 0.75 * k / len(cycles))
            named(ax, channel.partition("_")[0], "time in s", channel.replace("_in_", " in ").replace("in C", "in °C"))
        numbers = ", ".join(str(cycle["cycle"]) for cycle in cycles)
        text = f"Discharges of {cycles[0]['unit']}, cycles {numbers}: early in life pale, late strong."
        return Picture(f"{kind}-signals", title, text, plotting.svg(figure, title))


def _fade(kind: str, fleet: Fleet) -> Picture:
    title = "Capacity fade"
    lines: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in fleet["degradation"]:
        lines[line["client"]].append(line)
    with panels(len(lines), 3, sharey=True) as (figure, axes):
        for ax, (client, parts) in zip(axes, lines.items(), strict=True):
            for part in parts:
                ax.plot(part["position"], part["value"], color=INK if part["part"] == "train" else BLUE)
            named(ax, client, "cycle", f"capacity in {fleet['schema']['target_measure']}")
            ax.label_outer()
        legend(figure, [("training", INK, "-"), ("test", BLUE, "-")])
        text = "Measured capacity of every battery, cycle by cycle: what was trained on and what was kept for the test."
        return Picture(f"{kind}-fade", title, text, plotting.svg(figure, title))


def _lifespans(kind: str, fleet: Fleet) -> Picture:
    title = "Lifespans"
    spans = {client: np.array(facts["lifespans"], dtype=float) for client, facts in fleet["clients"].items()}
    edges = np.histogram_bin_edges(np.concatenate(list(spans.values())), 22).tolist()
    with panels(len(spans), 3, sharey=True, sharex=True) as (figure, axes):
        for ax, (client, values), colour in zip(axes, spans.items(), CYCLE, strict=False):
            ax.hist(values, edges, color=colour, edgecolor="white", linewidth=0.5)
            ax.axvline(float(np.median(values)), color=QUIET, linestyle="--", linewidth=1)
            named(ax, f"{client}: {len(values)} engines", "cycles to failure", "engines")
            ax.label_outer()
        text = "How long the training engines of each client lived; the dashed line is the median."
        return Picture(f"{kind}-lifespans", title, text, plotting.svg(figure, title))


def _targets(kind: str, fleet: Fleet) -> Picture:
    title = "Remaining life as it is learnt"
    colours = dict(zip(fleet["clients"], CYCLE, strict=False))
    with panels(1, 1, height=2.4) as (figure, (ax,)):
        for line in fleet["degradation"]:
            ax.plot(line["position"], line["value"], color=colours[line["client"]])
        named(ax, "", "cycle", "remaining cycles, capped")
        legend(figure, [(client, colour, "-") for client, colour in colours.items()])
        text = "Labels of a short-lived, a middling and a long-lived engine of each client: capped, then falling."
        return Picture(f"{kind}-targets", title, text, plotting.svg(figure, title))


def _rounds(record: Record) -> Iterator[Picture]:
    """Test error over rounds, a panel a test; none where no method goes on in rounds."""
    places = [
        (compared, column)
        for compared in comparisons(record)
        if any(h.round > 1 and h.scenario == compared.name for h in record.results.history)
        for column in (compared.columns[:1] if compared.shared_test else compared.columns[:-1])
    ]
    if not places:
        return
    title = f"RMSE over rounds ({record.preset})"
    with panels(len(places), 2 if len(places) in (2, 4) else 3) as (figure, axes):
        for ax, (compared, column) in zip(axes, places, strict=True):
            _courses(ax, compared, column)
            where = column.test if compared.name == EVERYONE else f"{column.test}, {compared.name}"
            named(ax, compared.name if compared.shared_test else where, "round", f"RMSE in {compared.measure}")
        legend(
            figure,
            [
                *((label(m), _colour(m), "-") for m in IN_ROUNDS),
                *((label(m), _colour(m), "--") for m in WITHOUT_ROUNDS),
            ],
        )
        text = (
            "Test error after every round. Thin lines are single seeds, thick lines their mean, and dots the rounds "
            "that were chosen without the test. Local and central training have no rounds."
        )
        yield Picture(f"{record.preset}-rounds", title, text, plotting.svg(figure, title))


def _courses(ax: Axes, compared: Comparison, column: Column) -> None:
    head = next(h for h in (compared.main_head, *compared.record.heads) if h != "personal")
    for method in IN_ROUNDS:
        courses: dict[int, dict[int, float]] = defaultdict(dict)
        for h in compared.record.results.history:
            mine = (h.scenario, h.method, h.head, h.client) == (compared.name, method, head, column.test)
            if mine and h.rmse is not None:
                courses[h.seed][h.round] = h.rmse
        for course in courses.values():
            ax.plot(list(course), list(course.values()), color=_colour(method), linewidth=0.7, alpha=0.45)
        shared = sorted(set.intersection(*map(set, courses.values()))) if courses else []
        means = [float(np.mean([course[r] for course in courses.values()])) for r in shared]
        ax.plot(shared, means, color=_colour(method), linewidth=2.2)
        line = compared.line(method, head)
        chosen = None if line is None else line.sample(column)
        if chosen is not None:
            ax.plot(
                [chosen.rounds[seed] for seed in chosen.by_seed],
                list(chosen.by_seed.values()),
                linestyle="",
                marker="o",
                markersize=4,
                color=_colour(method),
            )
    for method in WITHOUT_ROUNDS:
        method_lines = [line for line in compared.lines if (line.name, line.head) == (method, head)]
        samples = [s for line in method_lines if (s := line.sample(column))]
        if samples:
            mean = float(np.mean([s.mean for s in samples]))
            ax.axhline(mean, color=_colour(method), linestyle="--", linewidth=1.2)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _predictions(record: Record) -> Iterator[Picture]:
    """Test predictions of the first scenario beside the truth."""
    first, curves = _stored(record, "predictions")
    if not curves:
        return
    battery = not first.shared_test
    kind = "Capacity by cycle" if battery else "Predicted and true remaining life"
    title = f"{kind} ({record.preset}, {first.main_head} head)"
    by_method = {
        m: [c for c in curves if c["method"].partition("+")[0] == m] for m in COMPARED["soh" if battery else "rul"]
    }
    svg = _lines(by_method, title, first.measure) if battery else _clouds(by_method, title)
    yield Picture(f"{record.preset}-predictions", title, f"Test data of seed 0, in {first.measure}.", svg)


def _lines(by_method: Mapping[str, Sequence[Mapping[str, Any]]], title: str, measure: str) -> str:
    units = list(dict.fromkeys(c["unit"] for curves in by_method.values() for c in curves))
    with panels(len(units), 3) as (figure, axes):
        for ax, unit in zip(axes, units, strict=True):
            mine = {m: [c for c in curves if c["unit"] == unit] for m, curves in by_method.items()}
            first = next(c for curves in mine.values() for c in curves)
            ax.plot(first["position"], first["truth"], color=INK, linewidth=2)
            for method, curves in mine.items():
                for curve in curves:
                    ax.plot(curve["position"], curve["prediction"], color=_colour(method))
            named(ax, unit, "cycle", f"capacity in {measure}")
        legend(figure, [("measured", INK, "-"), *((label(m), _colour(m), "-") for m in by_method)])
        return plotting.svg(figure, title)


def _clouds(by_method: Mapping[str, Sequence[Mapping[str, Any]]], title: str) -> str:
    with panels(len(by_method), 2, height=2.6, sharex=True, sharey=True) as (figure, axes):
        for ax, (method, curves) in zip(axes, by_method.items(), strict=True):
            truth, predicted = (np.concatenate([c[k] for c in curves]) for k in ("truth", "prediction"))
            ax.scatter(truth, predicted, 9, color=_colour(method), alpha=0.55, linewidths=0)
            ax.plot([0, truth.max()], [0, truth.max()], color=QUIET, linewidth=1)
            ax.set_ylim(0, 1.08 * predicted.max())
            named(ax, f"{label(method)}: RMSE {rmse(truth, predicted):.1f}", "true remaining cycles", "predicted")
            ax.label_outer()
        return plotting.svg(figure, title)


def _extractors(record: Record) -> Iterator[Picture]:
    """Outputs of neurons before and after the first matching, in the first scenario."""
    _, stored = _stored(record, "extractors")
    captions = {
        "before": "Outputs of the first neurons of {layer} over one test window, a line a client. Networks that were "
        "trained apart order their neurons by chance, so lines in one panel have nothing in common.",
        "after": "The same window after matching: the federated neurons of round 1 that most clients share. Each panel "
        "holds the neurons that became one. Lines that run together show one feature that all clients had learnt.",
    }
    for when, caption in captions.items() if stored is not None else ():
        sides = stored[when]
        count = max(len(neurons) for neurons in sides.values())
        title = f"Feature extractors {when} matching ({record.preset})"
        with panels(count, 5, height=1.25, sharex=True, sharey=True) as (figure, axes):
            for (client, neurons), colour in zip(sides.items(), CYCLE, strict=False):
                for ax, values in zip(axes, neurons, strict=False):
                    if values is not None:
                        ax.plot(values, color=colour, linewidth=1.3, label=client)
            for k, ax in enumerate(axes):
                named(ax, f"neuron {k + 1}" if when == "before" else f"federated {stored['neurons'][k] + 1}", "", "")
            legend(figure, [(client, colour, "-") for client, colour in zip(sides, CYCLE, strict=False)])
            text = caption.format(layer=stored["layer"])
            yield Picture(f"{record.preset}-extractors-{when}", title, text, plotting.svg(figure, title))
