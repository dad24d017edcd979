"""Operating conditions: rows whose rounded settings agree share a condition, on every client alike.

Rounding, unlike clustering, needs no data from anyone: two clients give the same row the same key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.errors import ConfigError
from fedprognos.tables import at_level

Key = tuple[float, ...]


def check_rule(decimals: Mapping[str, int], settings: Sequence[str]) -> None:
    """Refuse a rule that names settings the fleet does not have."""
    missing = [name for name in decimals if name not in settings]
    if missing:
        raise ConfigError(
            f"recipe.conditions names '{missing[0]}', which is not a setting",
            hint=f"settings here: {', '.join(settings) or 'none'}",
        )


def keys(values: FloatArray, decimals: Mapping[str, int], settings: Sequence[str]) -> FloatArray:
    """Rounded settings of every row, in the order of `decimals`: (T, number of settings in the rule).

    Examples
    --------
    >>> keys(np.array([[41.998, 0.8401], [0.001, -0.0004]]), {"altitude": 0, "mach": 2}, ["altitude", "mach"])
    array([[42.  ,  0.84],
           [ 0.  ,  0.  ]])
    """
    columns = [at_level(values[:, settings.index(name)], places) for name, places in decimals.items()]
    return np.stack(columns, axis=1) if columns else np.empty((len(values), 0))


def nearest(
    values: FloatArray, decimals: Mapping[str, int], settings: Sequence[str], condition_keys: FloatArray
) -> tuple[IntArray, BoolArray]:
    """Index of each row's condition among the known keys (K, k), and whether it is one of them.

    Any other condition falls back to the nearest known one. Distances are measured in shares of each setting's range
    over the known conditions.

    Examples
    --------
    >>> rows, known = np.array([[10.2], [41.0]]), np.array([[0.0], [10.0], [42.0]])
    >>> ids, is_known = nearest(rows, {"altitude": 0}, ["altitude"], known)
    >>> ids.tolist(), is_known.tolist()
    ([1, 2], [True, False])
    """
    if condition_keys.shape[1] == 0:
        return np.zeros(len(values), dtype=np.int64), np.ones(len(values), dtype=bool)
    distinct, inverse = np.unique(keys(values, decimals, settings), axis=0, return_inverse=True)
    span = np.ptp(condition_keys, axis=0)
    scale = np.where(span > 0, span, 1.0)
    distance = np.square((distinct[:, None, :] - condition_keys[None, :, :]) / scale).sum(axis=2)
    closest = distance.argmin(axis=1)
    is_known = (condition_keys[closest] == distinct).all(axis=1)
    inverse = inverse.reshape(-1)
    return closest[inverse].astype(np.int64), is_known[inverse]
