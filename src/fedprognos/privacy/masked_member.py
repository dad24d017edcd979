"""A site's side of masked sums (Bonawitz et al., 2017): masks what leaves, and unmasks nothing but one total.

What a site never does, whatever it is asked: sign two survivor sets for one statistic, give both kinds of share of one
member, use a key twice, or take part in a sum of fewer than a quorum of the members.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ConfigDict, TypeAdapter

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.errors import MessageError
from fedprognos.privacy.mask_messages import (
    LEAST_MEMBERS,
    BeginReply,
    BeginRequest,
    KeysReply,
    KeysRequest,
    MaskedReply,
    SharesReply,
    SharesRequest,
    SumRequest,
    SurvivorsReply,
    SurvivorsRequest,
    UnmaskReply,
    UnmaskRequest,
    quorum,
)
from fedprognos.privacy.masks import (
    KEY_IN_BYTES,
    POLYNOMIAL_IN_BYTES,
    SHARE_IN_BYTES,
    agreed,
    expanded,
    keys_text,
    mask,
    public_of,
    seal,
    split_secret,
    survivors_text,
    unseal,
    verified,
)
from fedprognos.privacy.sum_vectors import LIMBS, Limbs, add, negated, to_fixed

MOST_SUMS = 256
TAG_IN_BYTES = 16
"""What sealing adds to a text."""


@dataclass(eq=False)
class _Batch:
    """Secrets of several sums, each used once."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="hex", val_json_bytes="hex")
    identities: dict[str, str]
    sealing: bytes
    masking: list[bytes]
    own: list[bytes]  # seeds of this site's masks; the name stays, because it is in the state kept on disk
    keys: dict[str, KeysReply] = field(default_factory=dict)
    shares: dict[str, bytes] = field(default_factory=dict)
    asked: dict[int, str] = field(default_factory=dict)
    about: dict[int, str] = field(default_factory=dict)

    @property
    def members(self) -> tuple[str, ...]:
        """All members of the batch, sorted; a member's place decides its share."""
        return tuple(sorted(self.identities))

    @property
    def threshold(self) -> int:
        return quorum(len(self.identities))


def check_keys(batch: str, identities: Mapping[str, str], count: int, name: str, keys: KeysReply) -> None:
    """Raise unless a member of that name signed these keys, they are of so many sums, and secrets can be agreed on."""
    text = keys_text(batch, identities, keys.sealing, keys.masking)
    if name not in identities or not verified(identities[name], keys.signature, text):
        raise MessageError(f"the keys of {name[:40]!r} are not signed by a member of that name")
    if len(keys.masking) != count:
        raise MessageError(f"{name!r} sent keys of {len(keys.masking)} sums instead of {count}")
    for public in (keys.sealing, *keys.masking):
        try:
            agreed(bytes(KEY_IN_BYTES), bytes.fromhex(public), "check")
        except ValueError:
            raise MessageError(f"{name!r} sent a key that is not hexadecimal") from None


def check_shares(members: Collection[str], count: int, name: str, reply: SharesReply) -> None:
    """Raise unless a member sealed its shares of so many sums for every other member."""
    digits = 2 * (2 * SHARE_IN_BYTES * count + TAG_IN_BYTES)
    if set(reply.sealed) != set(members) - {name}:
        raise MessageError(f"{name!r} did not seal a share for every other member")
    if not all(re.fullmatch(f"[0-9a-f]{{{digits}}}", sealed) for sealed in reply.sealed.values()):
        raise MessageError(f"{name!r} sealed shares of another size")


_KEPT = TypeAdapter(dict[str, _Batch])


