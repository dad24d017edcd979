"""A site's secrets for masked sums, kept in a private file so that a restarted site continues.

Who was in which sum is kept apart, for all contracts with the same members, and never forgotten: the same sums once
more with one member fewer would tell that member's part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedprognos.deployment.contract import Contract
from fedprognos.deployment.identity import Identity
from fedprognos.deployment.keys import write_private
from fedprognos.federation.cohort import digest
from fedprognos.federation.secure.member import Member

SECRETS = "masks.json"
SURVIVORS = "survivors.json"


def member_of(contract: Contract, site: str, identity: Identity, place: Path) -> Member | None:
    """This site as a member of a contract's masked sums; None where nothing is masked."""
    if contract.mode != "masked":
        return None
    path, everywhere = place / SECRETS, place.parent / SURVIVORS
    members = digest("\n".join(f"{name} {key}" for name, key in sorted(contract.members.items())).encode())

    def known() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(everywhere.read_text("utf-8")) if everywhere.is_file() else {}
        return found

    def keep(state: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, json.dumps({"batches": state["batches"]}).encode())
        if state["signed"] != (kept := known()).get(members, {}):
            write_private(everywhere, json.dumps({**kept, members: state["signed"]}).encode())

    secrets = json.loads(path.read_text("utf-8")) if path.is_file() else {"batches": {}}
    state = {"batches": secrets["batches"], "signed": known().get(members, {})}
    return Member(site, identity.key, contract.members, state, keep)


def forget_secrets(place: Path) -> None:
    """The run is over: nobody needs them any more."""
    (place / SECRETS).unlink(missing_ok=True)
