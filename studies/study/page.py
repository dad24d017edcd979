"""docs/study.md, from the JSON of its parts: tables, and sentences that follow the numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.markdown import table

Line = Mapping[str, Any]
ORDER = (
    "alone",
    "mean of predictions",
    "best single body",
    "coordinate average",
    "BBP-MAP",
    "absorb",
    "concat",
)
"""Methods as tables list them."""
SCENARIOS = {
    "lifespan-3": "3 clients by lifespan",
    "random-3": "3 clients at random",
    "lifespan-10": "10 clients by lifespan",
    "random-10": "10 clients at random",
    "lifespan-30": "30 clients by lifespan",
    "random-30": "30 clients at random",
    "random-100": "100 clients at random",
    "each-alone": "249 clients with one engine each",
}
RANDOM = {"random-3": 3, "random-10": 10, "random-30": 30, "random-100": 100, "each-alone": 249}
INTRODUCTION = """
Absorption puts the clients' networks side by side and keeps the neurons that the others do not predict
([how](matching.md#absorption-matching-by-what-neurons-put-out)). This page measures what that is worth, on C-MAPSS
FD004 with 249 training engines and the {engines} test engines that have at least 50 rows.

- Errors are RMSE on the test engines in cycles, labels capped at {cap:g}, over up to {seeds} seeds. A seed decides the
  first weights, the order of training, and who gets which engine where engines are dealt out at random.
- ± is the deviation from seed to seed; lines without it are of one seed. A difference is in percent of the RMSE it is
  compared with, and paired: the same engines, the same seeds. In brackets is its 95 % interval, with engines and seeds
  drawn again {resamples:,} times.
- Every client trains a {cell} of {width} neurons for {steps} steps (presets `study-clients` and `study-rounds`). That
  is fewer than `turbofan-life` takes, so errors are higher here. Heads are exact. Absorption takes `alpha` = 0.3 in
  parts 1 to 7; part 8 tells what trying several is worth. Nothing was chosen on test engines.
- Bytes are all messages of all clients, both ways, with training and head.

`python -m studies study` makes all numbers. It goes on where it was interrupted, the most important parts first, so
a part that is missing here was not measured yet.
"""


UNCLEAR = "A question mark stands where the 95 % interval holds zero: a difference is not shown."
TRIED = "tried.md"
"""Part 8 as it was written: what it measured is settled, and the code that measured it is gone."""


def page(folder: Path) -> str:
    """The page from the JSON files that there are."""
    contents = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))}
    lines = {name: content["lines"] for name, content in contents.items()}
    about = next(iter(contents.values()))["about"]
    first = lines.get("one-exchange", [])
    sections = {
        "In short": conclusions(lines),
        "1. One exchange, at every width": one_exchange(first),
        "2. Networks of different widths": different_widths(lines.get("different-widths", [])),
        "3. One round or many": rounds(lines.get("rounds", [])),
        "4. A client that joins late, or never": newcomers(lines.get("newcomers", [])),
        "5. Which clients help which": helped(lines.get("newcomers", [])),
        "6. More and more clients": many(first),
        "7. What each part of the recipe is worth": recipe(lines.get("recipe", [])),
        "8. What was tried to lose less": [path.read_text("utf-8")] if (path := folder / TRIED).is_file() else [],
    }
    introduction = INTRODUCTION.format(
        **{name: about[name] for name in ("cap", "engines", "seeds", "resamples")},
        cell=about["model"]["cell"].upper(),
        width=about["model"]["widths"][0],
        steps=about["train"]["steps"],
    )
    parts = ["# Study: absorption", introduction]
    for title, words in sections.items():
        parts += [f"## {title}", *words] if words else []
    return "\n\n".join(part.strip() for part in parts) + "\n"


def conclusions(lines: Mapping[str, Sequence[Line]]) -> list[str]:
    """One sentence a finding, with its sign; intervals of what is only listed stand in the tables below."""
    first = lines.get("one-exchange", [])
    sentences: list[str] = []
    others: dict[str, list[str]] = {"Best single body": [], "BBP-MAP": [], "Central": []}
    for scenario, label in SCENARIOS.items():
        here = [line for line in first if line["scenario"] == scenario]
        absorbed = nearest(here, "absorb", 96)
        if absorbed and "difference" in absorbed:
            sentences.append(
                f"- {label}: absorbing to {absorbed['width']:.0f} neurons {verdict(absorbed, 'keeping them all')}."
            )
        for method, shares in others.items():
            line = nearest(here, method if method == "BBP-MAP" else method.lower(), 96)
            if line and "difference" in line:
                shares.append(f"{listed(line)} ({label})")
    sentences += [
        f"- {method}, against keeping them all: {', '.join(shares)}." for method, shares in others.items() if shares
    ]
    courses = [line for line in _last_rounds(lines.get("rounds", [])) if line["method"] != "Absorb, one exchange"]
    left_out = [
        line
        for line in lines.get("recipe", [])
        if line["method"] == "absorb" and line.get("change") not in (None, "as it is")
    ]
    for words, some, name in (
        ("Rounds, against absorption in one exchange", courses, "method"),
        ("The recipe otherwise, against absorption with the recipe as it is", left_out, "change"),
    ):
        if some:
            shares = [f"{line[name]} {listed(line)}" for line in some]
            sentences.append(f"- {words}: {'; '.join(shares)}.")
    return ["\n".join(sentences), UNCLEAR] if sentences else []


def one_exchange(lines: Sequence[Line]) -> list[str]:
    """A table a scenario."""
    if not lines:
        return []
    parts = [
        "What can be made of the same bodies, trained once. Differences are to `concat`, which keeps every neuron. "
        "Central training sees the same engines however these are dealt, so it was run once."
    ]
    central = [line for line in lines if line["part"] in ("central", "reservoir")]
    for scenario, label in SCENARIOS.items():
        here = [line for line in lines if line["scenario"] == scenario and line["part"] == "one exchange"]
        if here:
            more = central
            if scenario != "lifespan-3":  # differences are paired with the concat of that scenario
                others = [line for line in central if line["part"] == "central"]
                more = [{k: v for k, v in line.items() if k != "difference"} for line in others]
            parts += [f"### {label}", models_table(sorted(here, key=order) + more)]
    return parts


def different_widths(lines: Sequence[Line]) -> list[str]:
    """Clients bring 32, 64 and 96 neurons."""
    if not lines:
        return []
    parts = ["Three clients import networks of 32, 64 and 96 neurons, made independently. Averages cannot use them."]
    for scenario, label in SCENARIOS.items():
        if here := [line for line in lines if line["scenario"] == scenario]:
            parts += [f"### {label}", models_table(sorted(here, key=order))]
    return parts


def _last_rounds(lines: Sequence[Line]) -> list[Line]:
    last: dict[str, Line] = {}
    for line in lines:
        if line["method"] not in last or line["round"] > last[line["method"]]["round"]:
            last[line["method"]] = line
    return list(last.values())


def rounds(lines: Sequence[Line]) -> list[str]:
    """The last round of every course, and how it came there."""
    last = _last_rounds(lines)
    if not last:
        return []
    header = ("course", "width", "MB moved", "RMSE after the last round", "difference to one exchange")
    rows = [
        (line["method"], number(line["width"], 0), number(line["bytes"] / 1e6, 1), error(line), difference(line))
        for line in last
    ]
    steps = []
    for name in (line["method"] for line in last):
        course = sorted((line for line in lines if line["method"] == name), key=lambda line: line["round"])
        steps.append((name, ", ".join(f"{line['rmse']:.1f} ({line['bytes'] / 1e6:.1f})" for line in course)))
    return [
        "Three clients by lifespan. Courses take about the same local work, 300 gradient steps or 36 epochs; the two "
        "that say so take 450 steps. The last round counts, because nothing may be chosen on the test.",
        table(header, rows),
        "Round by round, RMSE (MB moved so far), to be compared at equal bytes:",
        table(("course", "RMSE (MB)"), steps, 2),
    ]


def newcomers(lines: Sequence[Line]) -> list[str]:
    """Errors on the newcomer's own kind."""
    own = [line for line in lines if line["method"] != "without"]
    if not own:
        return []
    shares = sorted({line["share"] for line in own})
    parts = [
        "Three clients by lifespan. Each in turn joins the two others with the first of its engines. Errors are those "
        "on test engines of its own kind. *Alone* is its own network. *Head only* keeps the others' body, and its sums "
        "join the head. *Joined* absorbs its body as well. Differences are to never having taken part."
    ]
    for name in dict.fromkeys(line["newcomer"] for line in own):
        mine = {(line["method"], line["share"]): line for line in own if line["newcomer"] == name}
        rows = []
        for share in shares:
            cells = [mine.get((method, share)) for method in ("others", "alone", "head only", "joined")]
            texts = ["" if line is None else f"{error(line)} {difference(line)}".strip() for line in cells]
            rows.append((f"{100 * share:.0f} %", *texts))
        engines = next(iter(mine.values()))["engines"]
        parts += [
            f"### {name} ({engines} test engines of that kind)",
            table(("its engines", "never took part", "alone", "head only", "joined"), rows),
        ]
    return parts


def helped(lines: Sequence[Line]) -> list[str]:
    """The rise of the error on every kind of engine when a client is left out."""
    without = [line for line in lines if line["method"] == "without"]
    if not without:
        return []
    kinds = list(dict.fromkeys(line["kind"] for line in without))
    rows = []
    for name in dict.fromkeys(line["newcomer"] for line in without):
        mine = {line["kind"]: line for line in without if line["newcomer"] == name}
        rows.append((name, *(difference(mine[kind]) for kind in kinds)))
    header = ("left out", *(kind or "all engines" for kind in kinds))
    return [
        "The federation without one client beside that of everybody: the change of the error on each kind of engine.",
        table(header, rows),
    ]


def many(lines: Sequence[Line]) -> list[str]:
    """One line a number of clients."""
    rows = []
    for scenario, clients in RANDOM.items():
        here = [line for line in lines if line["scenario"] == scenario and line["part"] == "one exchange"]
        pick, small = {line["method"]: line for line in here}, nearest(here, "absorb", 96)
        if small is None:
            continue
        alone, mean = pick.get("alone"), pick["mean of predictions"]
        chosen = [mean, pick.get("best single body"), small, nearest(here, "absorb", 256), pick.get("concat")]
        own = number(mean["alone"] if alone is None else alone["rmse"], 2)
        errors = ("" if line is None else error(line) for line in chosen)
        rows.append((str(clients), own, *errors, number(small["bytes"] / 1e6 / clients, 1)))
    header = ("clients", "alone", "mean of predictions", "best body", "absorb to 96", "to 256", "concat", "MB a client")
    words = (
        "Engines dealt out at random. *Alone* is what a client reaches by itself, mean over clients. They went in "
        "groups of up to 512 neurons, each judged on its own members' rows: no message grows with their number, and "
        "what is moved for a client grows with the levels of groups only. Numbers of 249 clients are of two seeds, "
        "and of a time when the last two groups were kept at 128 neurons each. Today groups hold four networks and "
        "messages are smaller: `python benchmarks/absorb_bytes.py` counts them."
    )
    return [words, table(header, rows)] if rows else []


def recipe(lines: Sequence[Line]) -> list[str]:
    """One line a change, one column a method."""
    if not lines:
        return []
    methods = ("best single body", "concat", "absorb")
    rows = []
    for change in dict.fromkeys(line["change"] for line in lines if line["part"] == "recipe"):
        mine = {line["method"]: line for line in lines if line.get("change") == change}
        rows.append(
            (change, *(f"{error(mine[m])} {difference(mine[m])}".strip() if m in mine else "" for m in methods))
        )
    extra = [(line["method"], error(line), difference(line)) for line in lines if line["part"] == "beside"]
    parts = [
        "Three clients by lifespan; one thing of the recipe left out at a time. Differences are to the recipe as it is."
    ]
    parts.append(table(("recipe", *methods), rows))
    if extra:
        parts += ["What the head sees beside the absorbed network:", table(("head", "RMSE", "difference"), extra)]
    equal = [
        (o["method"], error(o), f"{o['central']:.2f}", difference(o)) for o in lines if o["part"] == "beside central"
    ]
    if equal:
        header = ("head", "RMSE", "central training with the same", "difference to it")
        parts += ["Against central training whose head sees the same:", table(header, equal)]
    return parts


def verdict(line: Line, what: str) -> str:
    """Whether a line is better or worse than what it is compared with, or neither."""
    if "difference" not in line:
        return f"has an error of {line['rmse']:.1f}"
    middle, low, high = line["difference"]
    how = "is better than" if high < 0 else "is worse than" if low > 0 else "is not clearly different from"
    return f"{how} {what} ({percent(middle)}, {percent(low)} to {percent(high)})"


def listed(line: Line) -> str:
    """The difference without its interval, which says at least whether it is clear."""
    middle, low, high = line["difference"]
    return percent(middle) + ("?" if low <= 0 <= high else "")


def percent(value: float) -> str:
    """A signed share."""
    return f"{value:+.1f} %".replace("-", "−")


def nearest(lines: Sequence[Line], method: str, width: float) -> Line | None:
    """The line of a method whose width is nearest to the one wanted."""
    candidates = [line for line in lines if line["method"] == method]
    return min(candidates, key=lambda line: abs(line["width"] - width), default=None)


def order(line: Line) -> tuple[int, float]:
    """Place in a table."""
    method = line["method"]
    return (ORDER.index(method) if method in ORDER else len(ORDER), line.get("width", 0.0))


def models_table(lines: Sequence[Line]) -> str:
    """Models with what they cost and reach."""
    header = ("method", "width", "parameters", "MB moved", "RMSE", "raw", "difference")
    rows = [
        (
            line["method"],
            number(line.get("width"), 0),
            number(line.get("parameters"), 0),
            number(line["bytes"] / 1e6 if "bytes" in line else None, 1),
            error(line),
            f"{line['rmse_raw']:.1f}",
            difference(line),
        )
        for line in lines
    ]
    return table(header, rows)


def number(value: float | None, digits: int) -> str:
    """So many decimals, thousands apart; nothing where there is none."""
    return "" if value is None else f"{value:,.{digits}f}"


def error(line: Line) -> str:
    """RMSE and its deviation from seed to seed."""
    return f"{line['rmse']:.2f}" + ("" if line.get("spread") is None else f" ± {line['spread']:.2f}")


def difference(line: Line) -> str:
    """The paired difference and its interval; nothing where a line is compared with itself."""
    if "difference" not in line or line["difference"][1] == line["difference"][2] == 0:
        return ""
    middle, low, high = line["difference"]
    return f"{percent(middle)} ({percent(low)} to {percent(high)})"