class Member:
    """Takes part in masked sums.

    Parameters
    ----------
    name, identity
        This site's name, and the key that its signatures are made with.
    public_keys
        The members' public keys, in hex, by name, as the contract has them.
    state, keep
        What an earlier process kept, and where to keep it: secrets and survivor sets, so that a restart forgets none.
        The survivor sets must outlive the run.
    """

    def __init__(
        self,
        name: str,
        identity: Ed25519PrivateKey,
        public_keys: Mapping[str, str],
        state: Mapping[str, Any] | None = None,
        keep: Callable[[dict[str, Any]], None] = lambda state: None,
    ) -> None:
        self.name, self.identity, self.public_keys, self._keep = name, identity, dict(public_keys), keep
        kept = state or {"signed": {}, "batches": {}}
        self.signed = {asked: tuple(names) for asked, names in kept["signed"].items()}
        self._batches = _KEPT.validate_json(json.dumps(kept["batches"]))

    def answer(self, request: SumRequest) -> Any:
        """Answer one request of the protocol, or refuse it; what changed is kept before the answer leaves."""
        match request:
            case KeysRequest():
                reply: Any = self._keys(request)
            case SharesRequest():
                reply = self._shares(request)
            case BeginRequest():
                reply = self._begin(request)
            case SurvivorsRequest():
                reply = self._sign(request)
            case UnmaskRequest():
                reply = self._unmask(request)
        self._save()
        return reply

    def _save(self) -> None:
        latest = dict(list(self._batches.items())[-2:])
        self._keep({"signed": self.signed, "batches": _KEPT.dump_python(latest, mode="json")})

    def _keys(self, request: KeysRequest) -> KeysReply:
        named = dict(request.identities)
        if any(self.public_keys.get(name) != key for name, key in named.items()) or self.name not in named:
            raise MessageError("the members of this sum are not those of the contract")
        if len(named) < LEAST_MEMBERS:
            raise MessageError(f"masked sums need {LEAST_MEMBERS} members, got {len(named)}")
        if not 1 <= request.count <= MOST_SUMS:
            raise MessageError(f"keys are made for 1 to {MOST_SUMS} sums; the request asks for {request.count}")
        batch = self._batches.get(request.batch)
        if batch is None:
            secret = [secrets.token_bytes(KEY_IN_BYTES) for _ in range(1 + 2 * request.count)]
            batch = _Batch(named, secret[0], secret[1 : 1 + request.count], secret[1 + request.count :])
            self._batches[request.batch] = batch
        elif batch.identities != named or len(batch.masking) != request.count:
            raise MessageError("this site made the keys of this batch for other members")
        sealing = public_of(batch.sealing).hex()
        masking = tuple(public_of(key).hex() for key in batch.masking)
        text = keys_text(request.batch, named, sealing, masking)
        return KeysReply(sealing, masking, self.identity.sign(text).hex())

    def _batch(self, name: str) -> _Batch:
        if name not in self._batches:
            raise MessageError("this site has no keys of this batch of sums")
        return self._batches[name]

    def _shares(self, request: SharesRequest) -> SharesReply:
        batch = self._batch(request.batch)
        keys = dict(request.keys)
        if batch.keys and batch.keys != keys:
            raise MessageError("this site shared the secrets of this batch with other keys before")
        for name, member_keys in keys.items():
            check_keys(request.batch, batch.identities, len(batch.masking), name, member_keys)
        if self.name not in keys or len(keys) < batch.threshold or len(keys) < LEAST_MEMBERS:
            raise MessageError("too few members, or this site is not among them")
        if keys[self.name].sealing != public_of(batch.sealing).hex():
            raise MessageError(f"the key sent in the name of {self.name!r}, this site, is not its key")
        batch.keys = keys
        places = batch.members
        seeds = (expanded(batch.sealing, f"polynomial {k}", POLYNOMIAL_IN_BYTES * batch.threshold) for k in count())
        parts = [
            split_secret(secret, len(places), batch.threshold, seed)
            for secret, seed in zip((*batch.masking, *batch.own), seeds, strict=False)
        ]
        texts = {name: b"".join(part[k] for part in parts) for k, name in enumerate(places)}
        batch.shares[self.name] = texts[self.name]
        return SharesReply(
            {
                name: seal(self._sealing_key(batch, request.batch, self.name, name), texts[name]).hex()
                for name in keys
                if name != self.name
            }
        )

    def _sealing_key(self, batch: _Batch, name: str, sender: str, receiver: str) -> bytes:
        other = receiver if sender == self.name else sender
        public = bytes.fromhex(batch.keys[other].sealing)
        return agreed(batch.sealing, public, f"shares {name} from {sender} to {receiver}")

    def _begin(self, request: BeginRequest) -> BeginReply:
        batch = self._batch(request.batch)
        if not batch.keys or (len(batch.shares) > 1 and set(batch.shares) != {self.name, *request.sealed}):
            raise MessageError("the shares of this batch came before its keys, or a second time")
        size = SHARE_IN_BYTES * 2 * len(batch.masking)
        shares = {self.name: batch.shares[self.name]}
        for sender, sealed in request.sealed.items():
            if sender not in batch.keys or sender == self.name:
                raise MessageError(f"a share comes from {sender[:40]!r}, who is no other member of this batch")
            text = unseal(self._sealing_key(batch, request.batch, sender, self.name), bytes.fromhex(sealed), sender)
            if len(text) != size:
                raise MessageError(f"the share of member {sender!r} has {len(text)} bytes instead of {size}")
            shares[sender] = text
        if len(shares) < max(batch.threshold, LEAST_MEMBERS):
            raise MessageError("too few members shared their secrets")
        # All of them or none: a part that is masked for some of the members only would spoil the sum.
        batch.shares = shares
        return BeginReply()

    def masked(
        self,
        name: str,
        index: int,
        asked: str,
        values: FloatArray,
        limbs: int = LIMBS,
        about: str | None = None,
        hidden: BoolArray | None = None,
    ) -> MaskedReply:
        """The numbers of an answer under this site's own mask and one with every other member of the batch.

        Parameters
        ----------
        asked
            Digest of the request that they answer.
        about
            Names what they are statistics of: all sums about one thing are over the same members. The request itself
            by default.
        hidden
            Numbers (N,) that nobody shall be able to read in the sum: they become random.
        """
        batch = self._batch(name)
        if len(batch.shares) < 2 or not 0 <= index < len(batch.masking) or batch.asked.get(index, asked) != asked:
            raise MessageError("this sum has not begun, or this site masked another request with its keys")
        batch.asked[index] = asked
        batch.about[index] = about or asked
        self._save()
        numbers = to_fixed(values, limbs)
        if hidden is not None and hidden.any():  # by a secret that is never shared, so that a restart sends the same
            seed = expanded(batch.sealing, f"unreadable {index}", KEY_IN_BYTES)
            numbers = np.where(hidden[:, None], mask(seed, len(values), limbs), numbers)
        total: Limbs = add(numbers, mask(batch.own[index], len(values), limbs))
        for other in sorted(batch.shares):
            if other != self.name:
                public = bytes.fromhex(batch.keys[other].masking[index])
                pair = mask(agreed(batch.masking[index], public, f"mask {name} {index}"), len(values), limbs)
                total = add(total, pair if self.name < other else negated(pair))
        return MaskedReply(total.view(np.int64))

    def _sign(self, request: SurvivorsRequest) -> SurvivorsReply:
        batch, survivors = self._batch(request.batch), tuple(request.survivors)
        asked = batch.asked.get(request.index)
        if asked is None:
            raise MessageError("this site is not part of this sum")
        if survivors != tuple(sorted(set(survivors))) or not set(survivors) <= set(batch.shares):
            raise MessageError("the survivors are not a sorted list of members")
        if self.name not in survivors or len(survivors) < batch.threshold:
            raise MessageError("too few survivors, or this site is not among them")
        # Two sums of the same statistic over different members differ by the members that left: by one site's numbers.
        signed_before = self.signed.setdefault(batch.about[request.index], survivors)
        if signed_before != survivors:
            raise MessageError(
                f"this statistic was summed over {', '.join(signed_before)} before, now over {', '.join(survivors)}: "
                "the difference would reveal the numbers of a single member"
            )
        text = survivors_text(request.batch, request.index, survivors)
        return SurvivorsReply(self.identity.sign(text).hex())

    def _unmask(self, request: UnmaskRequest) -> UnmaskReply:
        batch, survivors, index = self._batch(request.batch), tuple(request.survivors), request.index
        asked = batch.asked.get(index)
        if asked is None or self.signed.get(batch.about[index]) != survivors:
            raise MessageError(f"this site did not sign these survivors of sum {index} of batch {request.batch}")
        text = survivors_text(request.batch, index, survivors)
        good = [
            name
            for name, signature in request.signatures.items()
            if name in survivors and verified(batch.identities[name], signature, text)
        ]
        if len(good) < batch.threshold:
            raise MessageError(f"{len(good)} signatures of survivors are valid; {batch.threshold} are needed")
        return UnmaskReply({name: self._share(batch, name, index, name in survivors).hex() for name in batch.shares})

    def _share(self, batch: _Batch, member: str, index: int, survived: bool) -> bytes:
        """This site's share of a survivor's own mask, or of the mask key of a member that is missing."""
        place = index + (len(batch.masking) if survived else 0)
        size = SHARE_IN_BYTES
        return batch.shares[member][place * size : (place + 1) * size]
