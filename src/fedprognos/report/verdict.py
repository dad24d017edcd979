"""The answer in one sentence, for report and terminal alike: is training together worth it, and how sure is that?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedprognos.evaluation import AGREE, CLEAR, FEW_UNITS, Comparison, agreement, chance_of
from fedprognos.report.method_entries import Entry, points_of
from fedprognos.report.number_words import number, percent, plural
from fedprognos.report.run_data import RunData

FEW_FAILURES = 10
"""With five failures among a hundred engines of C-MAPSS predictions are 18 to 29 cycles off, with all of them 11. Two
owners with two engines each: their networks together are not clearly better than ridge, nor than boosting over all
four. With ten engines in all they are on FD001, with twenty on FD004, too (docs/results/few-machines.md)."""
OWNERS_NAMED = 3
"""So many owners that keep their own model are named in the answer; the report has a table of all."""
SAME = 0.01
"""Errors that differ by less are the same: an owner's linear model is the ridge baseline, but for rounding."""
INTERVAL_SLACK = 0.05
"""Intervals that hold so much less than they should are called too narrow."""


@dataclass(frozen=True)
class Answer:
    """The answer of one scenario: together against alone, what else there is, and what nobody may miss."""

    headline: str
    beside: str
    warnings: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it in a line, as the terminal shows it."""
        return " ".join(part for part in (self.headline, self.beside, *self.warnings) if part)


def answer(run: RunData) -> Answer:
    """Whether training together is worth it, by the error that tells methods apart."""
    r = run.roles
    parts = []
    if r.owners is not None and r.together is not None:
        parts.append(f"one model for all {_error(run, r.together)}")
    if r.central is not None and r.together is not None:
        parts.append(f"all data in one place {_error(run, r.central)}")
    if r.baseline is not None:
        parts.append(f"best baseline {_error(run, r.baseline)} ({r.baseline.short_label})")
    beside = "; ".join(parts)
    headline = " ".join([*_few_failures(run), _headline(run)])
    return Answer(headline, f"{beside[0].upper()}{beside[1:]}." if beside else "", tuple(_warnings(run)))


def _error(run: RunData, entry: Entry) -> str:
    return number(entry.mean(run.error))


def _headline(run: RunData) -> str:
    r, off = run.roles, f"{run.measure} off"
    if r.owners is not None and r.alone is not None:
        judged = _judged(run, compare(run, r.owners, r.alone))
        return f"Owners end with {_error(run, r.owners)} {off}, alone {_error(run, r.alone)}: {judged}."
    if r.owners is not None:
        return f"Owners end with {_error(run, r.owners)} {off}; no network was trained alone to compare that with."
    if r.together is not None and r.alone is not None:
        judged = _judged(run, compare(run, r.together, r.alone))
        return f"Together {_error(run, r.together)} {off}, alone {_error(run, r.alone)}: {judged}."
    if r.together is not None:
        return f"Together {_error(run, r.together)} {off}; nobody trained alone, so there is no comparison."
    if r.alone is not None and r.central is not None:
        both = f"All data in one place {_error(run, r.central)} {off}, alone {_error(run, r.alone)}"
        return f"{both}. Nothing was trained together."
    single = r.alone or r.central
    if single is None:
        return "No network was trained."
    return f"{'Alone' if single is r.alone else 'All data in one place'} {_error(run, single)} {off}."


def amount(comparison: Comparison) -> str:
    """The difference in words."""
    if comparison.same:
        return "the same error"
    return f"{percent(abs(comparison.change))} {'less' if comparison.change < 0 else 'more'} error"


def odds(comparison: Comparison) -> str:
    """How often chance alone gives such a difference, in words."""
    if comparison.few_units:
        return f"{plural(comparison.units, 'test unit')}: too few to say"
    if comparison.chance is None:
        return "how sure is unknown"
    if comparison.chance < CLEAR and comparison.agreeing < AGREE * comparison.seeds:
        return f"only {comparison.agreeing} of {comparison.seeds} seeds agree"
    share = "under 1\u00a0%" if comparison.chance < 0.01 else percent(comparison.chance)
    return f"by chance in {share} of cases"


def _judged(run: RunData, comparison: Comparison) -> str:
    if comparison.clear:
        verdict = "not worth it" if comparison.change > 0 else "better" if baseline_wins(run) else "worth it"
        return f"{verdict} ({amount(comparison)}; {odds(comparison)})"
    if comparison.chance is None or comparison.few_units:
        return f"{amount(comparison)} ({odds(comparison)})"
    return "no clear difference" + ("" if comparison.same else f" ({amount(comparison)}, which may be chance)")


def baseline_wins(run: RunData) -> bool:
    """Whether a baseline on a client's own data has a lower error than the federated model, or than every network.

    A baseline that needs all data in one place does not make federating pointless: nobody may run it.
    """
    r = run.roles
    return r.own_baseline is not None and _better_than_networks(run, r.own_baseline)


def _better_than_networks(run: RunData, baseline: Entry) -> bool:
    r = run.roles
    rivals = [r.result] if r.result is not None else [e for e in (r.alone, r.central) if e is not None]
    errors = [value for e in rivals if (value := e.mean(run.error)) is not None]
    reached = baseline.mean(run.error)
    return reached is not None and bool(errors) and reached < (1 - SAME) * min(errors)


def _warnings(run: RunData) -> list[str]:
    warnings = _own_models(run)
    r = run.roles
    if r.own_baseline is not None and baseline_wins(run):
        warnings.append(f"A simple baseline does better than the network: {r.own_baseline.short_label}.")
    elif r.baseline is not None and _better_than_networks(run, r.baseline):
        warnings.append(f"With all data in one place a simple baseline does better: {r.baseline.about.label}.")
    if r.together is not None and r.alone is not None and r.alone.n_test < r.together.n_test:
        warnings.append(
            f"Alone answered for {r.alone.n_test} of {r.together.n_test} test points; only these are compared."
        )
    if any(row.scored_on == "validation" for row in run.rows):
        warnings.append(
            "Some site has too few test units to report on. So errors are on what sites kept out of training. The "
            "round was chosen on the same data, so errors are a little too low."
        )
    if r.result is not None and r.alone is not None and (few := compare(run, r.result, r.alone)).few_units:
        warnings.append(
            f"{plural(few.units, 'test unit')} cannot show whether a difference is more than chance. Test on "
            f"{FEW_UNITS} or more (data.test_fraction, data.test_path)."
        )
    coverage, asked = intervals(run)
    if coverage is not None and coverage < asked - INTERVAL_SLACK:
        warnings.append(
            f"Intervals are too narrow: they hold {percent(coverage)} of the true values, not {percent(asked)}."
        )
    if collapsed := sum(row.collapsed for row in run.rows):
        warnings.append(f"{plural(collapsed, 'network')} collapsed to a constant; the table marks them.")
    return warnings


def _few_failures(run: RunData) -> list[str]:
    """With few machines that failed a model of remaining life cannot be trusted, whatever its error."""
    clients = (run.fleet or {}).get("clients", {})
    failures = sum(int(client["failed"]) for client in clients.values())
    if run.task != "rul" or not clients or failures >= FEW_FAILURES:
        return []
    return [
        f"Do not trust this model yet: it has seen {plural(failures, 'failure')}. Fewer than {FEW_FAILURES} say little "
        "about how machines fail. With four, our networks were not clearly better than ridge regression: compare the "
        "best baseline."
    ]


def _own_models(run: RunData) -> list[str]:
    """Owners that keep a model of their own, with both errors."""
    keep = [gain for gain in owner_gains(run) if gain.kind in ("alone", "linear")]
    named = [
        f"{gain.owner} keeps its own model: its error is {number(gain.end)}, that of the shared one "
        f"{number(gain.together)}."
        for gain in keep[:OWNERS_NAMED]
    ]
    more = len(keep) - len(named)
    return [*named, *([f"So {'does' if more == 1 else 'do'} {plural(more, 'more owner')}."] if more else [])]


@dataclass(frozen=True)
class OwnerGain:
    """What an owner chose, and the errors on its own test units: of what it ends with, of the shared model, alone."""

    owner: str
    kind: str
    share: float
    end: float | None
    together: float | None
    alone: float | None


def owner_gains(run: RunData) -> list[OwnerGain]:
    """Who gains and who does not; empty where owners did not choose."""
    r = run.roles
    if r.owners is None or r.together is None:
        return []
    parts = (r.owners, r.together, r.alone)
    gains = []
    for owner in run.clients:
        mine = {(e.method, e.head): e.mean(run.error) for e in run.entries.get(owner, ()) if e.honest}
        errors = [None if e is None else mine.get((e.method, e.head)) for e in parts]
        if owner in run.choices and errors[0] is not None:
            gains.append(OwnerGain(owner, *run.choices[owner], *errors))
    return gains


def intervals(run: RunData) -> tuple[float | None, float]:
    """The share of true values inside the published model's intervals, None without any, and the share asked for."""
    together = run.roles.together
    asked = float(run.results.config.get("evaluation", {}).get("coverage", 0.9))
    return together.mean("coverage") if together is not None else None, asked


