"""When to maintain and what it costs: what every method's predictions would mean, from whole lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.evaluation import (
    ALPHA,
    ENOUGH,
    Trajectories,
    accurate,
    decided,
    followed_to,
    horizons,
    last_seen,
    maintained_at,
    median_horizon,
    rising,
)
from fedprognos.report.method_entries import Entry, drawn
from fedprognos.report.number_words import number, percent, plural
from fedprognos.report.page_elements import Column, Figure, Line, Panel, Section, Table, TableCell, Trace
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, hover, layout

Model = tuple[FloatArray, FloatArray, IntArray]
"""Truth, prediction and unit of one model's points along the lives of the whole test."""
THRESHOLDS = 33
BEARABLE = 0.05
"""Share of unexpected breaks that thresholds are asked for."""
MOMENTS = (0.5, 0.75)
"""Shares of life at which the alpha-lambda accuracy is given."""


@dataclass(frozen=True, eq=False)
class Maintenance:
    """One entry's decisions, means over seeds and over the clients' own models.

    Parameters
    ----------
    thresholds, breaks, unused : (T,)
        Predicted remaining life at which units are maintained; share of units that break; mean life thrown away.
    accuracy
        Share of units within alpha at each moment of life, None where no unit was followed so far.
    horizon
        Median prognostic horizon; None where the records end too early.
    """

    entry: Entry
    thresholds: FloatArray
    breaks: FloatArray
    unused: FloatArray
    accuracy: Mapping[float, float | None]
    horizon: float | None

    @property
    def bearable(self) -> tuple[float, float] | None:
        """The lowest threshold with few enough breaks and the life it throws away; None where there is none."""
        few_breaks = np.flatnonzero(self.breaks <= BEARABLE)
        return (float(self.thresholds[few_breaks[0]]), float(self.unused[few_breaks[0]])) if few_breaks.size else None


def build(run: RunData) -> Section:
    """Breaks against life thrown away, what that means for the published model, and behind a click the rest."""
    rules = maintenance(run)
    compared = [rule for rule in rules if not rule.entry.is_baseline or rule.entry == run.roles.baseline]
    more = Section("Every method in numbers", tables=[_table(run, compared)], folded=True)
    return Section("When to maintain", _lead(run, rules), figures=[_costs(run, rules)], parts=[more])


def maintenance(run: RunData) -> list[Maintenance]:
    """Decisions of the entries that figures show."""
    top = run.cap or float(np.quantile(np.concatenate([trajectories.truth for trajectories in run.trajectories]), 0.9))
    thresholds = np.unique(np.round(np.linspace(0.0, top, THRESHOLDS), 0 if top > THRESHOLDS else 3))
    models_by_entry = [(e, [_arrays(model) for model in _models(run, e)]) for e in drawn(run)]
    return [_maintenance(entry, models, thresholds) for entry, models in models_by_entry if models]


def _models(run: RunData, entry: Entry) -> list[list[Trajectories]]:
    """An entry's trajectories by model: those of a seed that answer for the whole test together."""
    groups: dict[tuple[int, str], list[Trajectories]] = {}
    for trajectories in run.trajectories:
        trained_on = run.data_of.get(trajectories.train_clients)
        if (trajectories.method, trained_on, trajectories.head) == (entry.method, entry.data, entry.head or ""):
            model = (trajectories.seed, trajectories.train_clients if run.shared_test else "")
            groups.setdefault(model, []).append(trajectories)
    return [groups[key] for key in sorted(groups)]


def _arrays(parts: Sequence[Trajectories]) -> Model:
    """Several tests' points as one, units kept apart."""
    before = np.cumsum([0, *(len(part.unit_ids) for part in parts)])
    unit = np.concatenate([part.unit + shift for part, shift in zip(parts, before, strict=False)])
    return np.concatenate([part.truth for part in parts]), np.concatenate([part.prediction for part in parts]), unit


def _maintenance(entry: Entry, models: Sequence[Model], thresholds: FloatArray) -> Maintenance:
    costs = []
    for truth, prediction, unit in models:
        last = last_seen(truth, unit)
        rules = [decided(maintained_at(truth, prediction, unit, t), last, followed_to(last)) for t in thresholds]
        costs.append([(rule.breaks, rule.unused) for rule in rules])
    breaks, unused = np.array(costs).mean(axis=0).T
    accuracy: dict[float, float | None] = {}
    for moment in MOMENTS:
        near = np.concatenate([accurate(*model, moment) for model in models])
        accuracy[moment] = None if np.isnan(near).all() else float(np.nanmean(near))
    reached = [median_horizon(*horizons(*model)) for model in models]
    seen_horizons = [h for h in reached if h is not None]
    horizon = float(np.mean(seen_horizons)) if len(seen_horizons) == len(reached) else None
    return Maintenance(entry, thresholds, -rising(-breaks), rising(unused), accuracy, horizon)


