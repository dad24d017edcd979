"""The fleet: what each client has, lifespans, sensors over life, discharges, fade, and what was odd in the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.report.number_words import measured_in, not_drawn, plural, whole
from fedprognos.report.page_elements import Chip, Column, Figure, Line, Panel, Section, Table, TableCell, Trace
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import SHADES, axis, client_colours, dots, hover, layout, line, plain, thin

CLIENTS_DRAWN = 12
CHANNELS_DRAWN = 6
POINTS = 140
WINDOW = 15
"""Points of a running mean."""
Fleet = Mapping[str, Any]


def build(run: RunData) -> Section:
    """The clients in numbers, and pictures of their units."""
    fleet = run.fleet or {}
    units, tested = (sum(f["units"] for f in fleet[part].values()) for part in ("clients", "tests"))
    lead = (
        f"{plural(len(fleet['clients']), 'client')}, {plural(units, 'training unit')}, {plural(tested, 'test unit')}."
    )
    return Section("The fleet", lead, tables=[_clients(fleet)], figures=fleet_figures(fleet), folded=True)


def _clients(fleet: Fleet) -> Table:
    """Sizes and lifespans of every client's fleet; a cell's life goes on through its test cycles."""
    soh = fleet["schema"]["task"] == "soh"
    spans = ["Fewest cycles", "Median", "Most"] if soh else ["Shortest life", "Median", "Longest"]
    titles = ["Units", "At end of life" if soh else "Failed", *spans, "Training rows", "Test units", "Test rows"]
    lines, colours = [], client_colours(fleet["clients"])
    for client, training in fleet["clients"].items():
        test = fleet["tests"].get(client, {})
        whole_life = test if soh and test else training
        lives = np.array(whole_life["lifespans"], dtype=float)
        three = [lives.min(), np.median(lives), lives.max()] if lives.size else [None] * 3
        tested = [test.get("units"), test.get("rows")]
        numbers = [training["units"], whole_life["failed"], *three, training["rows"], *tested]
        lines.append(Line(client, [_count(n) for n in numbers], colours[client]))
    if set(fleet["tests"]) == {"all"} and "all" not in fleet["clients"]:
        test = fleet["tests"]["all"]
        lines.append(Line("common test", [*[TableCell("–")] * 6, _count(test["units"]), _count(test["rows"])]))
    return Table("What each client has.", "Client", [Column(title) for title in titles], lines)


def _count(value: float | None) -> TableCell:
    return TableCell("–") if value is None else TableCell(whole(value), float(value))


def fleet_figures(fleet: Fleet) -> list[Figure]:
    """All figures of one scenario's fleet."""
    soh = fleet["schema"]["task"] == "soh"
    makers = (_lifespans, _fade, _discharges) if soh else (_lifespans, _sensors)
    return [figure for make in makers if (figure := make(fleet)) is not None]


def _by_client(items: Sequence[Fleet], most: int = CLIENTS_DRAWN) -> tuple[dict[str, list[Fleet]], list[str]]:
    """Items a client, for the clients drawn, and a note about the others."""
    grouped: dict[str, list[Fleet]] = {}
    for item in items:
        grouped.setdefault(item["client"], []).append(item)
    return dict(list(grouped.items())[:most]), not_drawn(len(grouped) - most, "client")


def _lifespans(fleet: Fleet) -> Figure | None:
    """A row of dots a client, its median as a bar; nothing where the table says it all."""
    soh = fleet["schema"]["task"] == "soh"
    source = fleet["tests"] if soh and set(fleet["tests"]) == set(fleet["clients"]) else fleet["clients"]
    lives = {client: [v for v in facts["lifespans"] if np.isfinite(v)] for client, facts in source.items()}
    lives = {client: values for client, values in lives.items() if values}
    if max(map(len, lives.values()), default=0) < 2:
        return None
    measure, names, colours = "cycles" if soh else fleet["schema"]["time_measure"], list(lives), client_colours(lives)
    traces, random = [], np.random.default_rng(0)
    for k, (name, values) in enumerate(lives.items()):
        spread = k + random.uniform(-0.18, 0.18, len(values))
        tip = hover(name, f": %{{x}} {plain(measure)}")
        traces.append(dots(values, spread, {"color": colours[name], "size": 8, "opacity": 0.65}, hovertemplate=tip))
        middle, tip = float(np.median(values)), hover(name, ": median %{x}")
        traces.append(line([middle] * 2, [k - 0.3, k + 0.3], "ink", width=2, hovertemplate=tip))
    censored = sum(f["units"] - f["failed"] for f in source.values())
    caption = f"{'Cycles observed' if soh else 'Length of life'} of every unit, in {measure}; the bar is the median."
    caption += f" {censored} were stopped before they failed." if censored and not soh else ""
    ticks: dict[str, Any] = {"tickvals": list(range(len(names))), "ticktext": [plain(n) for n in names]}
    y = axis(range=[len(names) - 0.5, -0.5], zeroline=False, **ticks)
    panel = Panel("", traces, layout(axis(measure), y), 90 + max(26, 40 - len(names)) * len(names))
    return Figure("lifespans", "Lifespans", caption, [("", [panel])], grid="wide")


def _channels(
    grouped: Mapping[str, Sequence[Fleet]],
    channels: Sequence[str],
    draw: Callable[[Fleet, str, int], list[Trace]],
    x: str,
) -> list[tuple[str, list[Panel]]]:
    """A choice a client, a panel a channel."""
    return [
        (
            client,
            [
                Panel(c, [t for k, item in enumerate(items) for t in draw(item, c, k)], layout(axis(x), axis()), 200)
                for c in channels
            ],
        )
        for client, items in grouped.items()
    ]


