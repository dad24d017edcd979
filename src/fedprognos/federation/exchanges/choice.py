"""Choice: each client takes the head that is best for its own machines, judged on units it kept out.

A client is offered the shared head of a model. From its own sums it makes others for the same features: a personal head
near the shared one, one that sees the neurons of its own network only (alone), one that sees the inputs only
(linear: the ridge baseline), and one that sees a fixed random body and the inputs (reservoir): nobody else has a part
in that one, so no poison reaches it. Each kind is blended with the reservoir head, with the share that predicts best.
The kind that wins is fitted to all units. The head stays with the client; its kind, strength and share leave.

Wrong labels of one client shift the shared head: worn machines are then found too late. A client sees such a shift in
the sign of its units' errors before their squares grow. So it first adjusts the shared head by the line that fits its
labels best, as far as its units prove it (James and Stein's shrinkage). If they prove nothing, nothing is adjusted.

Units kept out are few, so heads are cross-validated: each group of units is predicted by heads fitted to the others.
The shared head is the one fitted without the units kept out. A client of several units takes it, unless another is
better by more than chance. Bodies have learnt from some of these units, a reservoir has not: blended, no kind looks
much better than it is. Where the health of cycles is asked for, the last cycles of units trained on are kept out. They
say little about the cycles after them: on NASA's cells B0006 and B0018 shared heads with less than half of the linear
head's error there had up to five times its error later. Such a client takes the linear head, unless that one says
hardly more than the mean label. Too few last cycles for sums of them to leave are enough to choose by: the choice
stays with the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.special
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import MessageError
from fedprognos.evaluation import RIDGE_STRENGTHS, plain_ridge
from fedprognos.features import Recipe, WindowSet, hold_out, joined
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.exchanges import Cost, Exchange, OnEpoch, Words, exchanges
from fedprognos.federation.exchanges.personal import ONLY_HEAD
from fedprognos.federation.limits import run_cost
from fedprognos.federation.plausible import check_count
from fedprognos.fleet import Fleet
from fedprognos.networks import (
    FARTHEST,
    HeadStatistics,
    Network,
    add_all,
    alike_weights,
    even_points,
    head_statistics,
    mean_squared_error,
    predict,
    solve_head,
    weighted_statistics,
)

if TYPE_CHECKING:
    from fedprognos.federation.client import Client
    from fedprognos.federation.plan import Plan

KINDS = ("together", "adjusted", "personal", "alone", "linear", "reservoir")
STRENGTHS = tuple(10.0**k for k in range(-6, 2))
"""Ridge strengths tried, relative to the spread of each feature; the linear head tries those of the baseline."""
MAX_STRENGTH = 1e3
"""The largest that any client tries."""
LEAST_GAIN = 0.05
"""Another head must lower the shared head's error by this share."""
SURE = 0.95
"""How sure that must be, by Student's t over groups of units."""
OUTRIGHT = 0.5
"""A head with less than this share of another's error needs no such proof: the other one is harmful."""
LINEAR_FAILS = 0.9
"""A linear head must have less than this share of the error of saying the mean label."""
LEAST_ADJUSTED, HARMFUL = 0.7, 0.9
"""A shared head is adjusted if at least this share of the correction is not chance; one unbiased head in ten is, too.
From the second share on (one unbiased head in eighty) the head with the least error is taken without further proof."""
MOST_DEVIATIONS = 512
"""A personal head deviates on more neurons than these only where they are the client's own."""
MOST_GROUPS = 8
"""Units are put into at most so many groups. How much the groups differ shows what is chance."""

STEPS = 20
"""Shares are told in so many steps, so that a choice is one of a few thousand and not a number made of all rows."""
DRAWN = 0.2
"""How strongly the reservoir head's share of a blend is drawn to a half, as a share of the least error."""

Option = tuple[str, float]
"""A kind of head and its ridge strength; of the adjusted head, how far it is adjusted."""
TOGETHER: Option = (KINDS[0], 1.0)


@dataclass(frozen=True, eq=False)
class ChoiceRequest:
    """Choose a head for your machines and keep it.

    Parameters
    ----------
    network
        The model, with its shared head.
    fitted
        The shared head (L + 1,) before it was fitted to units kept out: these can judge it. Empty
        where there is none: the shared head is taken then, or that of `kind`, `strength` and `share`.
    neurons
        First of the client's own neurons among the features, and the one after the last; (0, 0) if none are its own.
    head
        Name to keep it under.
    """

    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    fitted: NDArray[np.float64]
    neurons: tuple[int, int] = (0, 0)
    kind: str = ""
    strength: float = 1.0
    share: float = 0.0
    alike: bool = False
    head: str = ONLY_HEAD


