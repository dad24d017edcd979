"""The contracts that were put to a site, and what its engineer said to each: a folder for each, by digest."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fedprognos.deployment.contract import Contract
from fedprognos.deployment.identity import fingerprint
from fedprognos.errors import ConfigError, MessageError
from fedprognos.files import parse_json, write_json, write_text

CONTRACTS, TEXT, STATE = "contracts", "contract.json", "state.json"
MAX_WAITING = 20
"""Contracts that may wait for an answer; the coordinator's further ones are refused."""
MOST_ALIKE = 3
"""Values by which two contracts differ that are nearly the same."""
ApprovalState = Literal["waiting", "approved", "running", "finished"]


@dataclass(frozen=True)
class Approval:
    """A contract, what became of it, and the fingerprint of the data it runs on."""

    contract: Contract
    state: ApprovalState
    data: str = ""


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """Every value of nested tables as text, by its full name."""
    if not isinstance(value, Mapping):
        return {name: str(value)}
    return {k: v for key, one in value.items() for k, v in _flat(one, f"{name}.{key}".lstrip(".")).items()}


class Approvals:
    """What a site has agreed to.

    Parameters
    ----------
    folder
        The site's own.
    beforehand
        Digests approved in the site's settings.
    known
        Fingerprints of members that the site's engineer has confirmed, by name; where there are any, contracts with
        members beside them are refused.
    """

    def __init__(self, folder: Path, beforehand: Iterable[str] = (), known: Mapping[str, str] | None = None) -> None:
        self._folder, self._beforehand, self._known = folder / CONTRACTS, set(beforehand), dict(known or {})

    def place(self, digest: str) -> Path:
        """The folder of a contract."""
        return self._folder / digest

    def entry(self, digest: str) -> Approval | None:
        """A contract that was put to this site, None where there is none."""
        place = self.place(digest)
        if not (len(digest) == 64 and digest.isalnum() and (place / TEXT).is_file()):
            return None
        contract = Contract.parse((place / TEXT).read_text("utf-8", "replace"))
        if contract.digest != digest:
            raise MessageError("a contract that was changed after it came")
        found: Any = {}
        with contextlib.suppress(OSError, ValueError):  # a damaged state is none: the engineer is asked once more
            found = parse_json((place / STATE).read_text("utf-8"))
        found = found if isinstance(found, dict) else {}
        state = found.get("state")
        return Approval(contract, state if state in get_args(ApprovalState) else "waiting", str(found.get("data", "")))

    def entries(self) -> list[Approval]:
        """All contracts, the latest last; those of another version of this program are left out."""
        places = sorted(self._folder.glob("*/" + TEXT), key=lambda path: path.stat().st_mtime)
        found = []
        for path in places:
            with contextlib.suppress(MessageError):
                found.append(self.entry(path.parent.name))
        return [entry for entry in found if entry is not None]

    def put(self, contract: Contract, site: str, public: str) -> Approval:
        """Note a contract that the coordinator puts to this site; raise where it can never be approved."""
        if contract.members.get(site) != public:
            raise MessageError("the contract does not name this site with its key")
        for name, key in contract.members.items():
            if self._known and name != site and fingerprint(key).replace(" ", "") != self._known.get(name):
                raise MessageError(f"the key of '{name}' is not the one that this site has confirmed")
        entry = self.entry(contract.digest)
        if entry is None:
            if sum(one.state == "waiting" for one in self.entries()) >= MAX_WAITING:
                raise MessageError("too many contracts wait for an answer")
            write_text(self.place(contract.digest) / TEXT, contract.text)
            entry = Approval(contract, "waiting")
        if entry.state == "waiting" and contract.digest in self._beforehand:
            entry = self.set_state(entry, "approved")
        return entry

    def alike(self, contract: Contract) -> Iterator[str]:
        """Earlier runs that were nearly this one: what their sums differ by may be about few rows."""
        for entry in self.entries():
            ran = entry.state in ("running", "finished") and entry.contract.digest != contract.digest
            ours, theirs = _flat(contract.sections), _flat(entry.contract.sections)
            differs = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
            if ran and 1 <= len(differs) <= MOST_ALIKE:
                changed = ", ".join(f"{key} was {theirs.get(key)} and is {ours.get(key)}" for key in differs)
                yield f"UNUSUAL: nearly run '{entry.contract.run}', which was answered here: {changed[:300]}"
                yield "  sums of both runs differ by what lies between: ask what the second one is for"

    def set_state(self, entry: Approval, state: ApprovalState, data: str = "") -> Approval:
        """Note what became of a contract."""
        write_json(self.place(entry.contract.digest) / STATE, {"state": state, "data": data})
        return Approval(entry.contract, state, data)

    def approve(self, digest: str) -> Approval:
        """Approve the contract whose digest begins so, or one that has finished, once more."""
        found = [entry for entry in self.entries() if entry.contract.digest.startswith(digest)]
        if len(found) != 1:
            raise ConfigError(f"{len(found)} contracts begin with '{digest}'", where=str(self._folder))
        for kept in ("steps", "own"):
            shutil.rmtree(self.place(found[0].contract.digest) / kept, ignore_errors=True)
        return self.set_state(found[0], "approved")
