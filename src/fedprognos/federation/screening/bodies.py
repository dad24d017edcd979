"""Models that clients trained: is one far worse than most, and is the mean of all predictions better without it?

The models stand side by side in one network, whose statistics tell the error of the mean of any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.federation.messages import EvaluateReply
from fedprognos.federation.screening.votes import Harm, harmful
from fedprognos.networks import Network
from fedprognos.networks.head import HeadStatistics, mean_squared_error

LEAST_SKILL = 0.5
"""A model that explains less of the others' labels than this share of what the median model explains is left out."""


def harmful_bodies(
    networks: Mapping[str, Network], replies: Mapping[str, EvaluateReply], tolerance: float
) -> tuple[Harm, ...]:
    """Whose models harm the majority, or are far worse than most: a minority at most, the weak ones first.

    Parameters
    ----------
    networks
        Models by client.
    replies
        Each client's statistics of the network that holds them all, side by side in the order of their names.
    """
    heads = heads_side_by_side(networks)
    judges = {name: judge for name, reply in replies.items() if (judge := reply.held or reply.fit) is not None}
    names = sorted(networks.keys() & judges.keys())
    shares = skill_shares({name: heads[name] for name in names}, judges)
    weak = sorted((share, name) for name, share in shares.items() if share < LEAST_SKILL)[: (len(names) - 1) // 2]
    kept = [name for name in names if name not in {name for _, name in weak}]

    def errors(members: Sequence[str]) -> Mapping[str, float]:
        head = np.mean([heads[name] for name in members], axis=0)
        return {name: mean_squared_error(judge, head) for name, judge in judges.items()}

    found = harmful(kept, errors, tolerance * (1 + len(weak)) ** 2)[: (len(names) - 1) // 2 - len(weak)]
    return (*(Harm(name, share, weak=True) for share, name in weak), *found)


def skill_shares(heads: Mapping[str, FloatArray], judges: Mapping[str, HeadStatistics]) -> dict[str, float]:
    """What each model explains of the others' labels, as a share of what the median model explains: their medians.

    A model that always predicts the mean label explains nothing. Judges to whom most models explain nothing do not
    count; without any, all have a share of one.
    """
    found: dict[str, list[float]] = {name: [] for name in heads}
    for judge, statistics in judges.items():
        explained = {
            n: 1 - mean_squared_error(statistics, head) * statistics.n / statistics.yy for n, head in heads.items()
        }
        usual = float(np.median(list(explained.values())))
        for name in heads:
            if name != judge and usual > 0:
                found[name].append(explained[name] / usual)
    return {name: float(np.median(shares)) if shares else 1.0 for name, shares in found.items()}


def heads_side_by_side(networks: Mapping[str, Network]) -> dict[str, FloatArray]:
    """For each model the head (L + 1,) over the features of all that predicts as it does."""
    ends = dict(zip(sorted(networks), np.cumsum([networks[n].spec.hidden for n in sorted(networks)]), strict=True))
    every = max(ends.values())
    found = {}
    for name, end in ends.items():
        own, hidden = networks[name].head, networks[name].spec.hidden
        found[name] = np.concatenate([np.zeros(every), own[hidden:]])
        found[name][end - hidden : end] = own[:hidden]
    return found
