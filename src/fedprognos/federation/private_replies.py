"""A client's answers under differential privacy."""

from __future__ import annotations

from fedprognos.errors import MessageError
from fedprognos.features import WindowSet
from fedprognos.federation.messages import EvaluateReply, EvaluateRequest, FitReply, FitRequest
from fedprognos.federation.privacy.statistics import private_statistics
from fedprognos.federation.privacy.training import private_fit


def private_evaluation(request: EvaluateRequest, train: WindowSet) -> EvaluateReply:
    """Noised statistics of the head, and nothing else."""
    if request.privacy is None:
        raise MessageError("a request without privacy")
    network = request.network.check("request")
    return EvaluateReply(None, private_statistics(network, train, request.recipe, request.privacy))


def private_fit_reply(request: FitRequest, train: WindowSet, seed: int) -> FitReply:
    """Weights after noised steps on all of these points; no error leaves, and counts are those of units or rows."""
    rule, start, plan = request.privacy, request.start, request.training
    if rule is None or start is None or request.frozen or plan.steps is not None:
        raise MessageError("privacy covers networks trained as a whole from a common start, by epochs")
    network, count = private_fit(
        start.check("request"), train, request.recipe, plan, rule, seed=seed, proximal=request.proximal
    )
    weights = {name: array for name, array in network.weights.items() if name in request.learnt}
    return FitReply(weights, count, (), plan.epochs, collapsed=False)
