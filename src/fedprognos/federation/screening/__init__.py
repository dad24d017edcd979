"""Clients that harm the others: found by what the others' own sums say, left out and named.

A client is left out where the majority of the others is clearly better off without it.
Fewer than three clients cannot tell who is wrong.
"""

from fedprognos.federation.screening.models import drop_harmful
from fedprognos.federation.screening.moments import capped_surveys, plausible_surveys
from fedprognos.federation.screening.statistics import capped_statistics, harmless_statistics, shares
from fedprognos.federation.screening.votes import Harm

__all__ = [
    "Harm",
    "capped_statistics",
    "capped_surveys",
    "drop_harmful",
    "harmless_statistics",
    "plausible_surveys",
    "shares",
]
