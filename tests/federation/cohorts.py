"""Cohorts for tests: clients in this process, and cohorts that misbehave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fedprognos.features import Recipe
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.cohort import checked_reply
from fedprognos.federation.exchanges import Failure, Reply, Request, reply_kinds
from fedprognos.federation.federation_section import federation_options
from fedprognos.federation.plan import Plan
from fedprognos.federation.totals import Sums
from fedprognos.fleet import Fleet
from fedprognos.networks import NetworkSpec
from fedprognos.networks.model_options import TrainOptions
from small_fleets import recipe_of, series_fleet

Change = Callable[[str, Request, Reply], Reply | Failure]


class HereCohort:
    """Clients in this process, answers through the real encoding; every message is kept for inspection."""

    def __init__(self, clients: Mapping[str, Client], change: Change | None = None, sums: Sums | None = None) -> None:
        self.members, self.change = dict(clients), change
        self.sent: list[tuple[str, bytes]] = []
        self.asked: list[tuple[str, Request]] = []
        self.absent: set[str] = set()
        self.sums = sums
        self.declared: dict[str, int] = {}

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.members) - self.absent))

    def ask(
        self,
        requests: Mapping[str, Request],
        kinds: tuple[type, ...] = reply_kinds(),
        tag: tuple[str, int] | None = None,
    ) -> dict[str, Reply | Failure]:
        replies: dict[str, Reply | Failure] = {}
        for name, request in requests.items():
            self.asked.append((name, request))
            data = self.members[name].respond(encode(request, tag=tag))
            self.sent.append((name, data))
            replies[name] = decode(data, kinds, name)
            if self.change is not None and not isinstance(replies[name], Failure):
                replies[name] = self.change(name, request, replies[name])  # type: ignore[arg-type]
            if tag is None:
                replies[name] = checked_reply(name, request, replies[name], self.declared)
        return replies


def small_fleets(names: str = "abc") -> dict[str, Fleet]:
    lengths = ([60, 58, 70], [57, 65], [80, 55, 56, 60])
    return {n: series_fleet(lengths[k % 3], seed=k + 1, name=n) for k, n in enumerate(names)}


def cohort_of(
    folder: Path, names: str = "abc", change: Change | None = None, bundles: Mapping[str, Path] | None = None
) -> HereCohort:
    clients = {
        n: Client(n, fleet, ClientFolder(folder / n, (bundles or {}).get(n)))
        for n, fleet in small_fleets(names).items()
    }
    return HereCohort(clients, change)


def common_recipe() -> Recipe:
    fleet = series_fleet([90, 80, 70], seed=9)
    return recipe_of(fleet, window=8, cap=40, stride=2, conditions={"altitude": 0})


def plan_of(
    left_out: Callable[[Failure], None] | None = None,
    *,
    widths: tuple[int, ...] = (5,),
    cell: str = "lstm",
    input_width: int | None = None,
    seed: int = 3,
    epochs: int = 4,
    validation: float = 0.3,
    **federation: object,
) -> Plan:
    recipe = common_recipe()
    quick = {"fedavg": {"rounds": 2, "epochs": 3}, "fedprox": {"rounds": 2, "epochs": 3}, "fedma": {"rounds": 2}}
    for name, options in quick.items():
        options.update(federation.pop(name, {}))  # type: ignore[call-overload]
    section = federation_options().model_validate({**quick, **federation})
    train = TrainOptions(
        epochs=epochs, batch_size=16, learning_rate=0.05, schedule="constant", validation_fraction=validation
    )
    spec = NetworkSpec(inputs=recipe.channels, widths=widths, cell=cell, input_width=input_width)
    return Plan(recipe, spec, train, section, seed, left_out=left_out or (lambda failure: None))


__all__ = ["HereCohort", "cohort_of", "common_recipe", "plan_of", "small_fleets"]
