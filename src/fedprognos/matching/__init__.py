"""Matching neurons that extract the same feature, on plain arrays, with NumPy and SciPy alone.

By their weights: :func:`match` (BBP-MAP, Eq. 4 and 5 of the paper). By what they put out: :func:`absorb`. Usable on its
own; nothing here knows torch, files or clients.

>>> import numpy as np
>>> weights = np.random.default_rng(0).normal(size=(4, 30))
>>> match({"a": weights, "b": weights[::-1]}).assignments["b"].tolist()
[3, 2, 1, 0]
"""

from fedprognos.matching.absorb.absorption import ALPHA, RIDGE, Absorption, absorb
from fedprognos.matching.absorb.clients import contributions, groups, repeats
from fedprognos.matching.absorb.elimination import Absorbed
from fedprognos.matching.absorb.output_sums import LabelledSums, OutputSums
from fedprognos.matching.arguments import LinearWeights, RecurrentWeights
from fedprognos.matching.match.gain import gain
from fedprognos.matching.match.matcher import match
from fedprognos.matching.match.recurrent import match_recurrent
from fedprognos.matching.match.result import Anchor, Diagnostics, Matching
from fedprognos.matching.match.signatures import Gates, gates_of, linear_signature, recurrent_signature

__all__ = [
    "ALPHA",
    "RIDGE",
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
