"""The coordinator's side of masked sums: it passes keys and shares between sites, and learns nothing but totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedprognos.errors import FederationError, MessageError
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import Cohort, OnLeftOut, Tag, digest
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.totals import summed_exchange
from fedprognos.privacy import (
    KEY_IN_BYTES,
    SHARE_IN_BYTES,
    BeginReply,
    BeginRequest,
    KeysReply,
    KeysRequest,
    Limbs,
    MaskedReply,
    SharesReply,
    SharesRequest,
    SurvivorsReply,
    SurvivorsRequest,
    UnmaskReply,
    UnmaskRequest,
    add,
    agreed,
    check_keys,
    check_shares,
    from_fixed,
    join_shares,
    mask,
    negated,
    public_of,
    quorum,
)

SUMS_A_BATCH = 32


@dataclass(eq=False)
class _Batch:
    """Keys for several sums.

    Parameters
    ----------
    keys
        Public keys of the members: the sites that shared their secrets, so that the others can remove their masks.
    begun
        The members that confirmed the others' shares. Only these are asked for parts.
    places
        By site, the number of its share of a secret.
    used
        How many of the keys were used.
    """

    name: str
    keys: dict[str, KeysReply]
    begun: tuple[str, ...]
    places: dict[str, int]
    threshold: int
    used: int = 0

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(sorted(self.keys))


@dataclass(eq=False)
class MaskedSums:
    """Totals of what sites send masked; the same replies give the same requests and totals, wherever it runs.

    Parameters
    ----------
    name
        Names the run: batches are numbered within it.
    identities
        Public keys of all members, in hex, by name.
    """

    name: str
    identities: Mapping[str, str]
    _batch: _Batch | None = None
    _batches: int = 0
    _totals: dict[str, tuple[Any, tuple[str, ...]]] = field(default_factory=dict)

    def total(
        self, cohort: Cohort, requests: Mapping[str, Any], left_out: OnLeftOut, least: int = 0
    ) -> tuple[Any, tuple[str, ...]]:
        """The summed reply and the sites in it; nothing is unmasked where fewer than `least` sent their part.

        `left_out` is called with the sites that are not in the sum. A site that fails after it sent its part is in it.

        Raises
        ------
        FederationError
            Where fewer than a quorum of the sites answer a step. Nothing of any site is revealed then.
        """
        request = next(iter(requests.values()))
        key = digest("\x1f".join(sorted(requests)).encode() + encode(request))
        if key not in self._totals:
            self._totals[key] = self._ask_for_sum(_Sites(cohort, left_out), tuple(sorted(requests)), request, least)
        return self._totals[key]

    def forget(self, requests: Mapping[str, Any]) -> None:
        """Do not remember a total that turned out to be impossible."""
        request = next(iter(requests.values()))
        self._totals.pop(digest("\x1f".join(sorted(requests)).encode() + encode(request)), None)

    def about_other_units(self) -> MaskedSums:
        """The same batches without remembered totals: the same requests are now about other units."""
        return replace(self, _totals={})

    def _ask_for_sum(
        self, sites: _Sites, names: tuple[str, ...], request: Any, least: int
    ) -> tuple[Any, tuple[str, ...]]:
        exchange = summed_exchange(request)
        size, limbs = exchange.vector_length(request), exchange.limbs
        batch = self._batch_for(sites, names)
        index, batch.used = batch.used, batch.used + 1
        masked = sites.ask(dict.fromkeys(batch.begun, request), MaskedReply, (batch.name, index))
        parts = sites.good(masked, lambda member, reply: _check_part(member, reply, (size, limbs)))
        sent = {name: reply.masked.view(np.uint64) for name, reply in parts.items()}
        survivors = tuple(sorted(sent))
        self._check_enough(batch, survivors, "sent their part of a sum", least)
        shares = self._shares_of(sites, batch, index, survivors)
        total = np.zeros((size, limbs), dtype=np.uint64)
        for name in survivors:
            total = add(total, sent[name])
        values = from_fixed(self._unmasked(batch, index, total, survivors, shares))
        return exchange.unvector(request, values, len(survivors)), survivors

    def _shares_of(
        self, sites: _Sites, batch: _Batch, index: int, survivors: tuple[str, ...]
    ) -> dict[str, UnmaskReply]:
        """The shares that unmask the survivors' sum, after enough of them signed that they are the survivors.

        The survivors' parts are in the sum already. So a survivor that fails here is not left out, and is named only
        where too few are left to unmask the sum.
        """
        failures: list[Failure] = []
        members = _Sites(sites.cohort, failures.append)
        try:
            asked = SurvivorsRequest(batch.name, index, survivors)
            signed = members.ask(dict.fromkeys(survivors, asked), SurvivorsReply)
            self._check_enough(batch, tuple(signed), "signed who is in a sum")
            signatures = {name: reply.signature for name, reply in signed.items()}
            unmask = UnmaskRequest(batch.name, index, survivors, signatures)
            shares: dict[str, UnmaskReply] = members.ask(dict.fromkeys(signed, unmask), UnmaskReply)
            self._check_enough(batch, tuple(shares), "gave their shares of a sum")
        except FederationError:
            for failure in failures:
                sites.left_out(failure)
            raise
        return shares

    def _unmasked(
        self, batch: _Batch, index: int, total: Limbs, survivors: tuple[str, ...], shares: Mapping[str, UnmaskReply]
    ) -> Limbs:
        """Take every survivor's own mask away, and the masks that survivors have with those who are missing."""
        size, limbs = total.shape
        for member in batch.members:
            given = {
                batch.places[giver]: share
                for giver, reply in sorted(shares.items())
                if (share := _share(reply.shares.get(member, ""))) is not None
            }
            if len(given) < batch.threshold:
                raise FederationError("too few shares to unmask a sum")
            secret = join_shares(dict(list(given.items())[: batch.threshold]), KEY_IN_BYTES)
            if member in survivors:
                total = add(total, negated(mask(secret, size, limbs)))
                continue
            if public_of(secret).hex() != batch.keys[member].masking[index]:
                raise FederationError("shares that do not belong together", where=f"client {member}")
            for other in survivors:
                public = bytes.fromhex(batch.keys[other].masking[index])
                pair = mask(agreed(secret, public, f"mask {batch.name} {index}"), size, limbs)
                total = add(total, negated(pair) if other < member else pair)
        return total

    def _batch_for(self, sites: _Sites, names: tuple[str, ...]) -> _Batch:
        """A batch of exactly these sites that has keys for another sum; a new one where there is none."""
        batch = self._batch
        if batch is None or batch.used == SUMS_A_BATCH or set(names) != set(batch.places):
            self._batch = batch = self._begin_batch(sites, names)
        return batch

    def _begin_batch(self, sites: _Sites, everyone: tuple[str, ...]) -> _Batch:
        self._batches += 1
        name = f"{self.name}/{self._batches}"
        asked = KeysRequest(name, SUMS_A_BATCH, {member: self.identities[member] for member in everyone})
        # What one member sends is passed on to all. Checked here, it costs its sender its place and nobody else.
        keys = sites.good(
            sites.ask(dict.fromkeys(everyone, asked), KeysReply),
            lambda member, reply: check_keys(name, asked.identities, SUMS_A_BATCH, member, reply),
        )
        places = {member: k for k, member in enumerate(everyone, start=1)}
        batch = _Batch(name, keys, (), places, quorum(len(everyone)))
        self._check_enough(batch, tuple(keys), "made keys")
        shared = sites.good(
            sites.ask(dict.fromkeys(keys, SharesRequest(name, keys)), SharesReply),
            lambda member, reply: check_shares(keys, SUMS_A_BATCH, member, reply),
        )
        self._check_enough(batch, tuple(shared), "shared their secrets")
        sealed = {
            receiver: {sender: reply.sealed[receiver] for sender, reply in shared.items() if receiver in reply.sealed}
            for receiver in shared
        }
        begun = sites.ask({n: BeginRequest(name, sealed[n]) for n in shared}, BeginReply)
        self._check_enough(batch, tuple(begun), "began a sum")
        # The others have masks with every member that shared its secrets, so such a member stays one. If it did not
        # begin, its masks are removed like those of a site that drops out.
        batch.keys, batch.begun = {member: keys[member] for member in shared}, tuple(begun)
        return batch

    def _check_enough(self, batch: _Batch, names: tuple[str, ...], what: str, least: int = 0) -> None:
        needed = max(batch.threshold, least)
        if len(names) < needed:
            self._batch = None
            raise FederationError(
                f"{len(names)} of {len(batch.places)} sites {what}; {needed} are needed",
                hint="A masked sum needs more than two thirds of the sites, and three. Fix the others; start again.",
            )


