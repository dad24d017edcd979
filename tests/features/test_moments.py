from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedprognos.errors import DataError
from fedprognos.features import Moments, merge_all
from refusals import refuses


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 2**32 - 1), st.floats(-1e6, 1e6))
def test_merging_equals_pooling(sizes: list[int], seed: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(offset, 3.0, (n, 2)) for n in sizes]
    pooled = np.concatenate(parts)
    merged = merge_all(Moments.from_rows(p) for p in parts)
    assert merged.n == len(pooled)
    if len(pooled):
        np.testing.assert_allclose(merged.mean, pooled.mean(axis=0), rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(merged.m2, np.square(pooled - pooled.mean(axis=0)).sum(axis=0), rtol=1e-6, atol=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_merging_is_the_same_in_any_grouping(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = (Moments.from_rows(rng.normal(size=(n, 3))) for n in (5, 1, 9))
    left, right = a.merge(b).merge(c), a.merge(b.merge(c))
    np.testing.assert_allclose(left.mean, right.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(left.m2, right.m2, rtol=1e-12, atol=1e-12)


def test_a_constant_column_has_no_deviation_whatever_its_size() -> None:
    moments = merge_all(Moments.from_rows(np.full((n, 1), 0.1 + 1e7)) for n in (3, 7, 11))
    assert moments.std[0] == 0.0


def test_different_columns_cannot_be_merged() -> None:
    with refuses(DataError):
        Moments.from_rows(np.ones((2, 2))).merge(Moments.from_rows(np.ones((2, 3))))
