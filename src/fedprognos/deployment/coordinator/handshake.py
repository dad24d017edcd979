"""How a run begins: the coordinator waits for the sites, asks who they are, and sends them the contract to approve."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from fedprognos import __version__
from fedprognos.deployment.carrier import CarrierError, Tell
from fedprognos.deployment.contract import Contract
from fedprognos.deployment.coordinator.site_transport import SiteTransport
from fedprognos.errors import FederationError, MessageError, OutputError
from fedprognos.experiment import Experiment
from fedprognos.federation import ContractReply, ContractRequest, HelloReply, HelloRequest, MessageCohort, needed
from fedprognos.federation.exchanges import Failure
from fedprognos.files import write_text
from fedprognos.identity import Identity

CONTRACT = "contract.json"
ASK_AGAIN_IN_S = 2.0


def contract_so_far(folder: Path) -> Contract | None:
    """The contract that a run began with; None for a new run."""
    path = folder / CONTRACT
    try:
        return Contract.parse(path.read_text("utf-8")) if path.is_file() else None
    except (MessageError, ValueError):
        hint = "Remove the run's folder to begin a new run."
        raise OutputError("cannot be read", where=str(path), hint=hint) from None


def wait_for_sites(
    transport: SiteTransport, wanted: tuple[str, ...], min_clients: int | None, grace_in_s: float, tell: Tell
) -> tuple[str, ...]:
    """Wait until all sites are connected, or enough of them for `grace_in_s`; return those that are."""
    connected: set[str] = set()
    shown: set[str] | None = None
    enough_since: float | None = None
    while True:
        with contextlib.suppress(CarrierError):
            connected = set(transport.online()) & set(wanted)
        missing = tuple(sorted(set(wanted) - connected))
        if connected != shown:
            shown = connected
            awaited = f"; waiting for {', '.join(missing)}" if missing else ""
            tell(f"{len(connected)} of {len(wanted)} sites are connected{awaited}")
        enough = min_clients is not None and len(connected) >= min_clients
        enough_since = (enough_since or time.monotonic()) if enough else None
        if not missing or (enough_since is not None and time.monotonic() - enough_since >= grace_in_s):
            return tuple(sorted(connected))
        transport.waiting("waiting for sites", missing)
        time.sleep(1.0)


def make_contract(
    transport: SiteTransport,
    sites: tuple[str, ...],
    name: str,
    experiment: Experiment,
    identity: Identity,
    folder: Path,
    tell: Tell,
) -> Contract:
    """Ask the sites for their keys and write the contract of a new run."""
    hello = HelloRequest(name, __version__)
    replies = MessageCohort(transport).ask(dict.fromkeys(sites, hello), (HelloReply, Failure))
    members: dict[str, str] = {}
    reasons: dict[str, str] = {}
    importing = experiment.federation.start == "bundles"
    recipes = Counter(
        reply.recipe for reply in replies.values() if importing and isinstance(reply, HelloReply) and reply.recipe
    )
    recipe = recipes.most_common(1)[0][0] if recipes else ""
    for site, reply in replies.items():
        if isinstance(reply, Failure):
            reasons[site] = reply.text
        elif reply.name != site:
            reasons[site] = f"it calls itself '{reply.name}', but its key belongs to '{site}'"
        elif reply.version != __version__:
            reasons[site] = f"it has fedprognos {reply.version}, the coordinator {__version__}"
        elif importing and not (recipe and reply.recipe == recipe):
            reasons[site] = "it has no model trained earlier, or its recipe is not that of most sites"
        else:
            members[site] = reply.identity
    for site, reason in reasons.items():
        tell(f"{site} cannot take part: {reason}")
    wanted = len(transport.clients)
    if len(members) < needed(wanted, experiment.federation.min_clients):
        raise FederationError(
            "; ".join([f"{len(members)} of {wanted} sites can take part", *(f"{s}: {r}" for s, r in reasons.items())]),
            hint="Fix the other sites, or set federation.min_clients to continue without them.",
        )
    if importing:
        federation = experiment.federation.model_copy(update={"imported": recipe})
        experiment = experiment.model_copy(update={"federation": federation})
    contract = Contract.from_experiment(name, secrets.token_hex(8), experiment, members, identity.public)
    contract.check()
    write_text(folder / CONTRACT, contract.text)
    return contract


def wait_for_approval(
    transport: SiteTransport, contract: Contract, min_clients: int | None, grace_in_s: float, tell: Tell
) -> None:
    """Wait until every member has approved or refused the contract, or enough have approved it for `grace_in_s`.

    Members that have not approved it fail in the first step; the run continues without them where it may.
    """
    waiting, shown, since = set(contract.members), set[str](), time.monotonic()

    def still_waiting(*_: object) -> None:  # one long wait, however often the sites are asked meanwhile
        transport.waiting("waiting for approval", tuple(sorted(waiting)))

    members = tuple(contract.members)
    asking = MessageCohort(replace(transport, clients=members, wait_for_all=False, waiting=still_waiting))
    tell(f"contract {contract.digest[:16]}: every site must approve it (`fedprognos deploy approve FOLDER`)")
    while waiting:
        replies = asking.ask(dict.fromkeys(sorted(waiting), ContractRequest(contract.text)), (ContractReply, Failure))
        for site, reply in replies.items():
            if isinstance(reply, ContractReply) and reply.approved:
                waiting.discard(site)
                tell(f"{site} approved the contract")
            elif isinstance(reply, Failure) and reply.code not in ("absent", "timeout"):
                waiting.discard(site)
                tell(f"{site} refuses the contract: {reply.text}")
        approved = len(contract.members) - len(waiting)
        if not waiting or (
            min_clients is not None and approved >= min_clients and time.monotonic() - since >= grace_in_s
        ):
            return
        if waiting != shown:
            tell(f"waiting for the approval of {', '.join(sorted(waiting))}")
            shown = set(waiting)
        still_waiting()
        time.sleep(ASK_AGAIN_IN_S)
