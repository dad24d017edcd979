"""The one place that looks at a client's reply before it is used or remembered.

What no honest client can have sent becomes a failure of its sender, and of nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import FedprognosError, MessageError
from fedprognos.features import Recipe
from fedprognos.federation.messages import (
    ErrorSums,
    EvaluateReply,
    EvaluateRequest,
    Failure,
    FitReply,
    FitRequest,
    ImportReply,
    ImportRequest,
    OutputsReply,
    OutputsRequest,
    Reply,
    Request,
    SurveyReply,
    SurveyRequest,
)
from fedprognos.federation.pool_messages import PersonalReply, PersonalRequest, PoolReply, PoolRequest
from fedprognos.federation.score_messages import ResidualReply, ResidualRequest, ScoreReply, ScoreRequest
from fedprognos.federation.secure.survey import MomentsReply, MomentsRequest, OutlineReply, OutlineRequest
from fedprognos.federation.secure.templates import WeightedReply
from fedprognos.federation.survey_checks import (
    LARGEST_VALUE,
    MOST_ROWS,
    ROUNDING,
    check_count,
    check_outline,
    check_survey,
)
from fedprognos.matching import OutputSums
from fedprognos.networks import NetworkSpec, check_weights
from fedprognos.networks.calibration import POINTS
from fedprognos.networks.cells import cells
from fedprognos.networks.head import UNIT_WEIGHT, HeadStatistics
from fedprognos.networks.pooling import CentredSums, pooled_fits

LARGEST_WEIGHT = 1e4
"""No trained weight is larger."""
TESTED = 10
"""Test points that a client may have for each of its labelled ones."""
EXPECTED: Mapping[type[Request], type[Reply]] = {
    SurveyRequest: SurveyReply,
    ImportRequest: ImportReply,
    FitRequest: FitReply,
    EvaluateRequest: EvaluateReply,
    OutputsRequest: OutputsReply,
    PoolRequest: PoolReply,
    PersonalRequest: PersonalReply,
    ResidualRequest: ResidualReply,
    ScoreRequest: ScoreReply,
    OutlineRequest: OutlineReply,
}


def checked(name: str, request: Request, reply: Reply | Failure, declared: dict[str, int]) -> Reply | Failure:
    """The reply, or a failure of its sender where it cannot be true.

    Parameters
    ----------
    declared
        Labelled points that each client said it has. A survey or an imported model adds to it; later replies cannot be
        about more.
    """
    if isinstance(reply, Failure) or type(request) not in EXPECTED:
        return reply
    try:
        if not isinstance(reply, EXPECTED[type(request)]):
            raise MessageError("sent another kind of message")
        check_reply(request, reply, declared.get(name, MOST_ROWS))
    except (FedprognosError, ValueError, OverflowError) as error:
        return Failure(name, "message", error.what if isinstance(error, FedprognosError) else str(error))
    if isinstance(reply, SurveyReply):
        declared[name] = reply.survey.labels.n
    if isinstance(reply, ImportReply):
        declared.setdefault(name, reply.windows)
    return reply


def check_reply(request: Any, reply: Any, most_rows: int = MOST_ROWS) -> None:
    """Raise where a reply cannot be an honest one to this request, from a client of so many labelled points."""
    match request, reply:
        case SurveyRequest(), SurveyReply():
            check_survey(request.terms, reply.survey)
        case OutlineRequest(), OutlineReply():
            check_outline(request.terms, reply)
        case ImportRequest(), ImportReply():
            reply.network.check("reply")
            _check_size(reply.network.weights)
            check_count(reply.windows, most_rows)
        case FitRequest(), FitReply():
            _check_fit(request, reply, most_rows)
        case FitRequest(), WeightedReply():
            check_count(reply.windows, most_rows)
            mean = reply.mean()
            check_weights(request.shape, {**({} if request.start is None else request.start.weights), **mean}, "sum")
            _check_size(mean)
        case MomentsRequest(), MomentsReply():
            for sums in (*reply.cells.values(), reply.labels):
                check_count(sums.n, most_rows)
                sums.check(LARGEST_VALUE, ROUNDING)
        case EvaluateRequest(), EvaluateReply():
            _check_evaluation(request, reply, most_rows)
        case OutputsRequest(), OutputsReply():
            _check_outputs(request, reply, most_rows)
        case PoolRequest(), PoolReply():
            _check_pool(request, reply, most_rows)
        case PersonalRequest(), PersonalReply():
            check_count(reply.windows, most_rows)
        case ResidualRequest(), ResidualReply():
            _check_residuals(request, reply, most_rows)
        case ScoreRequest(), ScoreReply():
            for part, most in ((reply.test, TESTED * most_rows), (reply.validation, most_rows)):
                if part is not None:
                    check_count(part.n, min(most, MOST_ROWS))


def _check_fit(request: FitRequest, reply: FitReply, most_rows: int) -> None:
    if set(reply.weights) != request.learnt:
        raise MessageError("sent other tensors than asked for")
    known = {} if request.start is None else dict(request.start.weights)
    check_weights(request.shape, {**known, **reply.weights}, "reply")
    _check_size(reply.weights)
    check_count(reply.windows, most_rows)
    if len(reply.history) > (request.training.steps or request.training.epochs):  # an epoch has a step at least
        raise MessageError("sent a history of more epochs than asked for")
    if any(not (e.train_rmse >= 0 and (e.validation_rmse is None or e.validation_rmse >= 0)) for e in reply.history):
        raise MessageError("sent a training history with negative errors")


def _check_size(weights: Mapping[str, NDArray[np.float32]]) -> None:
    for name, tensor in weights.items():
        if tensor.size and float(np.abs(tensor).max()) > LARGEST_WEIGHT:
            raise MessageError(f"sent weights beyond {LARGEST_WEIGHT:g} in tensor '{name[:60]}'")


def _check_evaluation(request: EvaluateRequest, reply: EvaluateReply, most_rows: int) -> None:
    if reply.validation is not None:
        _check_errors(reply.validation, request.recipe, most_rows)
    if not request.statistics:
        if reply.fit is not None or reply.held is not None:
            raise MessageError("sent statistics that were not asked for")
        return
    if reply.fit is None:
        raise MessageError("sent no statistics")
    if request.privacy is not None:  # noise breaks every other rule
        _check_shape(request.network.spec, reply.fit)
        return
    if request.alike:
        most_rows *= UNIT_WEIGHT
    check_statistics(request.network.spec, request.recipe, reply.fit, most_rows)
    if reply.held is not None:
        check_statistics(request.network.spec, request.recipe, reply.held, most_rows - reply.fit.n)


def _check_errors(sums: ErrorSums, recipe: Recipe, most_rows: int) -> None:
    check_count(sums.n, most_rows)
    largest = (recipe.cap or LARGEST_VALUE) * (1 + ROUNDING)
    room = 1 + ROUNDING
    if (
        abs(sums.error) > sums.absolute * room + ROUNDING
        or sums.absolute > sums.n * largest
        or sums.absolute**2 > sums.squared * sums.n * room + ROUNDING
        or sums.squared > sums.absolute * largest * room + ROUNDING
    ):
        raise MessageError("sent sums that no predictions have")


def check_statistics(spec: NetworkSpec, recipe: Recipe, statistics: HeadStatistics, most_rows: int) -> None:
    """Raise where no rows of this network's features and labels have these sums."""
    check_count(statistics.n, most_rows)
    _check_shape(spec, statistics)
    hh, n = statistics.hh, statistics.n
    if abs(hh[-1, -1] - n) > ROUNDING * n or not np.allclose(hh[-1], hh[:, -1], rtol=ROUNDING, atol=ROUNDING):
        raise MessageError("sent statistics whose column of ones does not add up")
    sums = statistics.sums
    sums.check(bounded=False, label_range=_label_range(recipe))
    bounded = (spec.hidden if cells[spec.cell].bounded else 0, spec.reservoir)
    inside = np.r_[0 : bounded[0], spec.hidden : spec.hidden + bounded[1]]
    if (sums.S.diagonal()[inside] > n * (1 + ROUNDING)).any():
        raise MessageError("sent outputs outside [-1, 1]")
    if len(hh) > 1 and sums.S.diagonal().max() > n * LARGEST_VALUE**2:
        raise MessageError("sent features beyond all measure")


