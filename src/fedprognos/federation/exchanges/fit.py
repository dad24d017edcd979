"""Fit: a client trains a network on its windows and sends the weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import MessageError
from fedprognos.features import Recipe, WindowSet, joined, running_windows
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.exchanges import Cost, Exchange, OnEpoch, Words, exchanges
from fedprognos.federation.limits import MAX_EPOCHS, run_cost
from fedprognos.federation.plausible import check_count, check_weights_size
from fedprognos.federation.totals import masked_total
from fedprognos.fleet import Fleet
from fedprognos.networks import BATCH, Epoch, Network, NetworkSpec, Training, Weights, check_weights, fit
from fedprognos.privacy import Privacy, private_fit, stream

if TYPE_CHECKING:
    from fedprognos.federation.client import Client
    from fedprognos.federation.plan import Plan


@dataclass(frozen=True, eq=False)
class FitRequest:
    """Train a network on your windows and send what was learnt: a new one of shape `spec`, or on from `start`.

    Parameters
    ----------
    seed, round, phase
        Decide the client's random streams, together with its name.
    frozen
        Layers from the first that stay as they are and are not sent back.
    proximal
        FedProx's mu.
    without_reserve
        Leave out the units of the client's reserve.
    privacy
        Clip gradients and add noise at every epoch; no error is sent.
    """

    recipe: Recipe
    training: Training
    validation_fraction: float
    seed: int
    spec: NetworkSpec | None = None
    start: Network | None = None
    round: int = 1
    phase: str = "local"
    frozen: int = 0
    proximal: float = 0.0
    without_reserve: bool = False
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        if (self.spec is None) == (self.start is None):
            raise MessageError("a fit needs the shape of a new network or a network to start from, not both")

    @property
    def shape(self) -> NetworkSpec:
        """The shape of the network to train."""
        return self.start.spec if self.start is not None else self.spec  # type: ignore[return-value]

    @property
    def learnt(self) -> frozenset[str]:
        """Names of the tensors that a fit sends back: those of the layers that were not frozen."""
        return frozenset(name for layer in self.shape.anatomy.layers[self.frozen :] for name in layer.tensors)


@dataclass(frozen=True, eq=False)
class FitReply:
    """The tensors that were trained and how training went."""

    weights: Weights
    windows: int
    history: tuple[Epoch, ...]
    best_epoch: int
    collapsed: bool


@dataclass(frozen=True, eq=False)
class WeightedReply:
    """Trained weights times the number of windows behind them, and that number: sums make the weighted average."""

    windows: int
    weights: Mapping[str, FloatArray]

    def mean(self) -> dict[str, Any]:
        """The average over all windows."""
        return {name: (array / self.windows).astype(np.float32) for name, array in self.weights.items()}


def answer(client: Client, request: FitRequest, on_epoch: OnEpoch | None) -> FitReply:
    """Train; the order of the data is the client's secret where it has one."""
    if not 0 <= request.frozen < request.shape.layers:
        raise MessageError(f"cannot freeze {request.frozen} of {request.shape.layers} layers")
    order = client.split.order(request.seed, client.name, request.round, request.phase)
    if request.privacy is not None:
        points, _ = client.head_parts(request.recipe, request.seed, 0.0, request.without_reserve)
        return _private_answer(request, request.privacy, points, order)
    train, validation = client.parts(request.recipe, request.seed, request.validation_fraction, request.without_reserve)
    client.floors.check(train)
    if request.start is None:
        bias = float(request.recipe.encode(train.labels).mean())
        weights_seed = stream(request.seed, client.name, 0, "weights")
        start = Network.seeded(request.shape, weights_seed, bias, request.training.forget_bias)
    else:
        start = request.start.check("request")
    running = running_windows(request.recipe, client.fleet) if request.training.running else None
    result = fit(
        start,
        train if running is None else joined(train, running),
        validation,
        request.recipe,
        request.training,
        seed=order,
        device=client.device,
        frozen=request.frozen,
        proximal=request.proximal,
        on_epoch=on_epoch,
    )
    weights = {name: array for name, array in result.network.weights.items() if name in request.learnt}
    # A small validation part still decides when training stops, but its errors do not leave.
    errors_leave = client.floors.enough(validation)
    history = tuple(epoch if errors_leave else replace(epoch, validation_rmse=None) for epoch in result.history)
    # A client counts by its labelled points: those of units that still run are not among the points it declared.
    return FitReply(weights, len(train), history, result.best_epoch, result.collapsed)


def _private_answer(request: FitRequest, privacy: Privacy, points: WindowSet, order: int) -> FitReply:
    """Weights after noised steps on all points; no error leaves, and counts are those of units or rows."""
    if request.start is None or request.frozen or request.training.steps is not None:
        raise MessageError("privacy covers networks trained as a whole from a common start, by epochs")
    start = request.start.check("request")
    network, count = private_fit(
        start, points, request.recipe, request.training, privacy, seed=order, proximal=request.proximal
    )
    weights = {name: array for name, array in network.weights.items() if name in request.learnt}
    return FitReply(weights, count, (), request.training.epochs, collapsed=False)


