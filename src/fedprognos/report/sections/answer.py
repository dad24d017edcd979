"""The first screen: is training together worth it, in one sentence and a few large numbers."""

from __future__ import annotations

from fedprognos.evaluation import AGREE, CLEAR, EVERYONE, Comparison
from fedprognos.report.method_entries import PRIVATE, best, best_owner, comparable
from fedprognos.report.number_words import listed, number, percent, plural
from fedprognos.report.page_elements import Card, Column, Line, Section, Table, TableCell
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.verdict import INTERVAL_SLACK, amount, answer, compare, intervals, odds

COLUMNS = (
    Column("Error"),
    Column("Together has"),
    Column(
        "By chance",
        "How often chance alone makes so large a difference (permutation test, paired by test unit). Clear: below "
        f"{percent(CLEAR)}, and {percent(AGREE)} of the seeds agree.",
    ),
    Column("Seeds that agree"),
)

WIDE = 6.0
"""Intervals wider than this many mean errors get an explanation. Within 3.3 of them lie 90 % of a bell curve."""


def build(run: RunData) -> Section:
    """The answer, the large numbers, and behind a click how sure all this is."""
    conclusion = answer(run)
    capped = "" if run.cap is None else f", labels capped at {run.cap:g} {run.measure}"
    units = plural(max(row.n_units for row in run.rows), "test unit")
    of = f" of {run.forecast}" if run.forecast else ""
    what = f"Root mean squared error{of} on {units} of {plural(len(run.clients), 'client')}{capped}. Lower is better."
    words, sure = [what, *_intervals(run)], [_certainty(run)]
    return Section("In short", conclusion.headline, _cards(run), conclusion.warnings, words, parts=sure)


def _cards(run: RunData) -> list[Card]:
    r = run.roles
    parts = (
        ("What owners end with", r.owners, "each chose for its own machines"),
        ("Together", r.together, r.together.label if r.together else ""),
        ("Alone", r.alone, _alone_detail(run)),
        ("All data in one place", r.central, _central_detail(run)),
        ("Best baseline", r.baseline, r.baseline.short_label if r.baseline else ""),
    )
    rows = [(role, e, text, e.mean(run.error) or 0.0) for role, e, text in parts if e is not None]
    longest = max((value for *_, value in rows), default=0.0) or 1.0
    return [
        Card(role, number(value), run.measure, text, run.palette.colour(e.method), value / longest)
        for role, e, text, value in rows
    ]


def _central_detail(run: RunData) -> str:
    """What central training stands for, and what an ensemble as large as all clients' networks reaches."""
    larger = best([e for e in run.entries[EVERYONE] if e.method == "ensemble" and e.honest], run.error)
    reached = (
        "" if larger is None else f"; an ensemble of as many networks as clients: {number(larger.mean(run.error))}"
    )
    return f"what sharing everything would give{reached}"


def _alone_detail(run: RunData) -> str:
    """Who is behind the number of "alone": all clients, the best one by name, and the head where it is another one."""
    alone = run.roles.alone
    leader = None if alone is None else best_owner(run, alone)
    head = "" if alone is None or alone.head in (None, run.head) else f", {alone.head} head"
    return f"each client for itself{head}" + ("" if leader is None else f"; best: {leader[0]}, {number(leader[1])}")


def _intervals(run: RunData) -> list[str]:
    """What intervals hold, unless they are too narrow: a warning says so already."""
    coverage, asked = intervals(run)
    if coverage is None:
        return ["No intervals: the model was not calibrated, so it cannot say how far off a prediction may be."]
    held = f"Its intervals should hold {percent(asked)} of the true values; on the test they hold {percent(coverage)}"
    if run.roles.together is not None and (width := run.roles.together.mean("interval_width")) is not None:
        held += f" and are {number(width)} {run.measure} wide on average"
        error = run.roles.together.mean(run.error)
        if error is not None and width > WIDE * error:
            times = f"{width / error:.0f} times the error"
            held += f", {times}: some predictions are far off, and intervals must hold these as well"
    return [] if coverage < asked - INTERVAL_SLACK else [f"{held}."]


