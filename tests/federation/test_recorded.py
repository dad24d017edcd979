"""Messages of every kind as this version writes them: they must be understood for ever."""

from __future__ import annotations

import pytest
from every_message import KINDS, RECORDED

from fedprognos.federation.codec import decode, encode, ledger_line


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_recorded_message_is_understood_and_written_as_the_same_bytes(kind: type) -> None:
    path = RECORDED / f"{kind.__name__}.message"
    assert path.is_file(), "a new kind of message: python tests/federation/record_messages.py"
    recorded = path.read_bytes()
    message = decode(recorded, KINDS)
    assert type(message) is kind
    assert encode(message) == recorded
    assert ledger_line(recorded).kind == kind.__name__
