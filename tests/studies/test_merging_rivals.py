"""Other ways to merge: on permuted copies of one network, where the right answer is known, each gives that network."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedprognos.arrays import FloatArray
from fedprognos.matching import OutputSums
from fedprognos.networks import Network, NetworkSpec
from studies.merging_rivals import (
    averaged,
    cells,
    fitted_average,
    orders_by_outputs,
    page,
    permuted,
    rebasin,
    spectrally_pruned,
    zipped,
)
from studies.study.parts import SideBySide

SIZES = [3.0, 2.0, 1.0]
X = np.random.default_rng(2).normal(size=(20, 15, 3)).astype(np.float32)


def outputs(network: Network) -> FloatArray:
    with torch.no_grad():
        return np.asarray(network.module().eval().body(torch.as_tensor(X))[0].numpy(), np.float64)


@pytest.fixture(scope="module")
def copies() -> list[Network]:
    rng = np.random.default_rng(0)
    spec = NetworkSpec(cell="gru", inputs=3, widths=(6,))
    network = Network(spec, {n: rng.normal(size=s).astype(np.float32) for n, s in spec.shapes.items()})
    return [network, *(permuted(network, rng.permutation(6)) for _ in range(2))]


@pytest.fixture(scope="module")
def whole(copies: list[Network]) -> SideBySide:
    wide = Network.concat(copies)
    sums = OutputSums.from_outputs(outputs(wide))
    return SideBySide({}, wide, None, None, (sums,), 0.3, 1e-3)  # type: ignore[arg-type]


def alike(network: Network, expected: Network) -> bool:
    """Whether two networks put out the same, whatever the order of their neurons."""
    both = [np.sort(outputs(n).reshape(-1, 6), axis=1) for n in (network, expected)]
    return bool(np.abs(both[0] - both[1]).max() < 1e-3)


def test_permutations_are_found_by_weights_and_by_outputs(copies: list[Network], whole: SideBySide) -> None:
    orders = orders_by_outputs(copies, whole.sums[-1], 0)
    by_outputs = [permuted(network, order) for network, order in zip(copies, orders, strict=True)]
    for merged in (rebasin(copies, SIZES), by_outputs):
        assert alike(averaged(merged, SIZES), copies[0])
    assert not alike(averaged(copies, SIZES), copies[0])


def test_copies_are_pruned_or_merged_without_loss(copies: list[Network], whole: SideBySide) -> None:
    assert alike(spectrally_pruned(whole, 6), copies[0])
    assert alike(zipped(whole, 6, least_squares=False), copies[0])
    assert alike(zipped(whole, 6, least_squares=True), copies[0])
    assert alike(fitted_average(whole, orders_by_outputs(copies, whole.sums[-1], 0), SIZES), copies[0])


def test_the_page_names_what_is_missing() -> None:
    first, *others = cells()
    text = page({first.key: {"concat, 192": 12.0, "absorb, 96": 12.5}})
    assert "| absorb | 96 |" in text
    assert all(cell.key in text for cell in others)
