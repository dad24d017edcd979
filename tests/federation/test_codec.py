from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fedprognos.errors import MessageError
from fedprognos.features import SurveyTerms, survey
from fedprognos.federation.codec import PACKED_VERSION, VERSION, as_travelled, decode, encode, envelope_of
from fedprognos.federation.exchanges import Failure, reply_kinds, request_kinds
from fedprognos.federation.exchanges.evaluate import EvaluateReply
from fedprognos.federation.exchanges.fit import FitReply, FitRequest
from fedprognos.federation.exchanges.outputs import OutputsReply
from fedprognos.federation.exchanges.survey import SurveyReply, SurveyRequest
from fedprognos.federation.federation_section import Wire
from fedprognos.matching import OutputSums, RecurrentWeights, absorb
from fedprognos.networks import Epoch, HeadStatistics, Network, NetworkSpec
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
    newer = encode(Failure("a", "b", "c")).replace(rb"\"version\": 2", rb"\"version\": 4")
    with refuses(MessageError, 4, VERSION, PACKED_VERSION):
        decode(newer, reply_kinds())


def statistics(columns: int = 80, rows: int = 150, copies: int = 0) -> HeadStatistics:
    """Of outputs of which the last few are copies of the first, beside a constant and a dead one."""
    h = np.tanh(np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)).astype(np.float64)
    h[:, 5], h[:, 6] = 0.3, 0.0
    h[:, columns - copies :] = h[:, :copies]
    h = np.column_stack([h, np.ones(rows)])
    y = h[:, 0] - 2 * h[:, 1]  # the outputs say all about the labels
    return HeadStatistics(rows, float(y @ y), h.T @ h, h.T @ y)


@pytest.mark.parametrize("rows", [60, 150])
def test_factors_keep_products_to_float32_and_contradict_nothing(rows: int) -> None:
    sent = statistics(rows=rows)
    whole = encode(EvaluateReply(None, sent))
    data = encode(EvaluateReply(None, sent), factors=True)
    assert len(data) < 0.35 * len(whole)
    assert envelope_of(data)["version"] == PACKED_VERSION
    got = decode(data, reply_kinds()).fit
    size = np.sqrt(sent.hh.diagonal())
    assert (np.abs(got.hh - sent.hh) <= 1.2e-7 * np.outer(size, size)).all()
    for exact in ("n", "yy", "hy"):
        np.testing.assert_array_equal(getattr(got, exact), getattr(sent, exact))
    np.testing.assert_array_equal(got.hh[-1], sent.hh[-1])
    got.sums.check(label_range=(-9.0, 9.0))


def test_neurons_that_are_copies_are_found_by_what_a_factor_gives_back() -> None:
    data = encode(EvaluateReply(None, statistics(copies=20)), factors=True)
    sums = decode(data, reply_kinds()).fit.sums
    layer = RecurrentWeights(np.ones((240, 1)), np.zeros((240, 80)), np.zeros(240), np.zeros(240))
    gone = absorb([layer], [sums], width=58, head=sums).absorbed[0]
    assert all(a.redundant for a in gone[:22])
    assert {min(a.neuron, *a.partners) for a in gone if a.neuron not in (5, 6) and a.partners} >= set(range(5))


def test_sums_of_outputs_travel_as_factors_too() -> None:
    sums = statistics().sums
    sums = OutputSums(sums.n, 3, sums.s, sums.S)
    data = encode(OutputsReply((sums,)), factors=True)
    (got,) = decode(data, reply_kinds()).layers
    assert len(data) < 0.35 * len(encode(OutputsReply((sums,))))
    np.testing.assert_allclose(got.S, sums.S, atol=1e-6 * sums.n)
    got.check()


def test_products_that_no_rows_have_travel_whole() -> None:
    noisy = replace(statistics(), hh=statistics().hh + np.diag(np.linspace(-200, 200, 81)))
    assert encode(EvaluateReply(None, noisy), factors=True) == encode(EvaluateReply(None, noisy))


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
def test_zeros_between_networks_side_by_side_do_not_travel(wire: Wire) -> None:
    bodies = [Network.seeded(NetworkSpec(inputs=3, widths=(40,)), k) for k in range(6)]
    request = replace(REQUEST, start=Network.concat(bodies))
    data = encode(request, wire)
    assert len(data) < 1.6 * sum(len(encode(replace(REQUEST, start=body), wire)) for body in bodies)
    assert len(data) < 8 + 4 * request.start.spec.parameters / (3 if wire == "float32" else 6)
    got = decode(data, request_kinds()).start
    weights = as_travelled(request.start.weights, wire)
    for name, tensor in got.weights.items():
        assert np.array_equal(tensor.view(np.uint32), weights[name].view(np.uint32))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_factors_and_places_are_refused_or_still_a_valid_message(data: st.DataObject) -> None:
    wide = Network.concat([Network.seeded(NetworkSpec(inputs=2, widths=(20,)), k) for k in range(3)])
    for message, kinds in (
        (EvaluateReply(None, statistics(70)), reply_kinds()),
        (replace(REQUEST, start=wide), request_kinds()),
    ):
        whole = bytearray(encode(message, factors=True))
        for _ in range(data.draw(st.integers(1, 5))):
            header = int.from_bytes(whole[:8], "little")
            whole[data.draw(st.integers(0, min(len(whole) - 1, header + 2000)))] = data.draw(st.integers(0, 255))
        with contextlib.suppress(MessageError):
            decode(bytes(whole), kinds, "client a")


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("/fit/hh|order", np.zeros(80, np.int64)),
        ("/fit/hh|order", np.arange(79)),
        ("/fit/hh|order", np.linspace(0, 79, 80)),
        ("/fit/hh|factor", np.zeros(81, np.float32)),
        ("/fit/hh|factor", np.full(80, np.inf, np.float32)),
        ("/fit/hh|ones", np.zeros(3)),
        ("/fit/hh|ones", np.zeros(5000)),
        ("/fit/hy", np.zeros(0)),
    ],
)
def test_factors_of_the_wrong_shape_are_refused(name: str, tensor: np.ndarray) -> None:
    data = encode(EvaluateReply(None, statistics()), factors=True)
    text = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    with refuses(MessageError, "EvaluateReply"):
        decode(save({**load(data), name: tensor}, metadata=text), reply_kinds())


@pytest.mark.parametrize("shape", [[1 << 40], [64, -2], [64, 1.0], "many", [[64]], [64, 65]])
def test_places_that_do_not_fit_are_refused(shape: object) -> None:
    weights = {"w": np.eye(64, dtype=np.float32)}
    data = encode(FitReply(weights, 12, (), 2, False))
    text = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["fedprognos"]
    assert json.loads(text)["sparse"] == {"/weights/w": [64, 64]}
    text = json.dumps({**json.loads(text), "sparse": {"/weights/w": shape}})
    with refuses(MessageError, "FitReply"):
        decode(save(load(data), metadata={"fedprognos": text}), reply_kinds())


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
    data = save({}, metadata={"fedprognos": json.dumps({"version": 2, "kind": "Failure", "body": body})})
    with refuses(MessageError, "Failure"):
        decode(data, reply_kinds())
