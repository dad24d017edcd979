"""The answer in one sentence, for report and terminal alike: is training together worth it, and how sure is that?

Two entries are compared unit by unit. If both were equally good, each test unit's difference of squared errors (mean
over seeds) could as well have the other sign; how often random signs give a sum at least as far from zero is the
chance of the difference found. Points of one unit rise and fall together, so units are what counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.report.entries import Entry, points_of
from fedprognos.report.run_data import RunData
from fedprognos.report.words import number, percent, plural

FLIPS = 9999
EXACT = 13
"""With up to so many units all signs are tried."""
FEW_UNITS = 6
"""With fewer test units even all of them agreeing may be chance."""
CLEAR = 0.05
AGREE = 0.75
"""Share of seeds that must agree for a difference to be clear."""
SLACK = 0.05
"""Intervals that hold so much less than they should are called too narrow."""
SAME = 0.005
"""Errors that differ by less than this share are called equal."""


@dataclass(frozen=True)
class Comparison:
    """How one entry's error compares with another's.

    Parameters
    ----------
    change
        By what share the first error exceeds the second.
    units, chance
        Test units compared, and how likely such a difference is by chance; None where points are missing.
    agreeing, seeds
        In how many seeds of how many the difference has the same direction.
    """

    change: float
    units: int
    chance: float | None
    agreeing: int
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether it is more than chance."""
        sure = self.chance is not None and self.chance < CLEAR and self.agreeing >= AGREE * self.seeds
        return sure and self.units >= FEW_UNITS and not self.same

    @property
    def same(self) -> bool:
        """Whether there is hardly a difference at all."""
        return abs(self.change) < SAME

    @property
    def amount(self) -> str:
        """The difference in words."""
        if self.same:
            return "the same error"
        return f"{percent(abs(self.change))} {'less' if self.change < 0 else 'more'} error"

    @property
    def odds(self) -> str:
        """The chance in words."""
        if self.units < FEW_UNITS:
            return f"{plural(self.units, 'test unit')}: too few to say"
        if self.chance is None:
            return "how sure is unknown"
        if self.chance < CLEAR and self.agreeing < AGREE * self.seeds:
            return f"only {self.agreeing} of {self.seeds} seeds agree"
        return "chance under 1\u00a0%" if self.chance < 0.01 else f"chance {percent(self.chance)}"


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
    if r.central is not None and r.together is not None:
        parts.append(f"all data in one place {_error(run, r.central)}")
    if r.baseline is not None:
        parts.append(f"best baseline {_error(run, r.baseline)} ({r.baseline.short_label})")
    beside = "; ".join(parts)
    return Answer(_headline(run), f"{beside[0].upper()}{beside[1:]}." if beside else "", tuple(_warnings(run)))


def _error(run: RunData, entry: Entry) -> str:
    return number(entry.mean(run.error))


def _headline(run: RunData) -> str:
    r, off = run.roles, f"{run.measure} off"
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


def _judged(run: RunData, found: Comparison) -> str:
    if found.clear:
        verdict = "not worth it" if found.change > 0 else "better" if baseline_wins(run) else "worth it"
        return f"{verdict} ({found.amount}; {found.odds})"
    if found.chance is None or found.units < FEW_UNITS:
        return f"{found.amount} ({found.odds})"
    return "no clear difference" + ("" if found.same else f" ({found.amount}, which may be chance)")


def baseline_wins(run: RunData) -> bool:
    """Whether a baseline has a lower error than the federated model, or than every network where there is none."""
    r = run.roles
    rivals = [r.together] if r.together is not None else [e for e in (r.alone, r.central) if e is not None]
    errors = [value for e in rivals if (value := e.mean(run.error)) is not None]
    reached = r.baseline.mean(run.error) if r.baseline is not None else None
    return reached is not None and bool(errors) and reached < min(errors)


def _warnings(run: RunData) -> list[str]:
    found = []
    if baseline_wins(run) and run.roles.baseline is not None:
        found.append(f"A simple baseline does better than the network: {run.roles.baseline.short_label}.")
    r = run.roles
    if r.together is not None and r.alone is not None and r.alone.n_test < r.together.n_test:
        found.append(
            f"Alone answered for {r.alone.n_test} of {r.together.n_test} test points; only these are compared."
        )
    if any(row.scored_on == "validation" for row in run.rows):
        found.append(
            "Errors are on what sites kept out of training, because some site has too few test units to report on. "
            "The round was chosen on the same data, which flatters a little."
        )
    coverage, asked = intervals(run)
    if coverage is not None and coverage < asked - SLACK:
        found.append(
            f"Intervals are too narrow: they hold {percent(coverage)} of the true values, not {percent(asked)}."
        )
    if collapsed := sum(row.collapsed for row in run.rows):
        found.append(f"{plural(collapsed, 'network')} collapsed to a constant; the table marks them.")
    return found


def intervals(run: RunData) -> tuple[float | None, float]:
    """The share of true values inside the published model's intervals, None without any, and the share asked for."""
    together = run.roles.together
    asked = float(run.results.config.get("evaluation", {}).get("coverage", 0.9))
    return together.mean("coverage") if together is not None else None, asked


def compare(run: RunData, first: Entry, second: Entry) -> Comparison:
    """The first entry's error against the second's, unit by unit."""
    a, b = first.mean(run.error), second.mean(run.error)
    change = 0.0 if a is None or not b else (a - b) / b
    pairs = zip(first.values(run.error), second.values(run.error), strict=False)
    agree = [bool(x < y) == (change < 0) for x, y in pairs]
    one, other = (_by_unit(run, entry) for entry in (first, second))
    both = one.index.intersection(other.index)
    if not len(both):
        return Comparison(change, min(e.rows[0].n_units for e in (first, second)), None, sum(agree), len(agree))
    one, other = one.loc[both], other.loc[both]
    if first.n_test != second.n_test:  # one of them answered for a part of the test: compare on what both answered for
        mean_squares = [part["sum"].sum() / part["count"].sum() for part in (one, other)]
        change = float(np.sqrt(mean_squares[0] / mean_squares[1])) - 1 if mean_squares[1] else 0.0
    gain = one["count"] / one["count"].sum() * (one["sum"] / one["count"] - other["sum"] / other["count"])
    return Comparison(change, len(both), chance_of(gain.to_numpy(np.float64)), sum(agree), len(agree))


def _by_unit(run: RunData, entry: Entry) -> pd.DataFrame:
    """Sum and number of squared errors of every test unit, all seeds together."""
    points = points_of(run, entry)
    squared = (points["prediction"] - points["truth"].clip(upper=run.cap)) ** 2
    return squared.groupby([points["test_client"], points["unit"]], sort=True).agg(["sum", "count"])


def chance_of(differences: FloatArray) -> float:
    """How often random signs move the sum of paired differences at least as far from zero (two-sided).

    >>> chance_of(np.ones(6)) == 2 / 2**6
    True
    """
    n = len(differences)
    every = n <= EXACT
    draws = np.random.default_rng(0).choice((-1.0, 1.0), size=(0 if every else FLIPS, n))
    signs = np.array(list(product((-1.0, 1.0), repeat=n))) if every else draws
    reached = int((np.abs(signs @ differences) >= abs(differences.sum()) * (1 - 1e-9)).sum())
    return reached / len(signs) if every else (reached + 1) / (len(signs) + 1)  # what was observed is one of the ways
