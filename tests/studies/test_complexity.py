"""FLOPs by formula, by hand, and as torch counts them."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedprognos.networks import NetworkSpec
from studies.complexity import flops
from studies.paper import paper
from studies.tables_complexity import slip

SPECS = [
    NetworkSpec(inputs=2, widths=(128,)),
    NetworkSpec(inputs=14, widths=(64, 32), input_width=16),
    NetworkSpec(inputs=3, widths=(5,), cell="gru"),
]


def test_the_papers_network_by_hand() -> None:
    # A step: four gates of 128 neurons, each with 2 inputs and 128 recurrent ones; the head: 128 products at the end.
    assert flops(SPECS[0], 171) == 171 * 2 * (4 * 128 * 2 + 4 * 128 * 128) + 2 * 128
    assert SPECS[0].parameters == paper().complexity.parameters


@pytest.mark.long  # torch's counter takes its time to load
@pytest.mark.parametrize("network", SPECS)
@pytest.mark.parametrize("steps", [1, 7])
def test_as_torch_counts_them(network: NetworkSpec, steps: int) -> None:
    """The fused layers of a CPU are not counted by torch, so the same products are made one by one."""
    gates = {"lstm": 4, "gru": 3}[network.cell]
    with FlopCounterMode(display=False) as counted:
        for _ in range(steps):
            width = network.inputs
            if network.input_width is not None:
                torch.ones(1, width) @ torch.ones(width, network.input_width)
                width = network.input_width
            for layer in network.widths:
                torch.ones(1, width) @ torch.ones(width, gates * layer)
                torch.ones(1, layer) @ torch.ones(layer, gates * layer)
                width = layer
        torch.ones(1, width) @ torch.ones(width, 1)
    assert counted.get_total_flops() == flops(network, steps)


def test_the_papers_megabytes_are_corrected() -> None:
    assert "0.27 MB" in slip(paper().complexity)
