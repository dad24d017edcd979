"""From a round to its record: who shares which neuron, which neuron was absorbed by which, outputs before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedprognos.evaluation import AbsorbedNeurons, Extractors, LayerMatch, MatchRound, Pair
from fedprognos.federation import AbsorptionRecord, MatchedLayer, Round
from fedprognos.networks import Network

EXTRACTORS = 10
"""Neurons, or pairs of them, whose output over a test window is drawn."""
WIDTHS = 100
"""Widths of which an error is written down."""


def layer_match(matched: MatchedLayer) -> LayerMatch:
    """A layer's matching as records hold it."""
    matching = matched.matching
    return LayerMatch(
        layer=matched.layer,
        width=matching.size,
        absorbing=matching.diagnostics.absorbing,
        assignments={name: tuple(slots.tolist()) for name, slots in sorted(matching.assignments.items())},
    )


def match_round(round_: Round, probe: NDArray[Any] | None) -> MatchRound:
    """Assignments of every layer, and in the first round what the matched extractors put out over a window."""
    recurrent = [m for m in round_.matched if m.layer.startswith("recurrent")]
    drawn = round_.number == 1 and recurrent and probe is not None
    return MatchRound(
        round=round_.number,
        layers=tuple(layer_match(m) for m in round_.matched),
        extractors=_extractors(recurrent[0], probe) if drawn and probe is not None else None,
        absorption=None if round_.absorbed is None else _absorption(round_.absorbed, probe),
    )


def _absorption(record: AbsorptionRecord, probe: NDArray[Any] | None) -> AbsorbedNeurons:
    """Who was kept, what every client contributes, whose features repeat, errors by width, and pairs of neurons."""
    widths = sorted(record.predicted)
    drawn = {widths[k] for k in np.linspace(0, len(widths) - 1, min(len(widths), WIDTHS)).round().astype(int)}
    return AbsorbedNeurons(
        neurons={name: len(neurons) for name, neurons in record.neurons.items()},
        kept=record.kept,
        whole=_four(record.whole),
        without={name: _four(error) for name, error in record.without.items()},
        repeats=tuple(tuple(_four(r2) for r2 in row) for row in record.repeats),
        predicted={width: _four(record.predicted[width]) for width in widths if width in {*drawn, record.width}},
        measured={width: _four(error) for width, error in sorted(record.measured.items())},
        pairs=_pairs(record, probe),
    )


def _pairs(record: AbsorptionRecord, probe: NDArray[Any] | None) -> tuple[Pair, ...]:
    """Pairs of an absorbed neuron and a kept one of another client, those with the most similar outputs."""
    kept, owner = record.result.kept[-1], np.empty(record.before.spec.hidden, dtype=object)
    place = np.empty(record.before.spec.hidden, dtype=np.int64)
    for name, neurons in record.neurons.items():
        owner[neurons], place[neurons] = name, np.arange(len(neurons))
    mean, C = record.sums.moments(starts=False)
    C = C[: len(owner), : len(owner)]
    sd = np.sqrt(np.maximum(C.diagonal(), 0.0))
    alike = np.abs(C) / np.maximum(np.outer(sd, sd), 1e-12)
    absorbed = np.setdiff1d(np.arange(len(owner)), kept)
    alike = np.where(owner[absorbed][:, None] != owner[kept][None, :], alike[np.ix_(absorbed, kept)], 0.0)
    before = None if probe is None else _outputs(record.before, probe)
    after = None if probe is None else _outputs(record.after, probe)
    pairs: list[Pair] = []
    while len(pairs) < EXTRACTORS and alike.size and alike.max() > 0:
        a, b = np.unravel_index(np.argmax(alike), alike.shape)
        m, j = int(absorbed[a]), int(kept[b])
        outputs: dict[str, Any] = {}
        if before is not None and after is not None:
            # What stands in for neuron m in the federated network: its mean, and a mixture of the neurons kept.
            stand_in = mean[m] + (after - mean[kept]) @ record.result.mixtures[-1][m]
            outputs["before"] = _rounded(before[:, m]), _rounded(before[:, j])
            outputs["after"] = _rounded(stand_in), _rounded(after[:, b])
        correlation = _four(C[m, j] / (sd[m] * sd[j]))
        absorbed_at, kept_at = (owner[m], int(place[m])), (owner[j], int(place[j]))
        pairs.append(Pair(absorbed=absorbed_at, kept=kept_at, correlation=correlation, **outputs))
        alike[a], alike[:, b] = 0.0, 0.0  # each neuron is in one pair at most
    return tuple(pairs)


def _outputs(network: Network, window: NDArray[Any]) -> NDArray[np.float32]:
    """What the last layer puts out over a window: (time, neurons)."""
    with torch.no_grad():
        return np.asarray(network.module().eval().body(torch.from_numpy(window))[0][0].numpy())


def _four(value: float) -> float:
    return float(f"{value:.4g}")


def _extractors(matched: MatchedLayer, window: NDArray[Any]) -> Extractors:
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
        before[name] = tuple(_rounded(outputs[:, k]) for k in range(min(EXTRACTORS, outputs.shape[1])))
        after[name] = tuple(_rounded(outputs[:, place[int(g)]]) if int(g) in place else None for g in shared)
    return Extractors(layer=matched.layer, neurons=tuple(shared.tolist()), before=before, after=after)


def _rounded(values: np.ndarray[Any, Any]) -> tuple[float, ...]:
    return tuple(round(float(v), 4) for v in values)
