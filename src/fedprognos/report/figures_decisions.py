"""Pictures of decisions: breaks against life thrown away, and predictions in the alpha-lambda cone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedprognos.evaluation import Trajectories
from fedprognos.evaluation.decisions import ALPHA, ENOUGH
from fedprognos.report.choosing import shown
from fedprognos.report.judging import Judged, followed, models_of
from fedprognos.report.looks import Chip, Figure, Palette, Panel, Trace, axis, chips, hover, layout, line, thin, tidy
from fedprognos.report.material import Material, Setting, with_head

CONES = 6
LINE_POINTS = 110


def decision_figures(
    material: Material, setting: Setting, made: Sequence[Judged], palette: Palette, number: int
) -> list[Figure]:
    """Figures of one setting; none where no lives were kept."""
    if not made:
        return []
    return [_costs(material, setting, made, palette, number), _cones(material, setting, made, palette, number)]


def _costs(material: Material, setting: Setting, made: Sequence[Judged], palette: Palette, number: int) -> Figure:
    entries = [j.entry for j in made]
    visible = shown(entries, material.head)
    both: list[Trace] = []
    by_threshold: list[Trace] = []
    for j in made:
        e = j.entry
        common = {"meta": {"key": e.key}, "visible": e.key in visible, "dash": palette.dash(e)}
        share = 100 * j.breaks
        text = [f"{t:g}" for t in j.thresholds]
        told = "<br>maintained at %{text}: %{y}% break, %{x} thrown away"
        colour = palette.colour(e)
        both.append(line(j.unused, share, colour, text=text, hovertemplate=hover(e.short_label, told), **common))
        told = "<br>maintained at %{x}: %{y}% break"
        by_threshold.append(line(j.thresholds, share, colour, hovertemplate=hover(e.short_label, told), **common))
    y = axis("units that break, %", range=[0, 100])
    unused = axis(f"mean life thrown away, {material.measured}", rangemode="tozero")
    threshold = axis(f"threshold, {material.measured}", rangemode="tozero")
    panels = [
        Panel("Breaks against life thrown away", both, layout(unused, y), 330),
        Panel("Breaks by threshold", by_threshold, layout(threshold, y), 330),
    ]
    far = followed(setting)
    notes = []
    if far is not None and far.failed < far.units:
        notes.append(
            f"{far.failed} of the {far.units} test units were followed to their failure. The others count as long as "
            f"they were followed (product-limit estimate). To less than {far.least:g} {material.unit} of remaining "
            f"life fewer than {ENOUGH} were: whoever is not maintained by then counts as breaking, so breaks are upper "
            "bounds."
        )
    caption = (
        "A unit is maintained at the first prediction at or below a threshold. A low threshold lets units break, a "
        "high one throws life away: the nearer a curve is to the lower left corner, the better. Means over seeds."
    ) + with_head(material)
    return Figure(
        f"decisions{number}-costs",
        "Unexpected breaks and unused life",
        caption,
        [("", panels)],
        chips=chips(entries, palette, visible),
        notes=notes,
        grid="pairs",
    )


def _cones(material: Material, setting: Setting, made: Sequence[Judged], palette: Palette, number: int) -> Figure:
    """The units that were followed furthest, with the first seed's predictions."""
    entries = [j.entry for j in made]
    visible = shown(entries, material.head)
    tests = {one.test_client: one for one in setting.lives}
    units = [(name, k) for name, one in sorted(tests.items()) for k in np.unique(one.unit)]
    furthest = sorted(units, key=lambda pair: _left(tests[pair[0]], pair[1]))[:CONES]
    lives = {e.key: [one for group in models_of(setting, e) for one in group] for e in entries}
    seeds = {key: min((one.seed for one in found), default=0) for key, found in lives.items()}
    panels = []
    for name, k in furthest:
        test = tests[name]
        truth = test.truth[test.unit == k]
        kept = thin(len(truth), LINE_POINTS)
        over = 100 * (1 - truth / truth[0]) if truth[0] > 0 else np.zeros(len(truth))
        traces = _cone(over[kept], truth[kept])
        for e in entries:
            for one in lives[e.key]:
                if one.seed == seeds[e.key] and one.test_client == name:
                    told = hover(f"{e.short_label} ({one.train_clients})", "<br>%{y} at %{x}%")
                    said = one.prediction[one.unit == k][kept]
                    more = {"meta": {"key": e.key}, "visible": e.key in visible, "dash": palette.dash(e)}
                    traces.append(line(over[kept], said, palette.colour(e), hovertemplate=told, width=1.4, **more))
        top = 1.3 * min(float(truth[0]), material.cap or np.inf)
        title = test.unit_ids[k] if len(tests) == 1 else f"{name} · {test.unit_ids[k]}"
        y = axis("remaining life", range=[0, float(f"{top:.4g}")])
        panels.append(Panel(title, traces, layout(axis("share of life over, %", range=[0, 100]), y), 240))
    caption = (
        f"The {len(panels)} test units that were followed furthest, first seed. Grey: within {100 * ALPHA:.0f} % of "
        "the true remaining life. A life begins with the first prediction."
    ) + with_head(material)
    legend = [Chip("truth", "truth", "ink", "solid"), *chips(entries, palette, visible)]
    return Figure(f"decisions{number}-cones", "Alpha-lambda", caption, [("", panels)], chips=legend)


def _left(test: Trajectories, k: int) -> float:
    """Share of a unit's life that is left at its last point."""
    truth = test.truth[test.unit == k]
    return float(truth[-1] / truth[0]) if truth[0] > 0 else 1.0


def _cone(
    x: np.ndarray[tuple[int], np.dtype[np.float64]], truth: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> list[Trace]:
    area: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": tidy([*x, *x[::-1]]),
        "y": tidy([*((1 + ALPHA) * truth), *((1 - ALPHA) * truth)[::-1]]),
        "fill": "toself",
        "fillcolor": "band",
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
    told = hover("truth", "<br>%{y} at %{x}%")
    return [area, line(x, truth, "ink", width=2.2, hovertemplate=told, meta={"key": "truth"})]
