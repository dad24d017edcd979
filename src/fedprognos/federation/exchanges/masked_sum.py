"""Masked sums: keys, shares and signatures of the protocol of Bonawitz et al. (2017).

The messages and a member's answers are in :mod:`fedprognos.privacy.masked_member`; the coordinator's side is in
:mod:`fedprognos.federation.masked_sums`. The sums themselves are ordinary requests that carry the number of a sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprognos.errors import MessageError
from fedprognos.federation.exchanges import Exchange, OnEpoch, Words, exchanges
from fedprognos.privacy import (
    BeginReply,
    BeginRequest,
    KeysReply,
    KeysRequest,
    SharesReply,
    SharesRequest,
    SurvivorsReply,
    SurvivorsRequest,
    UnmaskReply,
    UnmaskRequest,
)

if TYPE_CHECKING:
    from fedprognos.federation.client import Client


def answer(client: Client, request: Any, on_epoch: OnEpoch | None) -> Any:
    """What this client says as a member of masked sums."""
    if client.member is None:
        raise MessageError("this site takes part in no masked sums")
    return client.member.answer(request)


KEYS, SUMS = "keys for masked sums", "masked sums"
for exchange in (
    Exchange(KeysRequest, KeysReply, 200, Words(KEYS, "public one-time keys"), answer),
    Exchange(SharesRequest, SharesReply, 210, Words(KEYS, "sealed shares of one-time secrets"), answer),
    Exchange(BeginRequest, BeginReply, 220, Words(KEYS, "that the shares arrived"), answer),
    Exchange(SurvivorsRequest, SurvivorsReply, 230, Words(SUMS, "a signature of who is in a sum"), answer),
    Exchange(
        UnmaskRequest,
        UnmaskReply,
        240,
        Words(SUMS, "shares of one-time secrets", "with most members' shares, a total of all members; no part of it"),
        answer,
    ),
):
    exchanges.add(exchange)
