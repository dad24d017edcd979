"""The messages between coordinator and sites for a masked sum.

A batch makes the keys and shares of several sums at once: keys, shares, begin. Each sum then takes an ordinary request
that carries the batch and a number, one signature of who survived, and one share for each member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_MEMBERS = 3
"""A sum of two is no secret between them."""


def quorum(members: int) -> int:
    """How many members a sum needs: more than two thirds, and never fewer than three.

    With two members, each would know the other's numbers. Two sets of more than two thirds share more than a third of
    the members, so fewer colluding members than that cannot get two different sets signed for one sum.

    >>> quorum(3), quorum(4), quorum(5), quorum(10)
    (3, 3, 4, 7)
    """
    return max(2 * members // 3 + 1, LEAST_MEMBERS)


@dataclass(frozen=True)
class KeysRequest:
    """Make one-time keys for so many sums of these members; `identities` are the members' public keys, in hex."""

    batch: str
    count: int
    identities: Mapping[str, str]


@dataclass(frozen=True)
class KeysReply:
    """Public keys in hex: one that shares are sealed with, and one a sum; signed by the member."""

    sealing: str
    masking: tuple[str, ...]
    signature: str


@dataclass(frozen=True)
class SharesRequest:
    """Share your secrets with the members that have these keys."""

    batch: str
    keys: Mapping[str, KeysReply]


@dataclass(frozen=True)
class SharesReply:
    """For each other member its shares of all secrets, sealed, in hex."""

    sealed: Mapping[str, str]


@dataclass(frozen=True)
class BeginRequest:
    """These are your shares of the members that take part."""

    batch: str
    sealed: Mapping[str, str]


@dataclass(frozen=True)
class BeginReply:
    """Ready."""


@dataclass(frozen=True, eq=False)
class MaskedReply:
    """An answer, masked: integers (N, limbs) modulo 2^64 each limb."""

    masked: NDArray[np.int64]


@dataclass(frozen=True)
class SurvivorsRequest:
    """Sign that these members, and no others, are in this sum."""

    batch: str
    index: int
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class SurvivorsReply:
    """The signature, in hex."""

    signature: str


@dataclass(frozen=True)
class UnmaskRequest:
    """A quorum of the members signed this set: give your share of each survivor's own mask, and of the mask key of each
    member that is missing."""

    batch: str
    index: int
    survivors: tuple[str, ...]
    signatures: Mapping[str, str]


@dataclass(frozen=True)
class UnmaskReply:
    """One share a member, in hex."""

    shares: Mapping[str, str]


SumRequest = KeysRequest | SharesRequest | BeginRequest | SurvivorsRequest | UnmaskRequest