def _sensors(fleet: Fleet) -> Figure | None:
    """A short-lived, a middling and a long-lived unit of each client, raw and as a running mean."""
    series = [s for s in fleet.get("series", []) if len(s["position"]) > 1]
    if not series:
        return None
    failed = all(f["failed"] == f["units"] for f in fleet["clients"].values())
    grouped, notes = _by_client(series)
    channels = _moving(series, CHANNELS_DRAWN)
    if len(series[0]["channels"]) > len(channels):
        notes.insert(0, f"Shown are the {len(channels)} of {len(series[0]['channels'])} sensors that move most.")

    def draw(unit: Fleet, channel: str, k: int) -> list[Trace]:
        x, y = np.array(unit["position"], dtype=float), np.array(unit["channels"][channel], dtype=float)
        x, kept = x - x[-1] if failed else x, thin(len(x), POINTS)
        tip = {"hovertemplate": hover(unit["unit"], ": %{y} at %{x}"), "key": f"u{k}"}
        shade = SHADES[min(2 * k, 5)]
        raw = line(x[kept], y[kept], shade, width=0.8, opacity=0.3, **tip)
        return [raw, line(x[kept], _smooth(y)[kept], shade, **tip)]

    measure = fleet["schema"]["time_measure"]
    choices = _channels(grouped, channels, draw, f"{measure} before failure" if failed else measure)
    caption = "As the network sees them, scaled within each operating condition; thick: running mean."
    names = ("short-lived", "middling", "long-lived")
    several = max(map(len, grouped.values())) == len(names)
    chips = [Chip(f"u{k}", name, SHADES[2 * k]) for k, name in enumerate(names)] if several else []
    return Figure("series", "Sensors over life", caption, choices, "client", chips, notes)


def _smooth(values: FloatArray) -> FloatArray:
    padded = np.pad(values, WINDOW // 2, mode="edge")
    return np.convolve(padded, np.full(WINDOW, 1 / WINDOW), mode="valid")


def _moving(series: Sequence[Fleet], most: int) -> list[str]:
    """The channels whose last tenth of life differs most from the first, in their own order."""
    strength = dict.fromkeys(series[0]["channels"], 0.0)
    for s in series:
        for channel in strength:
            v = np.array(s["channels"][channel], dtype=float)
            tenth = max(1, len(v) // 10)
            strength[channel] += abs(float(v[-tenth:].mean() - v[:tenth].mean()))
    chosen = sorted(strength, key=lambda channel: -strength[channel])[:most]
    return [channel for channel in strength if channel in chosen]


def _fade(fleet: Fleet) -> Figure | None:
    grouped, notes = _by_client(fleet.get("degradation", []), 9)
    schema, values = fleet["schema"], [v for d in fleet.get("degradation", []) for v in d["value"]]
    if not values:
        return None
    pad = 0.06 * (max(values) - min(values)) or 0.1
    y = axis(
        f"{schema['target']} {measured_in(schema['target_measure'])}", range=[min(values) - pad, max(values) + pad]
    )
    panels = []
    for client, parts in grouped.items():
        traces = []
        for d in parts:
            tip = hover(f"{d['unit']}, {d['part']}", ": %{y} at cycle %{x}")
            colour, width = ("accent", 2.2) if d["part"] == "test" else ("ink", 1.3)
            traces.append(line(d["position"], d["value"], colour, width=width, hovertemplate=tip, key=d["part"]))
        title = f"{client} · {plural(len({d['unit'] for d in parts}), 'unit')}"
        panels.append(Panel(title, traces, layout(axis("cycle"), y), 220))
    caption = f"Measured {schema['target']} of every unit: what was trained on, what was kept for the test."
    chips = [Chip("train", "training", "ink"), Chip("test", "test", "accent")]
    return Figure("fade", "Fade", caption, [("", panels)], chips=chips, notes=notes)


def _discharges(fleet: Fleet) -> Figure | None:
    grouped, notes = _by_client(fleet.get("cycles", []))
    if not grouped:
        return None

    def draw(cycle: Fleet, channel: str, k: int) -> list[Trace]:
        kept = thin(len(cycle["time"]), POINTS)
        x, y = (np.array(v, dtype=float)[kept] for v in (cycle["time"], cycle["channels"][channel]))
        tip = hover(f"cycle {cycle['cycle']}", ": %{y} at %{x}")
        return [line(x, y, SHADES[min(k, len(SHADES) - 1)], hovertemplate=tip, width=1.6)]

    named = {
        f"{client}, unit {shown[0]['unit']}, cycles {', '.join(str(c['cycle']) for c in shown)}": shown
        for client, shown in grouped.items()
    }
    choices = _channels(named, list(next(iter(named.values()))[0]["channels"]), draw, fleet["schema"]["time"])
    which = f" ({choices[0][0]})" if len(choices) == 1 else ""
    caption = f"One unit a client{which}, from early in life (pale) to the end of training (strong)."
    return Figure("discharges", "Cycles", caption, choices, "client", notes=notes)


sections.add(ReportSection("fleet", 60, "The fleet", build, lambda run: run.fleet is not None))


def build_remarks(run: RunData) -> Section:
    """One sentence for each finding."""
    notes = (run.fleet or {})["notes"]
    lead = f"{plural(len(notes), 'remark')} on the data, to be read before you trust the numbers."
    return Section("The data", lead, words=[f"{note[0].upper()}{note[1:]}." for note in notes], folded=True)


sections.add(
    ReportSection("quality", 58, "The data", build_remarks, lambda run: bool((run.fleet or {}).get("notes")), once=True)
)
