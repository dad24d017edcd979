"""Screening finds clients whose sums would harm the others, judged by the others' sums, leaves them out and names them.

A client is left out where the majority of the others is clearly better off without it. Fewer than three clients cannot
tell who is wrong. Three things are screened: statistics of heads, trained models, and moments of columns and labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.features import Moments, Survey
from fedprognos.networks import HeadStatistics, Network, add_all, mean_squared_error, solve_head

LEAST_TO_SCREEN = 3
"""Two clients that disagree cannot say who is wrong."""
LEAST_SKILL = 0.5
"""A model that explains less of the others' labels than this share of what the median model explains is left out."""
FAR = 10.0
"""A client's moments are doubted if its mean is this many deviations from the median of all means, or if its deviation
is this many times the median deviation."""
FAR_WEIGHTS = 4.0
"""Weights this many of the median distance from the clients' median model are not believed."""
SMALLEST = 0.01
"""The least deviation used as a scale, as a share of the mean: a column may be constant at most clients."""
ErrorsOf = Callable[[Sequence[str]], Mapping[str, float]]
"""From the clients that take part to every client's mean squared error."""
HeadParts = tuple[HeadStatistics, HeadStatistics | None]
"""A client's statistics of what was trained on, and of what was kept out."""


@dataclass(frozen=True)
class Harm:
    """A client that is left out, and why.

    Parameters
    ----------
    share
        How much larger the others' error is with it, as a share: the median over the others. For a `weak` model: what
        it explains of the others' labels, as a share of what the median model explains.
    """

    client: str
    share: float
    weak: bool = False

    def in_words(self, what: str) -> str:
        """The text for the user; `what` names the part of the client's replies that does the harm."""
        if self.weak:
            return f"{what} explain {max(100 * self.share, 0):.0f} % of what the median model explains; left out"
        return f"{what} make the others' error {100 * self.share:.0f} % larger; left out"


def harmful(clients: Sequence[str], errors: ErrorsOf, tolerance: float) -> tuple[Harm, ...]:
    """Clients without whom the majority's error is smaller by more than a share, the worst first.

    At most a minority of the clients is left out. The fewer there are, the more each counts: the second client left out
    must do four times the harm, the third nine times.
    """
    kept, harms = sorted(clients), list[Harm]()
    while len(kept) >= LEAST_TO_SCREEN and len(harms) < (len(clients) - 1) // 2:
        together = errors(kept)
        worst = Harm("", 0.0)
        for name in kept:
            falls = falls_without(name, kept, errors, together)
            share = float(np.median(falls))
            limit = tolerance * (1 + len(harms)) ** 2
            if (falls > limit).sum() * 2 > len(falls) and share > worst.share:
                worst = Harm(name, share)
        if not worst.client:
            break
        harms.append(worst)
        kept.remove(worst.client)
    return tuple(harms)


def falls_without(name: str, clients: Sequence[str], errors: ErrorsOf, together: Mapping[str, float]) -> FloatArray:
    """How much larger the RMSE of each other client is with this one than without it, as a share."""
    without = errors([other for other in clients if other != name])
    return np.array([_fall(together[judge], without[judge]) for judge in clients if judge != name])


def _fall(before: float, after: float) -> float:
    """How much larger the root of a mean squared error is before than after, as a share of the latter."""
    return float(np.sqrt(max(before, 1e-300) / max(after, 1e-300))) - 1.0


def harmless_statistics(
    parts: Mapping[str, HeadParts], ridge: float, tolerance: float
) -> tuple[dict[str, HeadParts], tuple[Harm, ...]]:
    """Statistics without those of clients that harm the majority, and who these are.

    A head is solved without each client and scored by the others' own sums.

    Parameters
    ----------
    tolerance
        The others' error may be larger by this share.
    """
    judges = {name: held or fit for name, (fit, held) in parts.items()}

    def errors(members: Sequence[str]) -> Mapping[str, float]:
        head = solve_head(add_all(parts[name][0] for name in members), ridge)
        return {name: mean_squared_error(judge, head) for name, judge in judges.items()}

    harms = harmful(sorted(parts), errors, tolerance)
    out = {harm.client for harm in harms}
    return {name: both for name, both in parts.items() if name not in out}, harms


def capped_statistics(parts: Mapping[str, HeadParts], cap: float | None) -> dict[str, HeadParts]:
    """Statistics in which no client counts more than `cap` times the median one: both parts are scaled down alike."""
    if cap is None or not parts:
        return dict(parts)
    sizes = {name: fit.n for name, (fit, _) in parts.items()}
    most = cap * float(np.median(list(sizes.values())))

    def capped(name: str) -> HeadParts:
        fit, held = parts[name]
        factor = most / sizes[name]
        if factor >= 1:
            return fit, held
        return _scaled_statistics(fit, factor), None if held is None else _scaled_statistics(held, factor)

    return {name: capped(name) for name in parts}


def _scaled_statistics(statistics: HeadStatistics, factor: float) -> HeadStatistics:
    n = max(round(statistics.n * factor), 1)
    return HeadStatistics(n, statistics.yy * factor, statistics.hh * factor, statistics.hy * factor)