def _check_part(member: str, reply: MaskedReply, shape: tuple[int, int]) -> None:
    """Raise unless a part has the shape of the sum; its numbers say nothing under their mask."""
    if reply.masked.shape != shape or reply.masked.dtype != np.int64:
        raise MessageError(f"{member!r} sent a part of {reply.masked.shape} numbers instead of {shape}")


def _share(text: str) -> bytes | None:
    """A share as bytes; None where it is none."""
    try:
        share = bytes.fromhex(text)
    except ValueError:
        return None
    return share if len(share) == SHARE_IN_BYTES else None


@dataclass(frozen=True, eq=False)
class _Sites:
    """Asks sites; those that do not answer are left out."""

    cohort: Cohort
    left_out: OnLeftOut

    def ask(self, requests: Mapping[str, Any], kind: type[Any], tag: Tag | None = None) -> dict[str, Any]:
        """Replies of this kind."""
        replies = self.cohort.ask(requests, (kind, Failure), tag)
        for name, reply in sorted(replies.items()):
            if not isinstance(reply, kind):
                text = "sent another kind of message"
                self.left_out(reply if isinstance(reply, Failure) else Failure(name, "message", text))
        return {name: reply for name, reply in sorted(replies.items()) if isinstance(reply, kind)}

    def good(self, replies: Mapping[str, Any], check: Callable[[str, Any], None]) -> dict[str, Any]:
        """Replies that pass a check; the senders of others are left out."""
        passed = {}
        for name, reply in replies.items():
            try:
                check(name, reply)
                passed[name] = reply
            except MessageError as error:
                self.left_out(Failure(name, error.code, error.what))
        return passed