@dataclass(frozen=True)
class ChoiceReply:
    """What was chosen, with which ridge strength, and from how many windows the head was made.

    Parameters
    ----------
    share
        The reservoir head's share of it, 0 to 1.
    """

    kind: str
    strength: float
    windows: int
    share: float = 0.0


def answer(client: Client, request: ChoiceRequest, on_epoch: OnEpoch | None) -> ChoiceReply:
    """Choose by cross-validation, then fit to all; where no unit was kept out, the shared head is taken."""
    network, fraction = request.network.check("request"), request.validation_fraction
    if (request.kind and request.kind not in KINDS) or not _possible(request.strength, request.share):
        raise MessageError(
            f"heads are {', '.join(KINDS)}, with a strength of up to {MAX_STRENGTH:g}, blended by 0 to 1"
        )
    if len(request.fitted) not in (0, len(network.head)):
        raise MessageError("a head that does not fit the network")
    train, held = client.head_parts(request.recipe, request.seed, fraction)
    cycles = request.recipe.task == "soh" and not request.kind
    if held is None and fraction > 0 and cycles:
        train, held = hold_out(train, fraction, 0, "soh")
    points = train if held is None else joined(train, held)
    ahead = held is not None and bool(np.isin(held.unit, train.unit).all())  # last cycles are kept out, not units
    kind, strength, share = request.kind or KINDS[0], request.strength, request.share
    choosing = held is not None and (cycles or len(request.fitted) > 0) and not request.kind
    beside = kind == "reservoir" or share > 0 or (choosing and not ahead)
    wide = network.with_reservoir() if beside else network
    columns, shared = columns_of_heads(request, wide), _widened(network.head, network, wide)
    if held is not None and choosing and ahead:
        fit = head_statistics(wide, train, request.recipe, alike=request.alike)
        last = head_statistics(wide, held, request.recipe, alike=request.alike)
        kind, strength = choose_ahead(fit, last, request.fitted if len(request.fitted) else network.head, columns)
        groups = [fit, last]
    elif choosing:
        groups = grouped_statistics(wide, points, request.recipe, alike=request.alike)
        (kind, strength), share = choose(groups, _widened(request.fitted, network, wide), columns)
    elif share > 0:
        groups = grouped_statistics(wide, train, request.recipe, alike=request.alike)
    else:  # the shared head, or a kind that was chosen before: from the training units only
        groups = [head_statistics(wide, train, request.recipe, alike=request.alike)]
    head = make_head(kind, strength, add_all(groups), shared, columns)
    if share > 0:
        head = (1 - share) * head + share * reservoir_head(groups, shared, columns)
    kept_out = None
    if choosing and not ahead and (kind != KINDS[0] or share > 0):
        before = _widened(request.fitted, network, wide)
        kept_out = _kept_out(wide, points, request.recipe, groups, ((kind, strength), share), before, columns)
    kept = head if kind == "reservoir" or share > 0 else _narrowed(head, network, wide)
    client.folder.save_head(request.head, kept, kept_out)
    return ChoiceReply(kind, strength, len(points), share)


def _possible(strength: float, share: float) -> bool:
    """Whether a head can be made with these."""
    return 0 < strength <= MAX_STRENGTH and 0 <= share <= 1


def columns_of_heads(request: ChoiceRequest, wide: Network) -> dict[str, IntArray]:
    """Features that heads see; without neurons of its own, a client's head `alone` sees everybody's.

    Local models see the inputs beside their neurons as well, so `alone` and `reservoir` do.
    """
    spec, (first, end) = request.network.spec, request.neurons
    if not 0 <= first <= end <= spec.hidden:
        raise MessageError("other neurons than the network has")
    inputs = np.arange(wide.spec.hidden + wide.spec.reservoir, wide.spec.features)
    reservoir = np.arange(spec.hidden, spec.hidden + wide.spec.reservoir)
    neurons = np.arange(first, end) if end > first else np.arange(spec.hidden)
    everything = np.arange(spec.hidden + spec.reservoir)
    return {
        "personal": np.concatenate([everything if len(everything) <= MOST_DEVIATIONS else neurons, inputs]),
        "alone": np.concatenate([neurons, inputs]),
        "linear": inputs,
        "reservoir": np.concatenate([reservoir, inputs]) if len(reservoir) else reservoir,
    }


def _widened(head: FloatArray, network: Network, wide: Network) -> FloatArray:
    """The same head where a reservoir stands beside the network: it does not see it."""
    return np.insert(head, [network.spec.hidden] * (wide.spec.reservoir - network.spec.reservoir), 0.0)


