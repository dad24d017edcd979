"""Optimizers give what torch's own give, to the bit, and do not load torch's compiler."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from fedprognos.networks import OPTIMIZERS
from fedprognos.networks.optimizers import without_gradients

TORCH = {"adam": lambda *a, **k: torch.optim.AdamW(*a, fused=True, **k), "rmsprop": torch.optim.RMSprop}


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_steps_are_those_of_torch(name: str, weight_decay: float) -> None:
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape)) for shape in ((7, 3), (7,), (2, 7), (4,))]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    optimizer, reference = OPTIMIZERS[name](ours, weight_decay), TORCH[name](theirs, lr=1.0, weight_decay=weight_decay)
    for step in range(20):
        without_gradients(ours)
        reference.param_groups[0]["lr"] = rate = 0.01 / (1 + step)
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            a.grad, b.grad = (None, None) if k == 3 and step % 2 else (g := torch.randn_like(a) ** 3, g.clone())
        optimizer.step(rate)
        reference.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_training_does_not_load_the_compiler() -> None:
    program = """
import sys, numpy as np
from fedprognos.features import build_windows, recipe_for
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.fleet.synthetic import synthetic_engines
from fedprognos.networks import Network, NetworkSpec, Training, fit
fleet = synthetic_engines(sites=1, units_per_site=3, test_units_per_site=1)[0]
recipe = recipe_for(RecipeOptions(window=20, stride=5, cap=125, min_count=20), {"a": fleet})
start = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(4,)), 0)
fit(start, build_windows(recipe, fleet), None, recipe, Training(epochs=1, clip=1.0), seed=0)
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
