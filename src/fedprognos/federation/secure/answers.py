"""What a client does for masked sums besides its ordinary answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprognos.errors import MessageError
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import digest
from fedprognos.federation.floors import Floors
from fedprognos.federation.messages import (
    EvaluateRequest,
    OutputsRequest,
    SurveyRequest,
)
from fedprognos.federation.pool_messages import PoolRequest
from fedprognos.federation.score_messages import ResidualRequest, ScoreRequest
from fedprognos.federation.secure.messages import MaskedReply
from fedprognos.federation.secure.sums import Tag, limbs_of
from fedprognos.federation.secure.survey import MomentsRequest, OutlineRequest, moment_sums, outline
from fedprognos.federation.secure.templates import summand, template_of
from fedprognos.federation.secure.vectors import to_vector, unreadable
from fedprognos.fleet import Fleet

if TYPE_CHECKING:  # needs `cryptography`, which is there where sites mask
    from fedprognos.federation.secure.member import Member

NEVER_ALONE = (
    SurveyRequest,
    MomentsRequest,
    EvaluateRequest,
    OutputsRequest,
    PoolRequest,
    ResidualRequest,
    ScoreRequest,
)
"""Requests that a site with masks answers masked only."""


def check_alone(member: Member | None, tag: Tag | None, request: Any) -> None:
    """Refuse to answer unmasked what is masked at this site."""
    if member is not None and tag is None and isinstance(request, NEVER_ALONE):
        raise MessageError("answers of this site are added up masked, and never leave alone")


def masked(member: Member | None, tag: Tag | None, request: Any, reply: Any) -> Any:
    """A reply as it leaves: itself, or as this site's part of a masked sum."""
    if tag is None:
        return reply
    part, template = summand(reply), template_of(request)
    values, hidden, asked = to_vector(part, template), unreadable(part, template), digest(encode(request))
    about, limbs = _about(request) or asked, limbs_of(request)
    found: MaskedReply = _present(member).masked(*tag, asked, values, limbs, about, hidden)
    return found


def _about(request: Any) -> str | None:
    """Names what a request asks for statistics of: whatever is asked of one network is about the same rows.

    A network that is asked about with another seed, split or part differs little in its sums, so all of them must be
    over the same members.
    """
    if isinstance(request, EvaluateRequest | OutputsRequest | PoolRequest | ResidualRequest | ScoreRequest):
        network = request.network
        below = [name for name in sorted(network.weights) if not name.startswith("head.")]
        return digest(b"\x1f".join([repr(network.spec).encode(), *(network.weights[n].tobytes() for n in below)]))
    return None


def answer_sums(member: Member | None, request: Any, fleet: Fleet, floors: Floors) -> Any:
    """Answer what sums need: conditions, moments as sums, keys, shares and signatures."""
    if isinstance(request, OutlineRequest):
        return outline(fleet, request, floors)
    if isinstance(request, MomentsRequest):
        return moment_sums(fleet, request, floors)
    return _present(member).answer(request)


def _present(member: Member | None) -> Member:
    if member is None:
        raise MessageError("this site takes part in no masked sums")
    return member
