"""What the report shows of a matching: who shares which neuron, who absorbed which, and extractors before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedprognos.federation.absorption import AbsorptionRecord
from fedprognos.federation.plan import MatchedLayer, Round
from fedprognos.networks import Network

EXTRACTORS = 10
"""Neurons, or pairs of them, whose output over a test window is drawn."""
WIDTHS = 100
"""Widths of which an error is written down."""


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
    if round_.absorbed is not None:
        details["absorption"] = _absorption(round_.absorbed, probe)
    return details


def _absorption(record: AbsorptionRecord, probe: NDArray[Any] | None) -> dict[str, Any]:
    """Who was kept, what every client contributes, whose features repeat, errors by width, and pairs of neurons."""
    widths = sorted(record.predicted)
    drawn = {widths[k] for k in np.linspace(0, len(widths) - 1, min(len(widths), WIDTHS)).round().astype(int)}
    return {
        "neurons": {name: len(own) for name, own in record.neurons.items()},
        "kept": record.kept,
        "alpha": record.alpha,
        "whole": _four(record.whole),
        "without": {name: _four(error) for name, error in record.without.items()},
        "repeats": [[_four(r2) for r2 in row] for row in record.repeats],
        "predicted": {width: _four(record.predicted[width]) for width in widths if width in {*drawn, record.width}},
        "measured": {width: _four(error) for width, error in sorted(record.measured.items())},
        "pairs": _pairs(record, probe),
    }


def _pairs(record: AbsorptionRecord, probe: NDArray[Any] | None) -> list[dict[str, Any]]:
    """Absorbed neurons and the kept ones of other clients that put out most nearly the same."""
    kept, owner = record.result.kept[-1], np.empty(record.before.spec.hidden, dtype=object)
    place = np.empty(record.before.spec.hidden, dtype=np.int64)
    for name, own in record.neurons.items():
        owner[own], place[own] = name, np.arange(len(own))
    mean, C = record.sums.moments(starts=False)
    C = C[: len(owner), : len(owner)]
    sd = np.sqrt(np.maximum(C.diagonal(), 0.0))
    alike = np.abs(C) / np.maximum(np.outer(sd, sd), 1e-12)
    gone = np.setdiff1d(np.arange(len(owner)), kept)
    alike = np.where(owner[gone][:, None] != owner[kept][None, :], alike[np.ix_(gone, kept)], 0.0)
    before = None if probe is None else _outputs(record.before, probe)
    after = None if probe is None else _outputs(record.after, probe)
    found: list[dict[str, Any]] = []
    while len(found) < EXTRACTORS and alike.size and alike.max() > 0:
        a, b = np.unravel_index(np.argmax(alike), alike.shape)
        m, j = int(gone[a]), int(kept[b])
        pair: dict[str, Any] = {
            "absorbed": [owner[m], int(place[m])],
            "kept": [owner[j], int(place[j])],
            "correlation": _four(C[m, j] / (sd[m] * sd[j])),
        }
        if before is not None and after is not None:
            beta = record.result.mixtures[-1][m]
            stand_in = mean[m] + (after - mean[kept]) @ beta
            pair |= {"before": [_rounded(before[:, m]), _rounded(before[:, j])]}
            pair |= {"after": [_rounded(stand_in), _rounded(after[:, b])]}
        found.append(pair)
        alike[a], alike[:, b] = 0.0, 0.0
    return found


def _outputs(network: Network, window: NDArray[Any]) -> NDArray[np.float32]:
    """What the last layer puts out over a window: (time, neurons)."""
    with torch.no_grad():
        return np.asarray(network.module().eval().body(torch.from_numpy(window))[0][0].numpy())


def _four(value: float) -> float:
    return float(f"{value:.4g}")


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
