"""Weights that lie far from everybody's median are named; those of clients that only differ are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedprognos.networks import Network, NetworkSpec
from fedprognos.privacy import distant_weights

START = Network.seeded(NetworkSpec(inputs=3, widths=(4,)), 0)


def trained(seed: int, scale: float = 0.1) -> Network:
    rng = np.random.default_rng(seed)
    changed = {n: (w + scale * rng.normal(size=w.shape)).astype(np.float32) for n, w in START.weights.items()}
    return replace(START, weights=changed)


@pytest.mark.parametrize("clients", [3, 5, 8])
def test_honest_clients_are_not_named_and_a_distant_one_is(clients: int) -> None:
    honest = {f"c{k}": trained(k) for k in range(clients)}
    assert distant_weights(honest) == {}
    assert list(distant_weights({**honest, "c0": trained(0, scale=10.0)})) == ["c0"]


def test_two_clients_cannot_say_who_is_wrong_and_at_most_a_minority_is_named() -> None:
    assert distant_weights({"a": trained(0), "b": trained(1, scale=100.0)}) == {}
    networks = {f"c{k}": trained(k, scale=1000.0 if k < 2 else 0.1) for k in range(4)}
    assert len(distant_weights(networks)) <= 1
