"""A new kind of exchange is one file: asked, limited, checked, masked, noted and worded without a change elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from my_exchange import END_OF_LIFE, EndOfLifeReply, EndOfLifeRequest

from fedprognos import registry
from fedprognos.deployment.site.site_ledger import ledger_in_words
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges import Failure, what_can_leave
from fedprognos.federation.limits import Limits
from fedprognos.federation.masked_sums import MaskedSums
from fedprognos.federation.totals import total
from fedprognos.privacy.masked_member import Member
from fedprognos.report.sections import ledger
from small_fleets import recipe_of, series_fleet

FLEETS = {name: series_fleet([60, 70, 80], seed=k, name=name) for k, name in enumerate("abc")}
REQUEST = EndOfLifeRequest(recipe_of(FLEETS["a"], window=8), 20.0)


class ClientsHere:
    """A transport to clients in this process; `lies` replaces what a client sends."""

    def __init__(self, folder: Path, lies: Mapping[str, Any] | None = None, **options: Any) -> None:
        places = {name: ClientFolder(folder / "sites" / "all" / name) for name in FLEETS}
        self.members = {name: Client(name, FLEETS[name], places[name], **options) for name in FLEETS}
        self.clients, self.lies = tuple(sorted(FLEETS)), dict(lies or {})

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        replies = {name: self.members[name].respond(data) for name, data in requests.items()}
        return {name: encode(self.lies[name]) if name in self.lies else data for name, data in replies.items()}


@pytest.fixture(autouse=True)
def on_the_shelf() -> Iterator[None]:
    with registry.exchanges.including([END_OF_LIFE]):
        yield


def asked(transport: ClientsHere) -> dict[str, Any]:
    return MessageCohort(transport).ask(dict.fromkeys(transport.clients, REQUEST))


def test_it_is_asked_and_added_up(tmp_path: Path) -> None:
    transport = ClientsHere(tmp_path)
    replies = asked(transport)
    assert all(isinstance(reply, EndOfLifeReply) and 0 < reply.worn < reply.windows for reply in replies.values())
    requests = dict.fromkeys(transport.clients, REQUEST)
    summed = total(MessageCohort(transport), requests, EndOfLifeReply, None, lambda failure: None)
    assert summed == EndOfLifeReply(sum(r.windows for r in replies.values()), sum(r.worn for r in replies.values()))


def test_it_is_limited_and_checked(tmp_path: Path) -> None:
    small = asked(ClientsHere(tmp_path, limits=Limits(memory_in_bytes=100)))
    assert {type(reply) for reply in small.values()} == {Failure}
    lying = asked(ClientsHere(tmp_path, {"b": EndOfLifeReply(5, 6)}))
    assert lying["b"] == Failure("b", "message", "sent 6 worn windows of 5")
    assert isinstance(lying["a"], EndOfLifeReply)


def test_it_is_masked_and_never_leaves_alone(tmp_path: Path) -> None:
    transport, plain = ClientsHere(tmp_path / "masked"), asked(ClientsHere(tmp_path / "open"))
    keys = {name: Ed25519PrivateKey.generate() for name in FLEETS}
    identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
    for name, client in transport.members.items():
        client.member = Member(name, keys[name], identities)
    assert {type(reply) for reply in asked(transport).values()} == {Failure}
    cohort = MessageCohort(transport, sums=MaskedSums("run", identities))
    summed = total(cohort, dict.fromkeys(transport.clients, REQUEST), EndOfLifeReply, None, lambda failure: None)
    assert summed.worn == sum(reply.worn for reply in plain.values())
    assert "EndOfLifeReply" not in {line.kind for line in transport.members["a"].folder.ledger()}


def test_its_words_reach_ledger_approval_and_report(tmp_path: Path) -> None:
    transport = ClientsHere(tmp_path)
    asked(transport)
    (line,) = transport.members["a"].folder.ledger()
    assert line.kind == "EndOfLifeReply"
    run: Any = SimpleNamespace(folder=tmp_path, scenario="all", clients=transport.clients)
    assert ledger.build(run).terms == [("EndOfLifeReply", END_OF_LIFE.words.leaves)]
    noted = [{"kind": "MaskedReply", "request": "EndOfLifeRequest", "bytes": 5, "time": "2026-11-18T00:00:00Z"}]
    assert any(END_OF_LIFE.words.leaves in text for text in ledger_in_words(noted, {}))
    words = END_OF_LIFE.words
    for masked, leaves in ((False, words.leaves), (True, f"{words.leaves}, masked")):  # what `deploy approve` lists
        assert leaves in {shown.leaves for shown in what_can_leave(masked)}
