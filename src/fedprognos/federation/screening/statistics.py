"""Statistics of heads: a head is solved without each client and scored by the others' own sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedprognos.federation.messages import EvaluateReply
from fedprognos.federation.screening.votes import Harm, harmful
from fedprognos.networks.head import HeadStatistics, add_all, mean_squared_error, solve_head


def harmless_statistics(
    replies: Mapping[str, EvaluateReply], ridge: float, tolerance: float, cap: float | None
) -> tuple[dict[str, EvaluateReply], tuple[Harm, ...]]:
    """Replies without those of clients that harm the majority, and who these are.

    Parameters
    ----------
    tolerance
        The others' error may be larger by this share.
    cap
        The most a client counts, in multiples of the median one.
    """
    capped = capped_statistics(replies, cap)
    fits = {name: reply.fit for name, reply in capped.items() if reply.fit is not None}
    judges = {name: reply.held or fits[name] for name, reply in capped.items() if name in fits}

    def errors(members: Sequence[str]) -> Mapping[str, float]:
        head = solve_head(add_all(fits[name] for name in members), ridge)
        return {name: mean_squared_error(judge, head) for name, judge in judges.items()}

    found = harmful(sorted(fits), errors, tolerance)
    out = {harm.client for harm in found}
    return {name: reply for name, reply in capped.items() if name not in out}, found


def capped_statistics(replies: Mapping[str, EvaluateReply], cap: float | None) -> dict[str, EvaluateReply]:
    """Statistics of a client that counts too much are scaled down, both parts alike."""
    sizes = {name: reply.fit.n for name, reply in replies.items() if reply.fit is not None}
    if cap is None or not sizes:
        return dict(replies)
    most = cap * float(np.median(list(sizes.values())))

    def lighter(reply: EvaluateReply, factor: float) -> EvaluateReply:
        return EvaluateReply(reply.validation, _scaled(reply.fit, factor), _scaled(reply.held, factor))

    heavy = {name for name, size in sizes.items() if size > most}
    return {name: lighter(r, most / sizes[name]) if name in heavy else r for name, r in replies.items()}


def shares(replies: Mapping[str, EvaluateReply], kept: Mapping[str, EvaluateReply]) -> dict[str, float]:
    """How much of its weight each client has in the statistics that are kept."""

    def weight(reply: EvaluateReply | None) -> float:
        return 0.0 if reply is None or reply.fit is None else float(reply.fit.hh[-1, -1])

    return {name: weight(kept.get(name)) / max(weight(reply), 1.0) for name, reply in replies.items()}


def _scaled(statistics: HeadStatistics | None, factor: float) -> HeadStatistics | None:
    if statistics is None:
        return None
    n = max(round(statistics.n * factor), 1)
    return HeadStatistics(n, statistics.yy * factor, statistics.hh * factor, statistics.hy * factor)