def _certainty(run: RunData) -> Section:
    r = run.roles
    words, lines = [], []
    shown = r.together or r.central or r.alone or r.baseline
    if shown is not None:
        seeds, bounds = shown.seeds, shown.intervals.get(run.error)
        words.append(
            f"Errors are means of {seeds} seeds."
            if seeds > 1
            else "There is a single seed, so nobody knows how much the error varies from training to training."
        )
        if bounds is not None:
            words[0] += (
                f" 95 % interval for other test units: {number(bounds[0])} to {number(bounds[1])} {run.measure}."
            )
    rivals = {"alone": r.alone, "all data in one place": r.central, "mean of the clients’ own predictions": r.ensemble}
    for role, e in {**rivals, "best baseline": r.baseline}.items():
        if e is not None and r.result is not None:
            comparison, error = compare(run, r.result, e), e.mean(run.error)
            agree = TableCell(f"{comparison.agreeing} of {comparison.seeds}", comparison.agreeing)
            cells = [
                TableCell(number(error), error),
                TableCell(amount(comparison) + _doubt(comparison), comparison.change),
                TableCell(odds(comparison).removeprefix("by chance in ").removesuffix(" of cases"), comparison.chance),
                agree,
            ]
            lines.append(Line(role, cells, run.palette.colour(e.method), e.label if e.is_baseline else ""))
    table = Table("The published model against everything simpler.", "Against", COLUMNS, lines)
    words += [*_chosen(run), *_rivals(run), *_other_heads(run), *_beyond_cap(run)]
    return Section("How sure is this?", words=words, tables=[table] if lines else [], folded=True)


def _doubt(comparison: Comparison) -> str:
    """What is said beside a difference that nobody can tell from chance."""
    return "" if comparison.clear or comparison.same else ", may be chance"


def _chosen(run: RunData) -> list[str]:
    """Why this model is the published one, and what it does not tell."""
    chosen, reason = run.roles.together, run.results.reason
    words = [f"{chosen.label} is the published model: {reason}."] if chosen is not None and reason else []
    return [*words, *run.limits]


def _rivals(run: RunData) -> list[str]:
    """The published model was not chosen by its test error; say who would have won."""
    same = [e for e in comparable(run.entries[EVERYONE]) if e.is_federated and e.head == run.head]
    winner = best(same, run.error)
    if winner is None or len(same) < 2:
        return []
    reached = number(winner.mean(run.error))
    return [f"Of {len(same)} federated methods {winner.about.label} has the lowest test error: {reached}."]


def _other_heads(run: RunData) -> list[str]:
    """The same comparison with the other heads, in one sentence each."""
    sentences = []
    for head in run.heads[1:]:
        same = [e for e in comparable(run.entries[EVERYONE]) if e.head == head]
        leader = best([e for e in same if e.is_federated], run.error)
        if leader is not None:
            others = [f"{e.about.label} {number(e.mean(run.error))}" for e in same if not e.is_federated]
            kind = PRIVATE.get(head, f"the {head} head")
            beside = f" ({listed(others)})" if others else ""
            sentences.append(f"With {kind} {leader.about.label} is best: {number(leader.mean(run.error))}{beside}.")
    return sentences


def _beyond_cap(run: RunData) -> list[str]:
    """Why errors are taken against capped labels."""
    scored = run.predictions[run.predictions["scored"].astype(bool)]
    beyond = 0.0 if run.cap is None or not len(scored) else float((scored["truth"] > run.cap).mean())
    if beyond < 0.05:
        return []
    return [
        f"{percent(beyond)} of the test points have more life left than the cap, which no prediction exceeds. So "
        "labels are capped, too."
    ]


sections.add(ReportSection("answer", 10, "In short", build))
