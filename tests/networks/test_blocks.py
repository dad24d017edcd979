from __future__ import annotations

import numpy as np
import pytest
import torch
from fedprognos.federation.aggregate import average, slice_client

from fedprognos.networks import HealthNetwork, NetworkSpec, network_with, weights_of
from fedprognos.networks.anatomy import anatomy_of


@pytest.mark.parametrize(("widths", "cell"), [((6,), "lstm"), ((5, 4), "gru")])
def test_blocks_put_out_what_the_dense_layer_does(widths: tuple[int, ...], cell: str) -> None:
    anatomy = anatomy_of(cell, len(widths), False)
    spec = NetworkSpec(inputs=3, widths=widths, cell=cell)  # type: ignore[arg-type]
    clients = {str(k): weights_of(HealthNetwork.seeded(spec, k)) for k in range(3)}
    places = {n: {f"recurrent.{q}": w * int(n) + np.arange(w) for q, w in enumerate(widths)} for n in clients}
    grown = {f"recurrent.{q}": 3 * w for q, w in enumerate(widths)}
    weights = average(clients, anatomy, places, grown)
    # In any order: blocks are found, not assumed to stand one after another.
    turned = {g: np.random.default_rng(0).permutation(n) for g, n in grown.items()}
    weights = {k: np.asarray(v, np.float32) for k, v in slice_client(weights, anatomy, turned).items()}
    network = network_with(spec.model_copy(update={"widths": tuple(grown.values())}), weights)
    x = torch.randn(7, 12, 3)
    with torch.no_grad():
        dense = network(x)
        with network.in_blocks():
            assert len(network._blocks) == len(widths)
            assert all(len(b.parts) == 3 for b in network._blocks.values())
            torch.testing.assert_close(network(x), dense, atol=1e-6, rtol=1e-5)
        assert not network._blocks


def test_a_layer_in_one_piece_stays_dense() -> None:
    network = HealthNetwork.seeded(NetworkSpec(inputs=3, widths=(6,)), 0)
    with network.in_blocks():
        assert not network._blocks