def harmful_models(
    networks: Mapping[str, Network], parts: Mapping[str, HeadParts], tolerance: float
) -> tuple[Harm, ...]:
    """Whose models harm the majority, or are far worse than most: a minority at most, the weak ones first.

    The models stand side by side in one network. Its statistics give the error of the mean of any of the models.

    Parameters
    ----------
    networks
        Models by client.
    parts
        Each client's statistics of the network that holds them all, side by side in the order of their names.
    """
    heads = heads_side_by_side(networks)
    judges = {name: held or fit for name, (fit, held) in parts.items()}
    names = sorted(networks.keys() & judges.keys())
    shares = skill_shares({name: heads[name] for name in names}, judges)
    weak = sorted((share, name) for name, share in shares.items() if share < LEAST_SKILL)[: (len(names) - 1) // 2]
    kept = [name for name in names if name not in {name for _, name in weak}]

    def errors(members: Sequence[str]) -> Mapping[str, float]:
        head = np.mean([heads[name] for name in members], axis=0)
        return {name: mean_squared_error(judge, head) for name, judge in judges.items()}

    strong = harmful(kept, errors, tolerance * (1 + len(weak)) ** 2)[: (len(names) - 1) // 2 - len(weak)]
    return (*(Harm(name, share, weak=True) for share, name in weak), *strong)


def distant_weights(networks: Mapping[str, Network]) -> dict[str, float]:
    """Clients whose weights lie far from everybody's median, with how many times the median distance that is.

    For networks that started from the same weights, so that neurons correspond; a minority at most, the farthest first.
    """
    names = sorted(networks)
    if len(names) < LEAST_TO_SCREEN:
        return {}
    weights = [networks[name].weights for name in names]
    models = np.stack([np.concatenate([w[key].ravel() for key in sorted(w)]) for w in weights]).astype(np.float64)
    distances = np.linalg.norm(models - np.median(models, axis=0), axis=1)
    times = distances / max(float(np.median(distances)), 1e-300)
    far = sorted((-ratio, name) for name, ratio in zip(names, times.tolist(), strict=True) if ratio > FAR_WEIGHTS)
    return {name: -ratio for ratio, name in far[: (len(names) - 1) // 2]}


def skill_shares(heads: Mapping[str, FloatArray], judges: Mapping[str, HeadStatistics]) -> dict[str, float]:
    """What each model explains of the others' labels, as a share of what the median model explains: their medians.

    A model that always predicts the mean label explains nothing. Judges to whom most models explain nothing do not
    count; without any, all have a share of one.
    """
    shares: dict[str, list[float]] = {name: [] for name in heads}
    for judge, statistics in judges.items():
        if not statistics.yy:  # a hostile judge can say that all its labels are zero
            continue
        explained = {
            n: 1 - mean_squared_error(statistics, head) * statistics.n / statistics.yy for n, head in heads.items()
        }
        median = float(np.median(list(explained.values())))
        for name in heads:
            if name != judge and median > 0:
                shares[name].append(explained[name] / median)
    return {name: float(np.median(values)) if values else 1.0 for name, values in shares.items()}


def heads_side_by_side(networks: Mapping[str, Network]) -> dict[str, FloatArray]:
    """For each model the head (L + 1,) over the features of all that predicts as it does."""
    ends = dict(zip(sorted(networks), np.cumsum([networks[n].spec.hidden for n in sorted(networks)]), strict=True))
    every = max(ends.values())
    heads = {}
    for name, end in ends.items():
        head, hidden = networks[name].head, networks[name].spec.hidden
        heads[name] = np.concatenate([np.zeros(every), head[hidden:]])
        heads[name][end - hidden : end] = head[:hidden]
    return heads


def doubted_surveys(surveys: Mapping[str, Survey]) -> dict[str, str]:
    """Clients whose moments are far from most others', with what is far: "columns" or "labels"."""
    names = sorted(surveys)
    doubted: dict[str, str] = {}
    if len(names) >= LEAST_TO_SCREEN:
        conditions = sorted({key for name in names for key in surveys[name].cells})
        for key in conditions:
            for name in _far_moments({n: surveys[n].cells[key] for n in names if key in surveys[n].cells}):
                doubted.setdefault(name, "columns")
        for name in _far_moments({n: surveys[n].labels for n in names}):
            doubted.setdefault(name, "labels")
    # Without a majority to go by nobody is left out.
    return {} if len(doubted) * 2 >= len(names) else dict(sorted(doubted.items()))


def _far_moments(moments: Mapping[str, Moments]) -> list[str]:
    if len(moments) < LEAST_TO_SCREEN:
        return []
    means, stds = (np.stack([getattr(m, part) for m in moments.values()]) for part in ("mean", "std"))
    middle = np.median(means, axis=0)
    scale: FloatArray = np.maximum(np.median(stds, axis=0), SMALLEST * np.abs(middle))
    far = (stds > FAR * scale) | (np.abs(means - middle) > FAR * scale)
    return [name for name, bad in zip(moments, far.any(axis=1), strict=True) if bad]


def capped_surveys(surveys: dict[str, Survey], cap: float | None) -> dict[str, Survey]:
    """Nobody's rows count more than so many times the median client's."""
    if cap is None:
        return surveys
    labels = {name: survey.labels.n for name, survey in surveys.items()}
    rows = {name: sum(cell.n for cell in survey.cells.values()) for name, survey in surveys.items()}
    most = [cap * float(np.median(list(sizes.values()))) for sizes in (labels, rows)]

    def lighter(survey: Survey, factor: float) -> Survey:
        if factor >= 1:
            return survey
        cells = {key: _scaled_moments(cell, factor) for key, cell in survey.cells.items()}
        return replace(survey, cells=cells, labels=_scaled_moments(survey.labels, factor))

    shares = {name: min(most[0] / labels[name], most[1] / rows[name]) for name in surveys}
    return {name: lighter(survey, shares[name]) for name, survey in surveys.items()}


def _scaled_moments(moments: Moments, factor: float) -> Moments:
    n = max(round(moments.n * factor), 1)
    return Moments(n, moments.mean, moments.m2 * (n / moments.n))
