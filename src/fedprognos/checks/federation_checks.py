"""What averages, privacy mechanisms, exchanges and strategies promise."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.checks.requirement import check_named, require, same_bytes
from fedprognos.errors import FederationError, FedprognosError
from fedprognos.features import Recipe, RecipeOptions, recipe_for
from fedprognos.federation import (
    Aggregator,
    Client,
    ClientFolder,
    MessageCohort,
    Plan,
    Round,
    aggregators,
    average,
    decode,
    encode,
    federation_options,
)
from fedprognos.federation.exchanges import Exchange, Failure, exchanges, reply_kinds
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.fleet import Fleet
from fedprognos.fleet.synthetic import synthetic_engines
from fedprognos.networks import Network, NetworkSpec, Places, TrainOptions, anatomy_of
from fedprognos.privacy import Mechanism, to_vector

ANATOMY = anatomy_of("gru", 1, False)
GROUP, WIDTH, INPUTS = "recurrent.0", 6, 2
Tensors = dict[str, FloatArray]


def check_average(aggregator: Aggregator) -> None:
    """Check a way to average the tensors of several clients.

    - The result is finite, has the clients' type, and does not depend on the order of the clients.
    - Clients that agree are averaged to what they agree on.
    - Neurons that are moved to other places move in the result; a neuron that nobody holds is zero.
    - A `robust` one keeps near the honest clients, whatever one client in five sends.

    Raises
    ------
    CheckError
        The first promise that the average breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_average(fp.registry.aggregators["median"])
    """
    where = check_named("average", aggregator)
    rng = np.random.default_rng(0)
    with aggregators.including([aggregator]):
        clients = {name: _random_tensors(rng, WIDTH - 1) for name in "abcde"}
        places = {name: {GROUP: rng.permutation(WIDTH - 1)} for name in clients}
        result = _averaged(aggregator, clients, places)
        for name, tensor in result.items():
            at = f"{where}, tensor '{name}'"
            require(np.isfinite(tensor).all(), "the average is not finite", where=at)
            require(tensor.dtype == np.float32, f"the average of float32 is {tensor.dtype}", where=at)
        turned = _averaged(aggregator, dict(reversed(clients.items())), places)
        same = all(same_bytes(tensor, turned[name]) for name, tensor in result.items())
        require(same, "clients in another order give another average", where=where)
        _check_places(aggregator, clients, places, result, where)
        agreed = _averaged(aggregator, dict.fromkeys(clients, clients["a"]))
        close = all(np.allclose(tensor, clients["a"][name], rtol=1e-5, atol=1e-6) for name, tensor in agreed.items())
        require(close, "five equal clients do not give what they agree on", where=where)
        if aggregator.robust:
            _check_robust(aggregator, rng, where)


def _random_tensors(rng: np.random.Generator, width: int) -> Tensors:
    lengths = {None: INPUTS, GROUP: width}
    shapes = {
        name: tuple(axis.gates * lengths[axis.group] for axis in axes)
        for name, axes in ANATOMY.axes.items()
        if not name.startswith("head")
    }
    shapes |= {"head.weight": (1, width), "head.bias": (1,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def _averaged(
    aggregator: Aggregator,
    clients: Mapping[str, Mapping[str, FloatArray]],
    places: Mapping[str, Places] | None = None,
) -> Tensors:
    widths = None if places is None else {GROUP: WIDTH}
    sizes = {name: 10.0 * (k + 1) for k, name in enumerate(sorted(clients))}
    # Without a prior: it would draw neurons towards zero, also where all clients agree.
    return average(clients, ANATOMY, places, widths, how=aggregator.name, sizes=sizes, ratio=0.0)


def _check_places(
    aggregator: Aggregator,
    clients: Mapping[str, Tensors],
    places: Mapping[str, dict[str, IntArray]],
    result: Tensors,
    where: str,
) -> None:
    head = result["head.weight"]
    require(head[0, WIDTH - 1] == 0, "a neuron that no client holds is not zero", where=where)
    mirrored = {name: {GROUP: WIDTH - 1 - place[GROUP]} for name, place in places.items()}
    other = _averaged(aggregator, clients, mirrored)["head.weight"]
    require(
        np.allclose(other[:, ::-1], head, atol=1e-6),
        "neurons in other places give other values",
        where=where,
        hint="treat every row of a stack alike",
    )


def _check_robust(aggregator: Aggregator, rng: np.random.Generator, where: str) -> None:
    centre = _random_tensors(rng, WIDTH)
    honest = {
        name: {key: tensor + 0.1 * rng.normal(size=tensor.shape) for key, tensor in centre.items()} for name in "abcd"
    }
    mean = {key: np.mean([tensors[key] for tensors in honest.values()], axis=0) for key in centre}

    def distance(tensors: Mapping[str, FloatArray]) -> float:
        return float(np.sqrt(sum(np.square(tensors[key] - mean[key]).sum() for key in mean)))

    widest = max(map(distance, honest.values()))
    for size in (10.0, -50.0, 1e6, 1e30):
        hostile = {key: np.full_like(tensor, size) for key, tensor in centre.items()}
        moved = distance(_averaged(aggregator, {**honest, "e": hostile}))
        require(
            moved <= 2 * widest,
            f"one client in five that sends {size:g} moves the average by {moved:g}",
            where=where,
            hint=f"the honest clients are at most {widest:.3g} from their mean; set robust=False if this must be",
        )


def check_mechanism(mechanism: Mechanism) -> None:
    """Check a privacy mechanism.

    - Its noise spends the planned epsilon and no more; more noise spends less, more releases spend more.
    - Numbers get noise of the deviation asked for; the same seed gives the same noise, and no seed new noise.

    Raises
    ------
    CheckError
        The first promise that the mechanism breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_mechanism(fp.registry.mechanisms["gaussian"])
    """
    where, delta = check_named("privacy mechanism", mechanism), 1e-5
    for epsilon, releases in ((1.0, 1), (1.0, 7), (10.0, 300), (100.0, 3)):
        noise = mechanism.noise(epsilon, delta, releases)
        spent = mechanism.account(noise, releases, delta)
        at = f"{where}, {releases} releases"
        require(spent <= epsilon * (1 + 1e-9), f"spends epsilon {spent:g} where {epsilon:g} was planned", where=at)
        require(spent >= epsilon * (1 - 1e-3), f"spends only {spent:g} of epsilon {epsilon:g}", where=at)
        require(mechanism.account(2 * noise, releases, delta) < spent, "more noise does not spend less", where=at)
        require(mechanism.account(noise, 2 * releases, delta) > spent, "more releases do not spend more", where=at)
    zeros, bound, noise = np.zeros(20_000), 3.0, 2.0
    drawn = mechanism.apply(zeros, bound, noise, 1)
    require(drawn.shape == zeros.shape, f"noised sums have shape {drawn.shape}, not {zeros.shape}", where=where)
    # A deviation from 20,000 numbers is right to 0.5 %; 5 % is ten times that.
    deviation = float(np.std(drawn)) / (noise * bound)
    require(abs(deviation - 1) < 0.05, f"the noise has {deviation:.3f} of its deviation", where=where)
    require(same_bytes(drawn, mechanism.apply(zeros, bound, noise, 1)), "the same seed gives other noise", where=where)
    fresh = mechanism.apply(zeros, bound, noise, None)
    require(
        not same_bytes(fresh, mechanism.apply(zeros, bound, noise, None)),
        "two calls without a seed give the same noise",
        where=where,
        hint="draw a seed with the module secrets",
    )


def check_exchange(exchange: Exchange, request: Any, client: Client | None = None) -> None:
    """Check an exchange by asking a client with an example of its request.

    - Its words say what leaves, and its messages survive encoding.
    - A client answers with the reply of the exchange, twice with the same bytes, and `check` accepts the reply.
    - The cost is a finite number. Where replies can be added, a vector's length follows from the request alone, and
      the vector of one reply gives back a reply with the same vector.

    Parameters
    ----------
    request
        An example that the client can answer.
    client
        Who is asked; an owner of three made-up engines by default.

    Raises
    ------
    CheckError
        The first promise that the exchange breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> from fedprognos.features import SurveyTerms
    >>> from fedprognos.federation.exchanges.survey import SurveyRequest
    >>> fp.checks.check_exchange(fp.registry.exchanges["SurveyRequest"], SurveyRequest(SurveyTerms()))
    """
    where = f"exchange '{exchange.name}'"
    for field in ("activity", "leaves", "reveals"):
        words = getattr(exchange.words, field)
        require(words.strip(), f"`words.{field}` is empty", where=where, hint="ledger, approval and report show it")
    require(type(request) is exchange.request, f"the example is a {type(request).__name__}", where=where)
    with exchanges.including([exchange]), tempfile.TemporaryDirectory() as folder:
        if client is None:
            engines, _ = synthetic_engines(sites=1, units_per_site=3, test_units_per_site=1, seed=1)
            client = Client("one", engines, ClientFolder(Path(folder)))
        encoded = encode(request)
        again = encode(decode(encoded, (exchange.request,)))
        require(encoded == again, "the request changes when it is encoded and decoded", where=where)
        cost = exchange.cost(request, client.fleet)
        require(all(np.isfinite(cost)) and min(cost) >= 0, f"`cost` gives {cost}", where=where)
        if exchange.answer is not None:
            _check_answer(exchange, request, client, encoded, where)


def _check_answer(exchange: Exchange, request: Any, client: Client, encoded: bytes, where: str) -> None:
    answer = client.respond(encoded)
    reply = decode(answer, reply_kinds())
    require(
        isinstance(reply, exchange.reply),
        f"the client answers with a {type(reply).__name__}",
        where=where,
        hint=client.folder.last_error() or "",
    )
    require(answer == client.respond(encoded), "a second answer has other bytes", where=where, hint="use the seed")
    points = 10**9 if exchange.declares is None else exchange.declares(reply, None)
    try:
        exchange.check(request, reply, points)
    except FedprognosError as error:
        require(False, f"`check` refuses an honest reply: {error}", where=where)
    if exchange.template is None:
        return
    vector, _ = exchange.vector(request, reply)
    length = exchange.vector_length(request)
    require(len(vector) == length, f"a vector has {len(vector)} numbers, not {length}", where=where)
    returned = exchange.unvector(request, vector, 1)
    same = np.allclose(to_vector(returned, exchange.zeros(request)), vector, rtol=1e-12, equal_nan=True)
    require(same, "`unvector` does not give back what `vector` took", where=where)


@dataclass(frozen=True)
class _Neighbours:
    """Clients in this process, asked through the real encoding; one of them may fail every time."""

    clients_by_name: Mapping[str, Client]
    failing: str | None = None

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.clients_by_name))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        return {
            name: Failure(name, "worker", "fails in this check")
            if name == self.failing
            else self.clients_by_name[name].respond(data)
            for name, data in requests.items()
        }


@dataclass(frozen=True)
class _SmallFederation:
    """Three owners of three engines each, and a plan for a small network."""

    strategy: Strategy
    options: Mapping[str, object]
    fleets: Mapping[str, Fleet]
    recipe: Recipe
    folder: Path

    def plan(self, seed: int = 1, min_clients: int | None = None) -> Plan:
        section: dict[str, object] = {"heads": ["mean"], "min_clients": min_clients}
        section |= {self.strategy.name: dict(self.options)} if self.options else {}
        train = TrainOptions(epochs=2, batch_size=16, learning_rate=0.02, validation_fraction=0.0)
        spec = NetworkSpec(inputs=self.recipe.channels, widths=(4,), cell="gru")
        return Plan(self.recipe, spec, train, federation_options().model_validate(section), seed)

    def rounds(self, plan: Plan, names: tuple[str, ...] | None = None, failing: str | None = None) -> list[Round]:
        clients = {
            name: Client(name, self.fleets[name], ClientFolder(self.folder / name)) for name in names or self.fleets
        }
        return list(self.strategy.run(MessageCohort(_Neighbours(clients, failing)), plan))


def check_strategy(strategy: Strategy, **options: object) -> None:
    """Check a strategy on three small clients in this process, who are asked through the real encoding.

    - Rounds count from 1. Each gives finite networks of the agreed cell, for clients of the cohort; after the last
      round every client has one, or all share one where the strategy is `shared`.
    - The same seed gives the same bytes, and where clients train, another seed gives other ones.
    - A federated strategy works with one client and, with `min_clients`, without a client that fails; without
      `min_clients` it stops.

    Parameters
    ----------
    options
        Its keys in `[federation.NAME]`; few rounds make the check quick.

    Raises
    ------
    CheckError
        The first promise that the strategy breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_strategy(fp.registry.strategies["fedavg"], rounds=2, epochs=1)
    """
    where = check_named("strategy", strategy)
    engines, _ = synthetic_engines(sites=3, units_per_site=3, test_units_per_site=1, seed=1)
    sites = sorted({str(unit.attributes["site"]) for unit in engines})
    fleets = {site: engines.select([u for u in engines if u.attributes["site"] == site]) for site in sites}
    if strategy.pooled:  # it is given all data in one place
        fleets = {"pooled": engines}
    recipe = recipe_for(RecipeOptions(window=8, stride=4, cap=60), fleets)
    with strategies.including([strategy]), tempfile.TemporaryDirectory() as folder:
        small = _SmallFederation(strategy, options, fleets, recipe, Path(folder))
        rounds = small.rounds(small.plan())
        _check_rounds(strategy, rounds, tuple(fleets), where)
        require(_same_models(rounds, small.rounds(small.plan())), "the same seed gives other weights", where=where)
        if strategy.trains:
            other = small.rounds(small.plan(seed=2))
            require(not _same_models(rounds, other), "another seed gives the same weights", where=where)
        if strategy.federated:
            _check_few_clients(small, sites, where)


def _check_rounds(strategy: Strategy, rounds: list[Round], clients: tuple[str, ...], where: str) -> None:
    require(rounds, "it gives no round", where=where)
    numbers = [round_.number for round_ in rounds]
    require(numbers == list(range(1, len(rounds) + 1)), f"its rounds are numbered {numbers}", where=where)
    for round_ in rounds:
        for owners, network in round_.models.items():
            at = f"{where}, round {round_.number}, model of {', '.join(owners)}"
            require(set(owners) <= set(clients), "an owner is not a client of the cohort", where=at)
            finite = all(np.isfinite(tensor).all() for tensor in network.weights.values())
            require(finite, "a weight is not finite", where=at)
            network.check(at)
    last = list(rounds[-1].models)
    served = sorted(name for names in last for name in names)
    require(served == sorted(clients), f"the last round has models for {served} of {sorted(clients)}", where=where)
    require(not strategy.shared or len(last) == 1, f"it is `shared`, but ends with {len(last)} models", where=where)


def _check_few_clients(small: _SmallFederation, sites: list[str], where: str) -> None:
    alone = small.rounds(small.plan(), names=(sites[0],))
    require(list(alone[-1].models) == [(sites[0],)], "one client alone does not get its model", where=where)
    if not small.strategy.trains:
        return
    without = small.rounds(small.plan(min_clients=2), failing=sites[1])
    require(without, "with min_clients=2 it gives no round when one of three clients fails", where=where)
    try:
        small.rounds(small.plan(), failing=sites[1])
    except FederationError:
        return
    require(False, "it goes on without a failed client although min_clients is not set", where=where)


def _same_models(first: list[Round], second: list[Round]) -> bool:
    return len(first) == len(second) and all(
        list(a.models) == list(b.models) and all(_same_network(a.models[k], b.models[k]) for k in a.models)
        for a, b in zip(first, second, strict=True)
    )


def _same_network(first: Network, second: Network) -> bool:
    return first.spec == second.spec and all(
        same_bytes(tensor, second.weights[name]) for name, tensor in first.weights.items()
    )