def _narrowed(head: FloatArray, network: Network, wide: Network) -> FloatArray:
    """The head without the slopes of a reservoir that the network does not have."""
    first = network.spec.hidden
    return np.delete(head, np.arange(first, first + wide.spec.reservoir - network.spec.reservoir))


def grouped_statistics(
    network: Network, windows: WindowSet, recipe: Recipe, *, alike: bool = False
) -> list[HeadStatistics]:
    """Statistics of groups of whole units."""
    units, unit = np.unique(windows.unit, return_inverse=True)
    groups = min(len(units), MOST_GROUPS)
    group = unit * groups // len(units)
    weights = alike_weights(windows) if alike else np.ones(len(windows))
    masks = [np.where(group == k, weights, 0.0) for k in range(groups)]
    statistics = weighted_statistics(network, windows, recipe, masks)
    if not alike:
        return statistics
    return [replace(s, n=max(round(float(mask.sum())), 1)) for s, mask in zip(statistics, masks, strict=True)]


def _kept_out(
    network: Network,
    windows: WindowSet,
    recipe: Recipe,
    groups: Sequence[HeadStatistics],
    chosen: tuple[Option, float],
    shared: FloatArray,
    columns: Mapping[str, IntArray],
) -> FloatArray | None:
    """Predictions, labels and units (3, N) at even points, each group of units by a head fitted to all others."""
    units, unit = np.unique(windows.unit, return_inverse=True)
    if len(groups) < 2:
        return None
    group, parts, (option, share) = unit * len(groups) // len(units), [], chosen
    near = np.full(len(windows), True) if recipe.cap is None else windows.labels <= FARTHEST * recipe.cap
    for k, others in enumerate(_others(groups)):
        head = make_head(*option, add_all(others), shared, columns)
        if share > 0:
            head = (1 - share) * head + share * reservoir_head(others, shared, columns)
        mine = [np.flatnonzero(near & (unit == number)) for number in np.unique(unit[near & (group == k)])]
        if not mine:
            continue
        some = windows.select(np.unique(np.concatenate([at[even_points(len(at))] for at in mine])))
        parts.append(np.stack([predict(network.with_head(head), some, recipe), some.labels, some.unit]))
    return np.concatenate(parts, axis=1) if parts else None


def choose(
    groups: Sequence[HeadStatistics], shared: FloatArray, columns: Mapping[str, IntArray]
) -> tuple[Option, float]:
    """Kind and strength of the head to keep, and the reservoir head's share of it.

    Each group of units is predicted by heads fitted to all others.

    Parameters
    ----------
    shared
        The shared head, fitted without the units that were kept out.
    """
    heads: dict[Option, list[FloatArray]] = {}
    for others in _others(groups):
        fit = add_all(others)
        of_group = {**_heads(fit, shared, columns), TOGETHER: make_head(*offered(others, shared), fit, shared, columns)}
        for option, head in of_group.items():
            heads.setdefault(option, []).append(head)
    by_kind: dict[str, Option] = {}
    means = {option: _mean_error(groups, of_groups) for option, of_groups in heads.items()}
    for option in sorted(heads, key=lambda option: means[option]):
        by_kind.setdefault(option[0], option)
    candidates = {(option, 0.0): heads[option] for option in by_kind.values()}
    if reservoir := by_kind.get("reservoir"):
        for option in (o for kind, o in by_kind.items() if kind != "reservoir"):
            share = blend_share(groups, heads[option], heads[reservoir])
            if option != TOGETHER:
                del candidates[option, 0.0]
            pairs = zip(heads[option], heads[reservoir], strict=True)
            candidates[option, share] = [(1 - share) * head + share * other for head, other in pairs]
    best = min(candidates, key=lambda candidate: _mean_error(groups, candidates[candidate]))
    before, after = _errors(groups, heads[TOGETHER]), _errors(groups, candidates[best])
    gained = np.sqrt(_mean_error(groups, candidates[best]) / max(means[TOGETHER], 1e-12))
    clear = gained < 1 - LEAST_GAIN and _beyond_chance([b - a for b, a in zip(before, after, strict=True)])
    harmful = correction_share(groups, shared) >= HARMFUL
    option, share = best if clear or gained < OUTRIGHT or harmful else (TOGETHER, 0.0)
    return (offered(groups, shared) if option == TOGETHER else option), share


def _others(groups: Sequence[HeadStatistics]) -> list[list[HeadStatistics]]:
    """For each group all others; a single one stands for itself."""
    return [[*groups[:k], *groups[k + 1 :]] or [group] for k, group in enumerate(groups)]


