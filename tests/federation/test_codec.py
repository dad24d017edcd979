from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import MessageError
from fedprognos.features import SurveyTerms, survey
from fedprognos.federation.codec import VERSION, decode, encode
from fedprognos.federation.exchanges import Failure, reply_kinds, request_kinds
from fedprognos.federation.exchanges.fit import FitReply, FitRequest
from fedprognos.federation.exchanges.survey import SurveyReply, SurveyRequest
from fedprognos.networks import Epoch, Network, NetworkSpec
from fedprognos.networks.model_options import Training
from refusals import refuses
from small_fleets import recipe_of, series_fleet

FLEET = series_fleet([150, 90])
RULE = {"altitude": 0, "mach": 2}
SPEC = NetworkSpec(inputs=2, widths=(4,))
NETWORK = Network.seeded(SPEC, 0)
WEIGHTS = NETWORK.weights
TERMS = SurveyTerms(conditions=RULE)
REQUEST = FitRequest(recipe_of(FLEET, conditions=RULE), Training(epochs=3), 0.2, seed=7, start=NETWORK, frozen=1)
REPLY = FitReply(WEIGHTS, 12, (Epoch(1, 2.0, None), Epoch(2, 1.0, 1.5)), 2, False)
MESSAGES = [SurveyRequest(TERMS), REQUEST, SurveyReply(survey(FLEET, TERMS)), REPLY, Failure("a", "data", "no")]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_messages_come_back_whole(message: object) -> None:
    data = encode(message)
    again = decode(data, (*request_kinds(), *reply_kinds()))
    assert type(again) is type(message)
    assert encode(again) == data


def test_every_weight_comes_back_bit_for_bit() -> None:
    again = decode(encode(REPLY), reply_kinds())
    assert all(np.array_equal(again.weights[k], WEIGHTS[k]) for k in WEIGHTS)
    assert again.history == REPLY.history


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_bytes_are_refused_or_still_a_valid_message(data: st.DataObject) -> None:
    whole = bytearray(encode(REPLY))
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for damaged in (bytes(whole), bytes(whole[:cut])):
        try:
            message = decode(damaged, reply_kinds(), "client a")
        except MessageError as error:
            assert "client a" in str(error)
        else:
            assert isinstance(message, FitReply)
            assert all(np.isfinite(a).all() for a in message.weights.values())


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}", b"pickle" * 9])
def test_rubbish_is_not_a_message(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode(data, reply_kinds())


def test_a_text_that_no_file_and_no_terminal_takes_is_refused() -> None:
    """A site could end the coordinator with it, and so again at every start."""
    good = encode(Failure("a", "b", "\N{GRINNING FACE}"))
    assert decode(good, (Failure,)).text.encode()
    for half in ("\ud800", "\udfff x"):
        with pytest.raises(MessageError):
            decode(encode(Failure("a", "b", half)), (Failure,))


def test_numbers_that_are_none_are_refused_by_name() -> None:
    broken = {**WEIGHTS, "head.bias": np.array([np.nan], np.float32)}
    with refuses(MessageError, "head.bias", "NaN"):
        decode(encode(FitReply(broken, 1, (), 1, False)), reply_kinds())


@dataclass(frozen=True)
class Surprise:
    client: str


def test_a_message_of_another_kind_or_version_is_refused() -> None:
    with refuses(MessageError, "'Surprise'"):
        decode(encode(Surprise("a")), reply_kinds())
    with refuses(MessageError, "'FitRequest'"):
        decode(encode(REQUEST), reply_kinds())
    newer = encode(Failure("a", "b", "c")).replace(rb"\"version\": 2", rb"\"version\": 3")
    with refuses(MessageError, 3, VERSION):
        decode(newer, reply_kinds())


@pytest.mark.parametrize(
    "body",
    [
        {"client": 1, "code": "x", "text": "y"},
        {"client": "a", "code": "x"},
        {"client": "a", "code": "x", "text": "y", "more": 1},
        [],
        "text",
    ],
)
def test_fields_of_the_wrong_type_are_refused(body: object) -> None:
    from safetensors.numpy import save

    data = save({}, metadata={"fedprognos": json.dumps({"version": 2, "kind": "Failure", "body": body})})
    with refuses(MessageError, "Failure"):
        decode(data, reply_kinds())
