"""Import a model: a client sends the model that it trained earlier, instead of training a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedprognos.errors import DataNotFoundError, FederationError
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort, OnLeftOut, gather, needed
from fedprognos.federation.exchanges import Exchange, Failure, OnEpoch, Words, exchanges
from fedprognos.federation.federation_section import FederationOptions
from fedprognos.federation.plausible import check_count, check_weights_size
from fedprognos.networks import Bundle, Network

if TYPE_CHECKING:
    from fedprognos.federation.client import Client


@dataclass(frozen=True)
class ImportRequest:
    """Send the model you trained earlier."""


@dataclass(frozen=True, eq=False)
class ImportReply:
    """The client's model and the number of windows behind it."""

    recipe: Recipe
    network: Network
    windows: int


def answer(client: Client, request: ImportRequest, on_epoch: OnEpoch | None) -> ImportReply:
    """The bundle that the owner put into the client's folder."""
    if client.folder.bundle is None:
        raise DataNotFoundError("no model was trained here earlier", hint="set federation.bundles")
    bundle = Bundle.load(client.folder.bundle)
    return ImportReply(bundle.recipe, bundle.network, len(client.windows(bundle.recipe)))


def check(request: ImportRequest, reply: ImportReply, most_points: int) -> None:
    """The network fits its shape and its weights are plausible."""
    reply.network.check("reply")
    check_weights_size(reply.network.weights)
    check_count(reply.windows, most_points)


def recipe_of_imports(cohort: Cohort, federation: FederationOptions, left_out: OnLeftOut) -> Recipe:
    """The recipe of most imported models; clients whose model has another recipe are left out and named."""
    requests = dict.fromkeys(cohort.clients, ImportRequest())
    models = gather(cohort, requests, ImportReply, federation.min_clients, left_out)
    agreed = [reply.recipe for reply in models.values() if federation.imported in (None, reply.recipe.digest)]
    if not agreed:
        raise FederationError(
            "no model was made with the recipe that was agreed on", hint="import models that were, or train anew"
        )
    recipe, _ = Counter(agreed).most_common(1)[0]
    other = "its model was made with another recipe than that of most clients"
    misfits = {name: other for name, reply in models.items() if reply.recipe != recipe}
    without_misfits(models, misfits, needed(len(requests), federation.min_clients), left_out)
    return recipe


def without_misfits(
    models: Mapping[str, ImportReply], misfits: Mapping[str, str], least: int, left_out: OnLeftOut
) -> dict[str, ImportReply]:
    """The other models, where enough are left; misfits are left out and named, each with its reason."""
    for name, reason in sorted(misfits.items()):
        if len(models) - len(misfits) < least:
            raise FederationError(
                reason,
                where=f"client {name}",
                hint="Models can be federated only when they see the data alike; train them with one recipe.",
            )
        left_out(Failure(name, "recipe", reason))
    return {name: reply for name, reply in models.items() if name not in misfits}


exchanges.add(
    Exchange(
        ImportRequest,
        ImportReply,
        20,
        Words(
            "models trained earlier",
            "the weights of a model trained here earlier, with its scaling",
            "whoever has a row can guess whether it was trained on",
        ),
        answer,
        check=check,
        # A survey counts every labelled point; an import counts what its recipe can use. The first one stands.
        declares=lambda reply, before: reply.windows if before is None else before,
    )
)