def compare(run: RunData, first: Entry, second: Entry) -> Comparison:
    """The first entry's error against the second's, unit by unit."""
    a, b = first.mean(run.error), second.mean(run.error)
    change = 0.0 if a is None or not b else (a - b) / b
    by_seed = first.values(run.error), second.values(run.error)
    agreeing, seeds = agreement(*by_seed, change), min(map(len, by_seed))
    squares, other_squares = (_squares_by_unit(run, entry) for entry in (first, second))
    both = squares.index.intersection(other_squares.index)
    if not len(both):
        return Comparison(change, min(e.rows[0].n_units for e in (first, second)), None, agreeing, seeds)
    squares, other_squares = squares.loc[both], other_squares.loc[both]
    if first.n_test != second.n_test:  # one of them answered for a part of the test: compare on what both answered for
        mean, other_mean = (part["sum"].sum() / part["count"].sum() for part in (squares, other_squares))
        change = float(np.sqrt(mean / other_mean)) - 1 if other_mean else 0.0
    weight = squares["count"] / squares["count"].sum()
    gain = weight * (squares["sum"] / squares["count"] - other_squares["sum"] / other_squares["count"])
    return Comparison(change, len(both), chance_of(gain.to_numpy(np.float64)), agreeing, seeds)


def _squares_by_unit(run: RunData, entry: Entry) -> pd.DataFrame:
    """Sum and number of squared errors of every test unit, all seeds together."""
    points = points_of(run, entry)
    squared = (points["prediction"] - points["truth"].clip(upper=run.cap)) ** 2
    return squared.groupby([points["test_client"], points["unit"]], sort=True).agg(["sum", "count"])