def _errors(groups: Sequence[HeadStatistics], heads: Sequence[FloatArray]) -> list[float]:
    """Each group's mean squared error under its head."""
    return [mean_squared_error(group, head) for group, head in zip(groups, heads, strict=True)]


def _mean_error(groups: Sequence[HeadStatistics], heads: Sequence[FloatArray]) -> float:
    """The mean squared error over all groups."""
    return float(np.average(_errors(groups, heads), weights=[group.n for group in groups]))


def blend_share(groups: Sequence[HeadStatistics], first: Sequence[FloatArray], second: Sequence[FloatArray]) -> float:
    """The share, 0 to 1, that the second head of each group has in the blend with the least error.

    It is drawn to a half: of two heads with errors of their own, the mean is a good guess.
    """
    points = sum(group.n for group in groups)
    apart = towards = 0.0  # squares of the difference of both predictions, and its products with the first's errors
    for group, head, other in zip(groups, first, second, strict=True):
        step = other - head
        apart += float(step @ group.hh @ step) / points
        towards += float(step @ (group.hy - group.hh @ head)) / points
    drawn = DRAWN * min(_mean_error(groups, heads) for heads in (first, second))
    return _stepped(float(np.clip((towards + drawn / 2) / max(apart + drawn, 1e-12), 0.0, 1.0)))


def _stepped(share: float) -> float:
    """The share at the nearest step."""
    return round(STEPS * share) / STEPS


def reservoir_head(groups: Sequence[HeadStatistics], shared: FloatArray, columns: Mapping[str, IntArray]) -> FloatArray:
    """The head on the reservoir, with the strength that predicts groups best from all others."""

    def error(strength: float) -> float:
        fits = [add_all(others) for others in _others(groups)]
        return _mean_error(groups, [make_head("reservoir", strength, fit, shared, columns) for fit in fits])

    return make_head("reservoir", min(STRENGTHS, key=error), add_all(groups), shared, columns)


def offered(groups: Sequence[HeadStatistics], shared: FloatArray) -> Option:
    """The shared head, adjusted where the errors of most groups of units ask for the same correction."""
    share = correction_share(groups, shared)
    return ("adjusted", _stepped(share)) if share >= LEAST_ADJUSTED else TOGETHER


def correction_share(groups: Sequence[HeadStatistics], head: FloatArray) -> float:
    """The share of a head's correction that is not chance, from 0 to 1: one minus one over Hotelling's T.

    T is about two sums over all units: of the errors, and of their products with the predictions. Their measure is how
    much groups of units still differ after the correction. For an unbiased head the mean of T is about one.
    """
    parts = [_errors_of_line(group, head) for group in groups]
    if len(parts) < 4:  # two numbers are fitted: the spread of fewer groups says nothing
        return 0.0
    products, errors = (np.sum([part[k] for part in parts], axis=0) for k in (0, 1))
    line = np.linalg.lstsq(products, errors, rcond=None)[0]
    apart = np.array([errors_of_group - products_of_group @ line for products_of_group, errors_of_group in parts])
    scatter = apart.T @ apart * len(parts) / (len(parts) - 2)
    hotelling = float(errors @ np.linalg.lstsq(scatter, errors, rcond=None)[0]) / 2
    return max(0.0, 1.0 - 1.0 / max(hotelling, 1e-12))


