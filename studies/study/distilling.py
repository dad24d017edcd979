"""Distilling: every client trains the small network to put out what the kept neurons put out in the large one.

Targets are the same function everywhere, so averages of what clients learn should not drift apart. The product does not
have this: part 8 of the study measures whether it should.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
import torch
from torch import nn

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.features import WindowSet, build_windows, hold_out
from fedprognos.federation.averages import average
from fedprognos.federation.plan import Plan
from fedprognos.networks import Network, Weights
from fedprognos.networks.batches import LifeBatches
from fedprognos.networks.fit import OPTIMIZERS, decay_share
from fedprognos.privacy.secret_split import SecretSplit, stream
from studies.study.bench import Bench
from studies.study.parts import SideBySide


@dataclass(frozen=True, eq=False)
class Teacher:
    """The large network, its neurons that the small one has to stand for, and how much each counts."""

    network: Network
    kept: IntArray
    scale: FloatArray

    @classmethod
    def of(cls, whole: SideBySide, width: int) -> Teacher:
        """All neurons kept count alike, whatever they vary by."""
        kept, hh = whole.result_at(width).kept[-1], whole.fit.hh
        variance = np.diag(hh)[:-1] / hh[-1, -1] - np.square(hh[-1, :-1] / hh[-1, -1])
        return cls(whole.network, kept, 1 / (width * variance[kept]))

    def teach(self, start: Network, part: WindowSet, plan: Plan, steps: int, rate: float, seed: int) -> Weights:
        """What a client with these windows makes of the small network."""
        module, large = start.module().train(), self.network.module().eval()
        body = [tensor for name, tensor in module.named_parameters() if not name.startswith("head")]
        data = LifeBatches(module, part, plan.recipe, plan.train.training(None), 0)
        epochs = max(round(steps / data.per_epoch), 1)
        optimizer = OPTIMIZERS[plan.train.optimizer](body, lr=rate, weight_decay=0.0)
        decay = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(decay_share, "cosine", epochs))
        places, scale = torch.from_numpy(self.kept), torch.from_numpy(self.scale.astype(np.float32))
        order = np.random.default_rng(seed)
        for _ in range(epochs):
            for x, _, counted in data.shown(order):
                with torch.no_grad(), large.in_blocks():
                    wanted = large.body(x, None)[0][..., places]
                missed = (torch.square(module.body(x, None)[0] - wanted) * scale).sum(-1)
                optimizer.zero_grad(set_to_none=True)
                ((counted * missed).sum() / counted.sum()).backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(body, plan.train.clip or np.inf)
                optimizer.step()
            decay.step()
        return Network.from_module(module).weights


def distilled(bench: Bench, plan: Plan, whole: SideBySide, width: int, *, steps: int, rate: float) -> Iterator[Network]:
    """The absorbed network after every round, without end: clients learn the states kept, and are averaged.

    Parameters
    ----------
    steps
        Gradient steps of a round.
    rate
        Learning rate at the start of each.
    """
    teacher, network = Teacher.of(whole, width), whole.at(width)
    parts = {name: _learnt_from(bench, plan, name) for name in bench.scenario.clients}
    sizes = {name: float(len(part)) for name, part in parts.items()}
    for round_ in count(1):
        seeds = {name: stream(plan.seed, name, round_, "distil") for name in parts}
        learnt = {n: teacher.teach(network, part, plan, steps, rate, seeds[n]) for n, part in parts.items()}
        network = Network(network.spec, average(learnt, network.spec.anatomy, how="weighted", sizes=sizes))
        yield network


def _learnt_from(bench: Bench, plan: Plan, name: str) -> WindowSet:
    """What a client trains on: as it deals its units itself."""
    fraction = plan.train.validation_fraction
    windows = build_windows(plan.recipe, bench.scenario.clients[name])
    return hold_out(windows, fraction, SecretSplit().stream(plan.seed, name, "validation", fraction))[0]
