"""What the matcher refuses, and how it says so."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fedprognos.errors import ConfigError, DataError, MissingExtraError
from fedprognos.matching import Anchor, RecurrentWeights, match, match_recurrent
from refusals import refuses, warns

GOOD = np.random.default_rng(0).normal(size=(4, 6))


@pytest.mark.parametrize(
    "bad",
    [
        np.full((3, 6), np.nan),
        np.array([[np.inf] * 6]),
        np.zeros(6),
        np.zeros((2, 3, 6)),
        np.zeros((0, 6)),
        np.zeros((3, 0)),
        np.zeros((3, 5)),
        np.array([["a"] * 6]),
        np.zeros((3, 6), complex),
        [[1.0, 2.0], [3.0]],
    ],
)
def test_bad_vectors_are_refused_by_name_of_client(bad):
    with refuses(DataError, "plant-7"):
        match({"plant-1": GOOD, "plant-7": bad})


def test_the_place_of_a_bad_value_is_named():
    bad = GOOD.copy()
    bad[2, 5] = np.nan
    with refuses(DataError, "client 'b'", "neuron 2", "nan", "dimension 5"):
        match({"a": GOOD, "b": bad})


def test_no_clients():
    with refuses(DataError):
        match({})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cost": "spahn"}, ("'spahn'", "'spahm'")),
        ({"solver": "hungarian"}, ("'hungarian'", "lapx", "scipy")),
        ({"sigma": 0.0}, ("sigma",)),
        ({"sigma0": [1.0, 2.0]}, ("sigma0", (2,))),
        ({"sigma": np.nan}, ("sigma",)),
        ({"gamma": -1.0}, ("gamma", -1.0)),
        ({"sweeps": -1}, ("sweeps", -1)),
        ({"cap": 0}, ("cap", 0)),
        ({"cap": 2.5}, ("cap", 2.5)),
        ({"quota": -1}, ("quota", -1)),
        ({"sizes": {"a": 3}}, ("client 'b'",)),
    ],
)
def test_bad_options_are_refused(options, named):
    with refuses(ConfigError, *named):
        match({"a": GOOD, "b": GOOD}, **options)


@pytest.mark.parametrize(
    "anchor",
    [
        Anchor(GOOD[:, :3]),
        Anchor(GOOD, [1, 2]),
        Anchor(GOOD, [0, 1, 1, 1]),
        Anchor(GOOD, [1.5, 1, 1, 1]),
        np.full((2, 6), np.nan),
    ],
)
def test_bad_anchors_are_refused(anchor):
    with refuses(DataError, "anchor"):
        match({"a": GOOD}, anchor=anchor)


def test_a_cap_below_the_widest_client_is_raised_with_a_warning():
    with warns(2, 4):
        found = match({"a": GOOD, "b": -GOOD}, cap=2)
    assert found.size == found.diagnostics.cap == 4


def test_weights_too_large_to_square_are_refused():
    with np.errstate(over="ignore"), refuses(DataError):
        match({"a": GOOD * 1e200, "b": GOOD * 1e200})


def test_lapx_missing_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "lap", None)
    with refuses(MissingExtraError, "pip install 'fedprognos[fast]'") as caught:
        match({"a": GOOD, "b": GOOD}, solver="lapx")
    assert isinstance(caught.value, ImportError)


def test_importing_the_matcher_loads_neither_torch_nor_pandas():
    code = "import sys, fedprognos.matching; print([m for m in ('torch', 'pandas') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_misshapen_recurrent_weights_name_client_and_tensor():
    good = RecurrentWeights(np.zeros((12, 2)), np.zeros((12, 3)), np.zeros(12), np.zeros(12))
    bad = RecurrentWeights(np.zeros((12, 2)), np.zeros((12, 3)), np.zeros(9), np.zeros(12))
    with refuses(DataError, "client 'b'", "bias_ih"):
        match_recurrent({"a": good, "b": bad})
    with refuses(DataError, "client 'c'", "weight_hh"):
        match_recurrent(
            {"c": RecurrentWeights(np.zeros((12, 2)), np.full((12, 3), np.nan), np.zeros(12), np.zeros(12))}
        )
    with refuses(DataError):
        match_recurrent({})
    with refuses(ConfigError, "'rnn'", "gru"):
        match_recurrent({"a": good}, cell="rnn")
    with refuses(ConfigError, "signature", "ih+hh"):
        match_recurrent({"a": good}, signature="hh")
    other = RecurrentWeights(np.zeros((12, 4)), np.zeros((12, 3)), np.zeros(12), np.zeros(12))
    with refuses(DataError, "inputs"):
        match_recurrent({"a": good, "d": other})