def _check_shape(spec: NetworkSpec, statistics: HeadStatistics) -> None:
    hh, hy, width = statistics.hh, statistics.hy, spec.features + 1
    if hh.shape != (width, width) or hy.shape != (width,):
        raise MessageError(f"sent statistics of shape {hh.shape} and {hy.shape} for {width} columns")


def _label_range(recipe: Recipe) -> tuple[float, float]:
    """Lowest and highest standardised label there can be."""
    low = 0.0 if recipe.task == "rul" else -LARGEST_VALUE
    high = LARGEST_VALUE if recipe.cap is None else recipe.cap
    return (low - recipe.label_mean) / recipe.label_std, (high - recipe.label_mean) / recipe.label_std


def _check_outputs(request: OutputsRequest, reply: OutputsReply, most_rows: int) -> None:
    network = request.network
    layers = network.anatomy.layers[:-1]
    widths = [network.widths[str(layer.group)] for layer in layers]
    if [len(o.s) for o in reply.layers] != widths:
        raise MessageError(f"sent sums of layers of {[len(o.s) for o in reply.layers]} neurons instead of {widths}")
    for layer, o in zip(layers, reply.layers, strict=True):
        check_count(o.n, most_rows * max(request.recipe.window, 2))  # lives have rows that are no points, too
        if not 0 <= o.starts <= o.n:
            raise MessageError("sent more beginnings than time steps")
        bounded = layer.is_recurrent and cells[network.spec.cell].bounded
        o.check(bounded=bounded)


def _check_pool(request: PoolRequest, reply: PoolReply, most_rows: int) -> None:
    if len(reply.fits) != pooled_fits(request.network, request.validation_fraction) or reply.fits[-1] is None:
        raise MessageError("sent sums of other points than asked for")
    for one in reply.fits:
        if one is not None:
            _check_centred(one, request.network.spec.features, most_rows)


def _check_centred(sums: CentredSums, columns: int, most_rows: int) -> None:
    sums.check(columns)
    check_count(sums.n, most_rows)
    zero = np.zeros(columns)
    OutputSums(sums.n, 0, zero, sums.matrix()).check(bounded=False)
    if columns and np.abs(sums.slope).max() > sums.n * LARGEST_VALUE**2:
        raise MessageError("sent slopes beyond all measure")


def _check_residuals(request: ResidualRequest, reply: ResidualReply, most_rows: int) -> None:
    shape, counts, units = (len(request.ranges) + 1, len(request.edges) + 1), reply.counts, reply.units
    if (
        counts.shape != shape
        or units.shape != shape[:1]
        or counts.dtype != np.int64
        or units.dtype != np.int64
        or min(counts.min(), units.min(), reply.squared) < 0
        or units.max() > most_rows
        or counts.sum() > POINTS * min(int(units.sum()), most_rows)
        or (counts.sum(axis=1) < units).any()
    ):
        raise MessageError("sent an invalid residual histogram")
