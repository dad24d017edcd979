"""What the report shows of a matching: who shares which neuron, and extractors before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedprognos.federation.plan import MatchedLayer, Round

EXTRACTORS = 10
"""Neurons whose output over a test window is drawn."""


def matching_details(matched: MatchedLayer) -> dict[str, Any]:
    """Width, share of neurons that all clients have, neurons that only one has."""
    matching = matched.matching
    clients = len(matching.assignments)
    holders = np.bincount(np.concatenate(list(matching.assignments.values())), minlength=matching.size)
    return {
        "layer": matched.layer,
        "width": matching.size,
        "shared_by_all": float((holders == clients).mean()),
        "singletons": {name: int(n) for name, n in sorted(matching.diagnostics.singletons.items())},
        "absorbing": matching.diagnostics.absorbing,
    }


def round_details(round_: Round, probe: NDArray[Any] | None) -> dict[str, object]:
    """Assignments of every layer, and in the first round what the matched extractors put out over a window."""
    layers = [
        {**matching_details(m), "assignments": {n: a.tolist() for n, a in sorted(m.matching.assignments.items())}}
        for m in round_.matched
    ]
    details: dict[str, object] = {"round": round_.number, "layers": layers}
    recurrent = [m for m in round_.matched if m.layer.startswith("recurrent")]
    if round_.number == 1 and recurrent and probe is not None:
        details["extractors"] = _extractors(recurrent[0], probe)
    return details


def _extractors(matched: MatchedLayer, window: NDArray[Any]) -> dict[str, Any]:
    """Outputs of ten neurons over one test window: each client's first ten, and the ten most shared matched ones."""
    probe = torch.from_numpy(window)
    holders = np.bincount(np.concatenate(list(matched.matching.assignments.values())), minlength=matched.matching.size)
    shared = np.argsort(-holders, kind="stable")[:EXTRACTORS]
    before, after = {}, {}
    for name, client in sorted(matched.before.items()):
        network = client.module()
        first = 1 if client.spec.input_width is None else 2
        with torch.no_grad():
            sequence = network.run(probe, 0, first - 1)
            outputs = network.stages()[first - 1](sequence)[0][0].numpy()
        place = {int(g): k for k, g in enumerate(matched.matching.assignments[name])}
        before[name] = [_rounded(outputs[:, k]) for k in range(min(EXTRACTORS, outputs.shape[1]))]
        after[name] = [_rounded(outputs[:, place[int(g)]]) if int(g) in place else None for g in shared]
    return {"layer": matched.layer, "neurons": shared.tolist(), "before": before, "after": after}


def _rounded(values: np.ndarray[Any, Any]) -> list[float]:
    return [round(float(v), 4) for v in values]
