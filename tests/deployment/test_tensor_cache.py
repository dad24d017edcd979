"""What a site has is not sent again; what it lost is; the message is the same to the last bit."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1] / "attacks"))

from small_run import SmallRun

from fedprognos.deployment.coordinator import handshake, site_transport
from fedprognos.deployment.steps.signed_steps import RequestHeader
from fedprognos.deployment.tensor_cache import MARK, SentTensors, TensorCache, TensorsMissingError
from fedprognos.errors import MessageError
from fedprognos.federation.codec import encode
from fedprognos.federation.messages import FitReply
from fedprognos.networks import Bundle

LIMIT = 1 << 20
NAMES = ("a", "b", "c")


def message(*numbers: int) -> bytes:
    """A reply with a tensor of 400 numbers for each of these, and a small one."""
    weights = {f"w{k}": np.full(400, number, np.float32) for k, number in enumerate(numbers)}
    return encode(FitReply({**weights, "small": np.zeros(3, np.float32)}, 1, (), 1, False))


numbers = st.lists(st.integers(0, 5), max_size=5)


@given(had=numbers, wanted=numbers)
def test_a_shortened_message_becomes_the_message_again_and_is_no_longer(
    tmp_path_factory: pytest.TempPathFactory, had: list[int], wanted: list[int]
) -> None:
    cache, sent = TensorCache(tmp_path_factory.mktemp("tensors"), LIMIT), SentTensors()
    first, second = message(*had), message(*wanted)
    assert cache.complete(sent.shorten("a", first)) == first
    cache.keep(first)
    sent.answered("a", first, first)
    shortened = sent.shorten("a", second)
    assert cache.complete(shortened) == second
    new = len([n for n in wanted if n not in had])
    if new < len(wanted):
        assert len(shortened) < 1600 * new + 2000
    assert sent.shorten("b", second) == second  # another site has nothing


def test_what_is_lost_or_damaged_is_said(tmp_path: Path) -> None:
    cache, sent = TensorCache(tmp_path / "tensors", LIMIT), SentTensors()
    cache.keep(message(1))
    sent.answered("a", message(1), message(1))
    shortened = sent.shorten("a", message(1))
    assert shortened.startswith(MARK)
    assert sent.saved > 1000
    (file,) = (tmp_path / "tensors").iterdir()
    file.write_bytes(bytes(1600))
    with pytest.raises(TensorsMissingError, match="damaged"):
        cache.complete(shortened)
    cache.clear()
    with pytest.raises(TensorsMissingError, match="no longer in the cache"):
        cache.complete(shortened)
    sent.forget("a")
    assert sent.shorten("a", message(1)) == message(1)


def test_the_cache_has_an_end(tmp_path: Path) -> None:
    cache = TensorCache(tmp_path / "tensors", 4000)
    for number in range(20):
        cache.keep(message(number))
    kept = list((tmp_path / "tensors").iterdir())
    assert 1 <= len(kept) <= 5
    assert cache.complete(message(3)) == message(3)  # a whole message needs no cache


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", message(1)[:40], message(1).replace(b"data_offsets", b"dada_offsets")]
)
def test_a_malformed_reply_teaches_nothing_about_a_site(data: bytes) -> None:
    sent = SentTensors()
    sent.answered("a", message(2), data)
    assert sent.shorten("a", message(1)) == message(1)


@pytest.mark.parametrize(
    "header",
    [
        {"parts": [[8, "../../settings.toml"]]},
        {"parts": [[8, "/etc/passwd"]]},
        {"parts": [[-8, "0" * 64]]},
        {"parts": [[LIMIT * 2, "0" * 64]]},
        {"parts": [[LIMIT, "0" * 64], [1, ""]]},
        {"parts": [[8]]},
        {"parts": "x"},
        {},
        [],
    ],
)
def test_shortened_messages_from_elsewhere_are_checked(tmp_path: Path, header: object) -> None:
    whole = {"sha256": hashlib.sha256(b"").hexdigest(), **header} if isinstance(header, dict) else header
    text = json.dumps(whole).encode()
    for size in (len(text), 1 << 40, len(text) - 2):
        with pytest.raises(MessageError, match="malformed shortened message"):
            TensorCache(tmp_path, LIMIT).complete(MARK + size.to_bytes(8, "little") + text)


# --- a whole federation ---------------------------------------------------------------------------


FEDMA = {
    "model": {"widths": [16, 16]},
    "federation": {"methods": ["fedma"], "heads": ["mean"], "fedma": {"rounds": 2, "width_limit": 1.0}},
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_transport, "LOOK_IN_S", 0.0)
    monkeypatch.setattr(handshake, "ASK_AGAIN_IN_S", 0.0)


def test_a_round_of_fedma_asks_a_site_at_most_once_more_than_there_are_layers_and_sends_no_layer_twice(
    tmp_path: Path,
) -> None:
    run = SmallRun(tmp_path, FEDMA)
    folder = run.perform()
    rounds, layers = 2, 3  # two recurrent ones and the head
    other = 4  # joining, moments, scores, delivery
    for name in NAMES:
        assert sum(site == name for site, _ in run.mailbox.steps) == rounds * (layers + 1) + other
    weights = sum(array.nbytes for array in Bundle.load(folder / "bundle").network.weights.values())
    overhead = 6000 * len(run.mailbox.steps)  # recipe, plan and header of a message
    # Once around: the first training starts from nothing, then every layer goes to every site once, and its
    # inputs above once more; the finished model is evaluated, and the next round starts, with nothing sent.
    assert run.sent.bytes < rounds * 2 * len(NAMES) * weights + overhead
    assert run.sent.saved > 2 * len(NAMES) * weights


def test_a_site_that_lost_its_tensors_is_sent_the_whole_and_the_weights_are_the_same(tmp_path: Path) -> None:
    undisturbed, run = SmallRun(tmp_path / "one", FEDMA), SmallRun(tmp_path / "two", FEDMA)
    undisturbed.perform()

    def forget(site: str, header: RequestHeader, data: bytes) -> None:
        if site == "b":
            run.sites["b"].tensors.clear()

    run.mailbox.before = forget
    run.perform()
    assert run.weights() == undisturbed.weights()
    asked = run.mailbox.inner.asked
    assert asked["b"] > asked["a"] == asked["c"]
    kinds = [line.kind for line in run.sites["b"].ledger.ledger()]
    assert kinds.count("TensorsMissing") == asked["b"] - asked["a"]
