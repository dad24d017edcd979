"""A site's secrets for masked sums: kept in a private file, so that a restarted site continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedprognos.deployment.contract import Contract
from fedprognos.deployment.identity import Identity
from fedprognos.deployment.keys import write_private
from fedprognos.federation.secure.member import Member

SECRETS = "masks.json"


def member_of(contract: Contract, site: str, identity: Identity, place: Path) -> Member | None:
    """This site as a member of a contract's masked sums; None where nothing is masked."""
    if contract.mode != "masked":
        return None
    path = place / SECRETS

    def keep(state: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, json.dumps(state).encode())

    state = json.loads(path.read_text("utf-8")) if path.is_file() else None
    return Member(site, identity.key, contract.members, state, keep)


def forget_secrets(place: Path) -> None:
    """The run is over: nobody needs them any more."""
    (place / SECRETS).unlink(missing_ok=True)
