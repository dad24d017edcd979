"""Leaving one client out after another, and asking the others whether they are better off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.federation.messages import Failure

ErrorsOf = Callable[[Sequence[str]], Mapping[str, float]]
"""From the clients that take part to every client's mean squared error."""


@dataclass(frozen=True)
class Harm:
    """A client that was left out, and by how much the others' error falls without it: the median share.

    Of a `weak` model the share is that of what the median model explains of the others' labels.
    """

    client: str
    share: float
    weak: bool = False

    def failure(self, what: str) -> Failure:
        """What the user is shown."""
        text = f"{what} make the others' error {100 * self.share:.0f} % larger; left out"
        if self.weak:
            text = f"{what} explain {max(100 * self.share, 0):.0f} % of what the median model explains; left out"
        return Failure(self.client, "harmful", text)


def harmful(clients: Sequence[str], errors: ErrorsOf, tolerance: float) -> tuple[Harm, ...]:
    """Clients without whom the majority's error is smaller by more than a share, the worst first.

    At most a minority of the clients is left out. The fewer there are, the more each counts: the second client left out
    must do four times the harm, the third nine times.
    """
    kept, found = sorted(clients), list[Harm]()
    while len(kept) > 2 and len(found) < (len(clients) - 1) // 2:
        together = errors(kept)
        worst = Harm("", 0.0)
        for name in kept:
            falls = falls_without(name, kept, errors, together)
            share = float(np.median(falls))
            limit = tolerance * (1 + len(found)) ** 2
            if (falls > limit).sum() * 2 > len(falls) and share > worst.share:
                worst = Harm(name, share)
        if not worst.client:
            break
        found.append(worst)
        kept.remove(worst.client)
    return tuple(found)


def falls_without(name: str, clients: Sequence[str], errors: ErrorsOf, together: Mapping[str, float]) -> FloatArray:
    """By which share the error of each of the other clients falls without this one."""
    without = errors([other for other in clients if other != name])
    return np.array([_fall(together[judge], without[judge]) for judge in clients if judge != name])


def _fall(before: float, after: float) -> float:
    """By which share of itself the root of a mean squared error is larger before than after."""
    return float(np.sqrt(max(before, 1e-300) / max(after, 1e-300))) - 1.0
