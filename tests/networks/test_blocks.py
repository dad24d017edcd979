from __future__ import annotations

import numpy as np
import pytest
import torch

from fedprognos.networks import Network, NetworkSpec


@pytest.mark.parametrize(("widths", "cell"), [((6,), "lstm"), ((5, 4), "gru")])
def test_blocks_put_out_what_the_dense_layer_does(widths: tuple[int, ...], cell: str) -> None:
    spec = NetworkSpec(inputs=3, widths=widths, cell=cell)
    joint = Network.concat([Network.seeded(spec, k) for k in range(3)])
    # In any order: blocks are found, not assumed to stand one after another.
    turned = {group: np.random.default_rng(0).permutation(width) for group, width in joint.widths.items()}
    network = joint.slice(turned).module()
    x = torch.randn(7, 12, 3)
    with torch.no_grad():
        dense = network(x)
        with network.in_blocks():
            assert len(network._blocks) == len(widths)
            assert all(len(b.parts) == 3 for b in network._blocks.values())
            torch.testing.assert_close(network(x), dense, atol=1e-6, rtol=1e-5)
        assert not network._blocks


def test_a_layer_in_one_piece_stays_dense() -> None:
    network = Network.seeded(NetworkSpec(inputs=3, widths=(6,)), 0).module()
    with network.in_blocks():
        assert not network._blocks