def _errors_of_line(statistics: HeadStatistics, head: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Products (2, 2) of predictions and ones with each other, and (2,) with the errors: label less prediction."""
    with_features = statistics.hh @ head
    squared, total = float(head @ with_features), float(with_features[-1])
    products = np.array([[squared, total], [total, statistics.hh[-1, -1]]])
    return products, np.array([head @ statistics.hy - squared, statistics.hy[-1] - total])


def choose_ahead(
    fit: HeadStatistics, kept_out: HeadStatistics, shared: FloatArray, columns: Mapping[str, IntArray]
) -> Option:
    """The same where the points kept out are the last ones of units trained on."""
    heads = _heads(fit, shared, {**columns, "reservoir": np.arange(0)})
    errors = {option: mean_squared_error(kept_out, head) for option, head in heads.items()}
    best = min(errors, key=lambda option: errors[option])
    linear = [option for option in errors if option[0] == "linear"]
    if not linear:
        return best
    simplest = min(linear, key=lambda option: errors[option])
    mean_label = np.zeros_like(shared)
    mean_label[-1] = fit.hy[-1] / fit.n
    fails = errors[simplest] >= LINEAR_FAILS**2 * mean_squared_error(kept_out, mean_label)
    return best if fails else simplest


def _heads(fit: HeadStatistics, shared: FloatArray, columns: Mapping[str, IntArray]) -> dict[Option, FloatArray]:
    """Every kind of head but the adjusted one, with every strength."""
    heads = {TOGETHER: shared}
    for kind in KINDS[2:]:
        if len(columns[kind]):
            for strength in RIDGE_STRENGTHS if kind == "linear" else STRENGTHS:
                heads[kind, strength] = make_head(kind, strength, fit, shared, columns)
    return heads


def _beyond_chance(gains: Sequence[float]) -> bool:
    """Whether the mean of some gains is above zero by more than their spread explains."""
    if len(gains) < 2:
        return False
    error = float(np.std(gains, ddof=1)) / np.sqrt(len(gains))
    return bool(np.mean(gains) > scipy.special.stdtrit(len(gains) - 1, SURE) * error)


def make_head(
    kind: str, strength: float, statistics: HeadStatistics, shared: FloatArray, columns: Mapping[str, IntArray]
) -> FloatArray:
    """A head (L + 1,) of one kind from a client's own sums."""
    if kind == "together":
        return shared
    if kind == "adjusted":  # a part of the way to the line that fits best from predictions to labels
        products, errors = _errors_of_line(statistics, shared)
        slope, shift = strength * np.linalg.lstsq(products, errors, rcond=None)[0]
        head = (1.0 + slope) * shared
        head[-1] += shift
        return np.asarray(head, dtype=np.float64)
    if kind == "personal":  # what is left of the labels is fitted by a deviation from the shared head, held small
        seen, places = statistics.only(columns[kind]), np.append(columns[kind], len(shared) - 1)
        head = shared.astype(np.float64)
        head[places] += solve_head(replace(seen, hy=seen.hy - seen.hh @ shared[places]), strength)
        return head
    seen = statistics.only(columns[kind])
    head = np.zeros_like(shared)
    slopes = plain_ridge(seen.hh, seen.hy, strength) if kind == "linear" else solve_head(seen, strength)
    head[np.append(columns[kind], len(head) - 1)] = slopes
    return head


def cost(request: ChoiceRequest, fleet: Fleet) -> Cost:
    """Two passes, and a solution for every kind, strength and group."""
    memory, operations = run_cost(request.recipe, request.network.spec, fleet, passes=2.0, squares=True)
    width = float(request.network.with_reservoir().spec.features)
    solutions = MOST_GROUPS * (4 * len(STRENGTHS) + len(RIDGE_STRENGTHS))
    return memory + 8.0 * (8 + MOST_GROUPS) * width**2, operations + solutions * width**3


def check(request: ChoiceRequest, reply: ChoiceReply, most_points: int) -> None:
    """A known kind, and a possible number of points."""
    if reply.kind not in KINDS or not _possible(reply.strength, reply.share):
        raise MessageError("sent an unknown kind of head")
    check_count(reply.windows, most_points)


def chosen_heads(
    cohort: Cohort,
    plan: Plan,
    network: Network,
    clients: tuple[str, ...],
    fitted: FloatArray | None,
    head: str,
    earlier: Mapping[str, ChoiceReply] | None = None,
) -> dict[str, ChoiceReply]:
    """What each client chose; it keeps the head under this name.

    Parameters
    ----------
    earlier
        What clients chose before: they make the same kind of head again, for another network.
    """
    width = network.spec.hidden // len(clients) if network.spec.hidden % len(clients) == 0 else 0
    side_by_side = width > 0 and network.spec.hidden == plan.spec.hidden * len(clients)
    requests = {}
    for place, name in enumerate(sorted(clients)):
        if name not in cohort.clients:
            continue
        neurons = (place * width, (place + 1) * width) if side_by_side else (0, 0)
        request = ChoiceRequest(
            plan.recipe,
            network,
            plan.seed,
            plan.train.validation_fraction,
            np.empty(0) if fitted is None else fitted,
            neurons,
            alike=plan.federation.alike,
            head=head,
        )
        if earlier is not None:
            if name not in earlier:
                continue
            was = earlier[name]
            request = replace(request, fitted=np.empty(0), kind=was.kind, strength=was.strength, share=was.share)
        requests[name] = request
    return gather(cohort, requests, ChoiceReply, plan.federation.min_clients, plan.left_out)


exchanges.add(
    Exchange(
        ChoiceRequest,
        ChoiceReply,
        75,
        Words(
            "choosing a model",
            "which kind of head this client chose, its strength and blend, and from how many points; the head stays",
            "whether the shared model suits this client's machines",
        ),
        answer,
        cost,
        check,
    )
)
