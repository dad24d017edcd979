"""A client: a private fleet and its answers."""

from __future__ import annotations

from collections.abc import Callable

from fedprognos.errors import FedprognosError
from fedprognos.features import Recipe, WindowSet, build_windows, hold_out, survey
from fedprognos.federation.messages import Failure, FitReply, FitRequest, Reply, Request, SurveyReply, SurveyRequest
from fedprognos.federation.seeds import stream
from fedprognos.fleet import Fleet
from fedprognos.model import Epoch, HealthNetwork, fit, network_with

MIN_COUNT = 20
"""No statistic of fewer rows than this leaves a client, whatever it is asked."""

OnEpoch = Callable[[Epoch], None]


class Client:
    """Holds one owner's training fleet and answers requests from it.

    Parameters
    ----------
    min_count
        The owner's own floor; a request can raise it but not lower it.
    """

    def __init__(self, name: str, fleet: Fleet, min_count: int = MIN_COUNT) -> None:
        self.name, self.fleet, self.min_count = name, fleet, min_count
        self._windows: tuple[str, WindowSet] | None = None

    def answer(self, request: Request, on_epoch: OnEpoch | None = None) -> Reply:
        """Answer one request; raise where it cannot be answered."""
        match request:
            case SurveyRequest():
                floor = max(self.min_count, request.section.min_count)
                return SurveyReply(survey(self.fleet, request.section.model_copy(update={"min_count": floor})))
            case FitRequest():
                return self._fit(request, on_epoch)

    def _fit(self, request: FitRequest, on_epoch: OnEpoch | None) -> FitReply:
        windows = self._windows_for(request.recipe)
        train, validation = hold_out(
            windows, request.plan.validation_fraction, stream(request.seed, self.name, 0, "validation")
        )
        if request.weights is None:
            bias = float(request.recipe.encode(train.labels).mean())
            network = HealthNetwork.seeded(request.network, stream(request.seed, self.name, 0, "weights"), bias)
        else:
            network = network_with(request.network, request.weights, f"client {self.name}")
        result = fit(
            network,
            train,
            validation,
            request.recipe,
            request.plan,
            seed=stream(request.seed, self.name, 0, "batches"),
            frozen=request.frozen,
            on_epoch=on_epoch,
        )
        return FitReply(result.weights, result.windows, result.history, result.best_epoch, result.collapsed)

    def _windows_for(self, recipe: Recipe) -> WindowSet:
        """Windows are built once for a recipe, not for every request."""
        key = recipe.to_json()
        if self._windows is None or self._windows[0] != key:
            self._windows = (key, build_windows(recipe, self.fleet))
        return self._windows[1]


def failure(client: str, error: Exception) -> Failure:
    """What a peer may know of an error: its kind. The full text stays with the owner."""
    if isinstance(error, FedprognosError):
        return Failure(client, error.code, str(error))
    return Failure(client, "internal", f"{type(error).__name__}: {error}")