def _lead(run: RunData, rules: Sequence[Maintenance]) -> str:
    """What the published model, or else the first drawn, would cost beside training alone."""
    by_key = {j.entry.key: j for j in rules}
    r = run.roles
    model_rule, alone_rule = (by_key.get(e.key) if e is not None else None for e in (r.together or r.central, r.alone))
    if model_rule is None or model_rule.bearable is None:
        return f"No threshold keeps unexpected breaks below {percent(BEARABLE)} here."
    threshold, unused = model_rule.bearable
    tests = len({(test.test_client, unit) for test in run.trajectories for unit in test.unit_ids})
    units = plural(tests, "test unit")
    breaks = f"at most {percent(BEARABLE)} of the {units} break" if BEARABLE * tests >= 1 else f"none of {units} breaks"
    text = (
        f"If units are maintained when {model_rule.entry.short_label} predicts {threshold:g} {run.measure} or less, "
        f"{breaks} unexpectedly. Each gives up {number(unused)} {run.measure} of life"
    )
    alone = "" if alone_rule is None or alone_rule is model_rule else "; alone no threshold does that"
    if alone and alone_rule is not None and alone_rule.bearable is not None:
        alone = f"; alone, {number(alone_rule.bearable[1])} for as few breaks"
    return f"{text}{alone}."


def _costs(run: RunData, rules: Sequence[Maintenance]) -> Figure:
    both: list[Trace] = []
    by_threshold: list[Trace] = []
    for j in rules:
        e, share, text = j.entry, 100 * j.breaks, [f"{t:g}" for t in j.thresholds]
        tip = hover(e.short_label, "<br>maintained at %{text}: %{y}% break, %{x} given up")
        both.append(run.palette.line(e, j.unused, share, tip, text=text))
        tip = hover(e.short_label, "<br>maintained at %{x}: %{y}% break")
        by_threshold.append(run.palette.line(e, j.thresholds, share, tip))
    y = axis("units that break, %", range=[0, 100])
    unused = axis(f"mean life given up, {run.measured}", rangemode="tozero")
    threshold = axis(f"maintained at a predicted life, {run.measured}", rangemode="tozero")
    panels = [
        Panel("Breaks against life given up", both, layout(unused, y), 330),
        Panel("Breaks by threshold", by_threshold, layout(threshold, y), 330),
    ]
    caption = (
        "A low threshold lets more units break, a high one gives up more life: the lower left corner is best. "
        "Thresholds come from the test units; choose yours on your fleet."
    )
    chips = run.palette.chips([j.entry for j in rules], run.roles.keys)
    title = "Unexpected breaks and unused life"
    return Figure(
        "costs", title, caption + run.with_head, [("", panels)], chips=chips, notes=_followed(run), grid="pairs"
    )


def _followed(run: RunData) -> list[str]:
    """Says so where records end before failure."""
    tests = {trajectories.test_client: trajectories for trajectories in run.trajectories}
    last = np.concatenate([last_seen(trajectories.truth, trajectories.unit) for trajectories in tests.values()])
    failed = int((last <= 0).sum())
    if failed == len(last):
        return []
    return [
        f"{failed or 'None'} of the {len(last)} test units {'was' if failed == 1 else 'were'} followed to failure "
        f"(product-limit estimate). Below {followed_to(last):g} {run.measure} fewer than {ENOUGH} have records; units "
        "not maintained by then count as breaking."
    ]


def _table(run: RunData, rules: Sequence[Maintenance]) -> Table:
    def cell(value: float | None, share: bool = False) -> TableCell:
        return TableCell("–") if value is None else TableCell(percent(value) if share else number(value), value)

    near = f"Share of units then predicted within {percent(ALPHA)} of the truth."
    columns = [
        Column("Threshold", f"Lowest predicted life at which at most {percent(BEARABLE)} of the units break."),
        Column("Life given up", "Mean life left at this threshold."),
        *(Column(f"Accurate at {percent(m)} of life", near if m == MOMENTS[0] else "") for m in MOMENTS),
        Column(
            "Horizon",
            "Remaining life from which on half of the units are off by less than a tenth of their first one.",
        ),
    ]
    lines = []
    for j in rules:
        first = j.bearable or (None, None)
        cells = [*(cell(v) for v in first), *(cell(j.accuracy[m], True) for m in MOMENTS), cell(j.horizon)]
        lines.append(Line(j.entry.short_label, cells, run.palette.colour(j.entry.method)))
    return Table(f"Whole lives, {run.measured}, means over seeds.", "Method", columns, lines)


sections.add(ReportSection("decisions", 30, "When to maintain", build, lambda run: bool(run.trajectories)))
