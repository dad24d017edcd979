"""The shape of the replies that are added up, from the request alone; and what a client adds for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import MessageError
from fedprognos.evaluation import ScoreSums
from fedprognos.evaluation.metrics import sums_of
from fedprognos.federation.messages import (
    ErrorSums,
    EvaluateReply,
    EvaluateRequest,
    FitReply,
    FitRequest,
    OutputsReply,
    OutputsRequest,
)
from fedprognos.federation.score_messages import ResidualReply, ResidualRequest, ScoreReply, ScoreRequest
from fedprognos.federation.secure.survey import MomentsRequest, moments_template
from fedprognos.matching import OutputSums
from fedprognos.networks import HeadStatistics


@dataclass(frozen=True, eq=False)
class WeightedReply:
    """Trained weights times the number of windows behind them, and that number: sums make the weighted average."""

    windows: int
    weights: Mapping[str, FloatArray]

    def mean(self) -> dict[str, Any]:
        """The average over all windows."""
        return {name: (array / self.windows).astype(np.float32) for name, array in self.weights.items()}


def template_of(request: Any) -> Any:
    """A reply to this request with every part it may have."""
    match request:
        case EvaluateRequest():
            validation = ErrorSums(1, 0.0, 0.0, 0.0) if request.validation_fraction > 0 else None
            if not request.statistics:
                return EvaluateReply(validation)
            width = request.network.spec.features + 1
            sums = HeadStatistics(0, 0.0, np.zeros((width, width)), np.zeros(width))
            return EvaluateReply(validation, sums, sums if request.validation_fraction > 0 else None)
        case OutputsRequest():
            network = request.network
            widths = [network.widths[str(layer.group)] for layer in network.anatomy.layers[:-1]]
            return OutputsReply(tuple(OutputSums(0, 0, np.zeros(w), np.zeros((w, w))) for w in widths))
        case ResidualRequest():
            counts = np.zeros((len(request.ranges) + 1, len(request.edges) + 1), dtype=np.int64)
            return ResidualReply(counts, counts[:, 0], 0.0)
        case ScoreRequest():
            scores = ScoreSums(1, 1, dict.fromkeys(sums_of(request.recipe.task), 0.0))
            return ScoreReply(scores, scores)
        case FitRequest():
            shapes = request.shape.shapes
            return WeightedReply(1, {name: np.zeros(shapes[name]) for name in sorted(request.learnt)})
        case MomentsRequest():
            return moments_template(request)
    raise MessageError(f"answers to a {type(request).__name__} cannot be added up")


def summand(reply: Any) -> Any:
    """What a client adds to the total for its reply."""
    if isinstance(reply, FitReply):
        weighted = {name: reply.windows * array.astype(np.float64) for name, array in sorted(reply.weights.items())}
        return WeightedReply(reply.windows, weighted)
    return reply
