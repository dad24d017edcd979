"""Matching neurons that extract the same feature: BBP-MAP on plain arrays, with NumPy and SciPy alone.

Implements Eq. 4 and 5 of the paper. Usable on its own; nothing here knows torch, files or clients.

>>> import numpy as np
>>> weights = np.random.default_rng(0).normal(size=(4, 30))
>>> match({"a": weights, "b": weights[::-1]}).assignments["b"].tolist()
[3, 2, 1, 0]
"""

from fedprognos.matching.gain import gain
from fedprognos.matching.matcher import match
from fedprognos.matching.recurrent import match_recurrent
from fedprognos.matching.result import Anchor, Diagnostics, Matching
from fedprognos.matching.signatures import Gates, RecurrentWeights, gates_of, linear_signature, recurrent_signature

__all__ = [
    "Anchor",
    "Diagnostics",
    "Gates",
    "Matching",
    "RecurrentWeights",
    "gain",
    "gates_of",
    "linear_signature",
    "match",
    "match_recurrent",
    "recurrent_signature",
]