def cost(request: FitRequest, fleet: Fleet) -> Cost:
    """An epoch is a pass forward and about two backward."""
    if request.training.epochs > MAX_EPOCHS:
        raise MessageError(f"asks for more than {MAX_EPOCHS} epochs")
    batch, passes = request.training.batch_size or BATCH, 3.0 * request.training.epochs
    return run_cost(request.recipe, request.shape, fleet, passes=passes, squares=False, batch=batch)


def check(request: FitRequest, reply: FitReply | WeightedReply, most_points: int) -> None:
    """The tensors asked for, of plausible size; a sum is checked by its mean."""
    start = {} if request.start is None else dict(request.start.weights)
    check_count(reply.windows, most_points)
    if isinstance(reply, WeightedReply):
        mean = reply.mean()
        check_weights(request.shape, {**start, **mean}, "sum")
        check_weights_size(mean)
        return
    if set(reply.weights) != request.learnt:
        raise MessageError("sent other tensors than asked for")
    check_weights(request.shape, {**start, **reply.weights}, "reply")
    check_weights_size(reply.weights)
    if len(reply.history) > (request.training.steps or request.training.epochs):  # an epoch has at least one step
        raise MessageError("sent a history of more epochs than asked for")
    if any(not (e.train_rmse >= 0 and (e.validation_rmse is None or e.validation_rmse >= 0)) for e in reply.history):
        raise MessageError("sent a training history with negative errors")


def template(request: FitRequest) -> WeightedReply:
    """Zeros for every tensor that is sent back."""
    shapes = request.shape.shapes
    return WeightedReply(1, {name: np.zeros(shapes[name]) for name in sorted(request.learnt)})


def summand(reply: FitReply) -> WeightedReply:
    """Weights times windows: their sum over the sum of windows is the weighted mean."""
    weighted = {name: reply.windows * array.astype(np.float64) for name, array in sorted(reply.weights.items())}
    return WeightedReply(reply.windows, weighted)


@dataclass(frozen=True, eq=False)
class ClientModels:
    """What some clients trained: by name, each one's network, number of windows and training history."""

    networks: Mapping[str, Network]
    sizes: Mapping[str, int]
    history: Mapping[str, tuple[Epoch, ...]]
    collapsed: frozenset[str] = frozenset()

    def only(self, names: Iterable[str]) -> ClientModels:
        """Those of some clients."""
        kept = set(names)
        return ClientModels(
            {n: v for n, v in self.networks.items() if n in kept},
            {n: v for n, v in self.sizes.items() if n in kept},
            {n: v for n, v in self.history.items() if n in kept},
            self.collapsed & kept,
        )


def fit_request(
    plan: Plan,
    start: Network | None,
    epochs: int | None,
    round_: int,
    phase: str = "local",
    frozen: int = 0,
    proximal: float = 0.0,
    privacy: Privacy | None = None,
) -> FitRequest:
    """What a client is asked to train: on from a network, or one of its own."""
    return FitRequest(
        plan.recipe,
        plan.train.training(epochs),
        plan.train.validation_fraction,
        plan.seed,
        plan.spec if start is None else None,
        start,
        round_,
        phase,
        frozen,
        proximal,
        plan.without_reserve,
        privacy,
    )


def train(
    cohort: Cohort,
    plan: Plan,
    starts: Mapping[str, Network | None],
    *,
    epochs: int | None,
    round_: int,
    phase: str = "local",
    frozen: int = 0,
    proximal: float = 0.0,
) -> ClientModels:
    """Clients train from the networks given, or from weights of their own where None is given."""
    privacy = plan.gradient_privacy(cohort)
    # One request object for each different start: a cohort encodes every object once.
    request_from = {
        id(start): fit_request(plan, start, epochs, round_, phase, frozen, proximal, privacy)
        for start in starts.values()
    }
    requests = {name: request_from[id(start)] for name, start in starts.items()}
    replies = gather(cohort, requests, FitReply, plan.federation.min_clients, plan.left_out)
    networks = {}
    for name, reply in replies.items():
        start = starts[name]
        frozen_weights = {} if start is None else start.weights
        networks[name] = Network(requests[name].shape, {**frozen_weights, **reply.weights})
    return ClientModels(
        networks,
        {name: reply.windows for name, reply in replies.items()},
        {name: reply.history for name, reply in replies.items()},
        frozenset(name for name, reply in replies.items() if reply.collapsed),
    )


def masked_mean(
    cohort: Cohort, plan: Plan, starts: Mapping[str, Network], *, epochs: int | None, round_: int, proximal: float = 0.0
) -> Network:
    """Clients train from one network; the mean of what they learnt, weighted by their windows, from masked sums."""
    start = next(iter(starts.values()))
    request = fit_request(plan, start, epochs, round_, proximal=proximal, privacy=plan.gradient_privacy(cohort))
    least = plan.federation.min_clients
    return Network(start.spec, masked_total(cohort, dict.fromkeys(starts, request), least, plan.left_out).mean())


exchanges.add(
    Exchange(
        FitRequest,
        FitReply,
        30,
        Words(
            "training",
            "weights trained here, the number of windows, the errors of every epoch",
            "whoever has a row can guess whether it was trained on",
        ),
        answer,
        cost,
        check,
        template=template,
        summand=summand,
    )
)
