"""Matching neurons that extract the same feature, on plain arrays, with NumPy and SciPy alone.

By their weights: :func:`match` (BBP-MAP, Eq. 4 and 5 of the paper). By what they put out: :func:`absorb`. Usable on its
own; nothing here knows torch, files or clients.

>>> import numpy as np
>>> weights = np.random.default_rng(0).normal(size=(4, 30))
>>> match({"a": weights, "b": weights[::-1]}).assignments["b"].tolist()
[3, 2, 1, 0]
"""

from fedprognos.matching.absorption import Absorption, absorb
from fedprognos.matching.contributions import contributions, groups, repeats
from fedprognos.matching.elimination import Absorbed
from fedprognos.matching.gain import gain
from fedprognos.matching.matcher import match
from fedprognos.matching.recurrent import match_recurrent
from fedprognos.matching.result import Anchor, Diagnostics, Matching
from fedprognos.matching.signatures import (
    Gates,
    LinearWeights,
    RecurrentWeights,
    gates_of,
    linear_signature,
    recurrent_signature,
)
from fedprognos.matching.sums import LabelledSums, OutputSums

__all__ = [
    "Absorbed",
    "Absorption",
    "Anchor",
    "Diagnostics",
    "Gates",
    "LabelledSums",
    "LinearWeights",
    "Matching",
    "OutputSums",
    "RecurrentWeights",
    "absorb",
    "contributions",
    "gain",
    "gates_of",
    "groups",
    "linear_signature",
    "match",
    "match_recurrent",
    "recurrent_signature",
    "repeats",
]
