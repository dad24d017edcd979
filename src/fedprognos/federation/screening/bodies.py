"""Models that clients trained: is the mean of all predictions better without one of them?

The models stand side by side in one network, whose statistics tell the error of the mean of any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.federation.messages import EvaluateReply
from fedprognos.federation.screening.votes import Harm, harmful
from fedprognos.networks import Network
from fedprognos.networks.head import mean_squared_error


def harmful_bodies(
    networks: Mapping[str, Network], replies: Mapping[str, EvaluateReply], tolerance: float
) -> tuple[Harm, ...]:
    """Whose models harm the majority.

    Parameters
    ----------
    networks
        Models by client.
    replies
        Each client's statistics of the network that holds them all, side by side in the order of their names.
    """
    heads = heads_side_by_side(networks)
    judges = {name: judge for name, reply in replies.items() if (judge := reply.held or reply.fit) is not None}

    def errors(members: Sequence[str]) -> Mapping[str, float]:
        head = np.mean([heads[name] for name in members], axis=0)
        return {name: mean_squared_error(judge, head) for name, judge in judges.items()}

    return harmful(sorted(networks.keys() & judges.keys()), errors, tolerance)


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
