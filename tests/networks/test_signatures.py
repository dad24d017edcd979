"""Signed models: altered weights, altered or foreign signatures, unknown, revoked and expired keys are refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from fedprognos.cli import app
from fedprognos.errors import ConfigError
from fedprognos.features import Recipe
from fedprognos.identity import identity_from_file
from fedprognos.networks import (
    Bundle,
    Network,
    NetworkSpec,
    SignatureError,
    Trust,
    sign_bundle,
    sign_file,
    trust_text,
    write_trust,
)
from fedprognos.networks.bundle import _digest
from fedprognos.prognosis import OnnxPredictor, Predictor, export_onnx
from refusals import refuses

EDGE = Path(__file__).parents[2] / "edge" / "predict_edge.py"
RECIPE = Recipe(task="rul", sensors=("vibration",), window=2, mean=((0.0,),), std=((1.0,),), cap=100.0)


def bundle(folder: Path, seed: int = 0) -> Path:
    return Bundle(RECIPE, Network.seeded(NetworkSpec(inputs=1, widths=(4,)), seed, bias=30.0)).save(folder)


def trust(folder: Path, *names: str, needed: int = 1, **facts: object) -> Trust:
    keys = [{"name": name, "public": identity_from_file(folder / f"{name}.key").public, **facts} for name in names]
    return Trust.model_validate({"needed": needed, "keys": keys})


def signed(tmp_path: Path, *names: str, seed: int = 0) -> Path:
    folder = bundle(tmp_path / f"bundle-{seed}", seed)
    for name in names:
        sign_bundle(folder, identity_from_file(tmp_path / f"{name}.key"))
    return folder


def test_a_signed_bundle_loads_and_names_its_signers(tmp_path: Path) -> None:
    folder = signed(tmp_path, "plant-a", "plant-b")
    assert Bundle.load(folder).signed_by is None
    assert Bundle.load(folder, trust(tmp_path, "plant-a", "plant-b", needed=2)).signed_by == ("plant-a", "plant-b")
    assert (tmp_path / "plant-a.key").stat().st_mode & 0o077 == 0


def test_altered_weights_with_a_new_digest_are_refused(tmp_path: Path) -> None:
    folder = signed(tmp_path, "plant-a")
    weights = {name: array + np.float32(1) for name, array in load_file(folder / "weights.safetensors").items()}
    save_file(weights, folder / "weights.safetensors")
    document = json.loads((folder / "bundle.json").read_text())
    document["weights_sha256"] = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
    document["digest"] = _digest(document)
    (folder / "bundle.json").write_text(json.dumps(document))
    Bundle.load(folder)  # nothing tells it from an honest one without trust
    with refuses(SignatureError, "plant-a", folder, code="signature"):
        Bundle.load(folder, trust(tmp_path, "plant-a"))


def test_the_signature_of_another_bundle_is_refused(tmp_path: Path) -> None:
    folder, other = signed(tmp_path, "plant-a"), signed(tmp_path, "plant-a", seed=1)
    shutil.copy(other / "signatures.json", folder / "signatures.json")
    with refuses(SignatureError, "plant-a"):
        Bundle.load(folder, trust(tmp_path, "plant-a"))


@pytest.mark.parametrize("place", [0, 40, 127])
def test_an_altered_signature_is_refused_even_beside_a_good_one(tmp_path: Path, place: int) -> None:
    folder = signed(tmp_path, "plant-a", "plant-b")
    content = json.loads((folder / "signatures.json").read_text())
    public = identity_from_file(tmp_path / "plant-b.key").public
    text = content["signatures"][public]
    content["signatures"][public] = text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]
    (folder / "signatures.json").write_text(json.dumps(content))
    with refuses(SignatureError, "plant-b"):
        Bundle.load(folder, trust(tmp_path, "plant-a", "plant-b"))


def test_unsigned_unknown_revoked_and_expired_keys_are_refused(tmp_path: Path) -> None:
    today = datetime.now(UTC).date()
    with refuses(SignatureError, code="signature"):
        Bundle.load(signed(tmp_path), trust(tmp_path, "plant-a"))
    folder = signed(tmp_path, "plant-a")
    with refuses(SignatureError, 1):
        Bundle.load(folder, trust(tmp_path, "stranger"))
    with refuses(SignatureError, "plant-a"):
        Bundle.load(folder, trust(tmp_path, "plant-a", revoked=True))
    with refuses(SignatureError, today - timedelta(1)):
        Bundle.load(folder, trust(tmp_path, "plant-a", until=today - timedelta(1)))
    assert Bundle.load(folder, trust(tmp_path, "plant-a", until=today)).signed_by == ("plant-a",)
    with refuses(SignatureError, "1 of 2"):
        Bundle.load(folder, trust(tmp_path, "plant-a", "plant-b", needed=2))


def test_a_key_is_rotated_by_a_second_signature(tmp_path: Path) -> None:
    folder = signed(tmp_path, "old", "new")
    old, new = (identity_from_file(tmp_path / f"{name}.key").public for name in ("old", "new"))
    entries = [{"name": "old", "public": old, "revoked": True}, {"name": "new", "public": new}]
    assert Bundle.load(folder, Trust.model_validate({"keys": entries})).signed_by == ("new",)


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"signatures": {"a": 1}}', b"[" * 100_000, b" " * (2 << 20)])
def test_a_damaged_file_of_signatures_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = signed(tmp_path, "plant-a")
    (folder / "signatures.json").write_bytes(content)
    with refuses(SignatureError, "signatures.json"):
        Bundle.load(folder, trust(tmp_path, "plant-a"))


def test_signatures_elsewhere_do_not_count(tmp_path: Path) -> None:
    folder = signed(tmp_path)
    (folder / "signatures.json").symlink_to("/dev/zero")  # not a file: it is never read
    with refuses(SignatureError):
        Bundle.load(folder, trust(tmp_path, "plant-a"))


def test_a_head_needs_a_signature_of_its_own(tmp_path: Path) -> None:
    folder, head = signed(tmp_path, "plant-a"), tmp_path / "head.safetensors"
    save_file({"head": np.ones(5)}, head)
    with refuses(SignatureError, head):
        Predictor.load(folder, head, trust(tmp_path, "plant-a"))
    sign_file(head, identity_from_file(tmp_path / "plant-a.key"))
    assert Predictor.load(folder, head, trust(tmp_path, "plant-a")).signed_by == ("plant-a",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "keys = []",
        trust_text([("a", "00" * 32), ("b", "00" * 32)]),
        trust_text([("a", "00" * 32)], needed=2),
        trust_text([("a", "zz" * 32)]),
        trust_text([("a", "00" * 32)]) + "revokd = true\n",
    ],
)
def test_a_wrong_trust_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "trust.toml").write_text(text)
    with refuses(ConfigError, "trust.toml"):
        Trust.from_file(tmp_path / "trust.toml")


def test_sign_prints_the_trust_file_that_predict_reads(tmp_path: Path) -> None:
    folder, rows = bundle(tmp_path / "b"), tmp_path / "rows.csv"
    rows.write_text("unit,time,vibration\n" + "".join(f"pump,{t},0.{t}\n" for t in range(1, 5)))
    runner = CliRunner()
    done = runner.invoke(app, ["sign", str(folder), "--key", str(tmp_path / "owner.key")])
    assert done.exit_code == 0, done.output
    (tmp_path / "trust.toml").write_text(done.stdout)
    predicted = runner.invoke(app, ["predict", str(folder), str(rows), "--trust", str(tmp_path / "trust.toml")])
    assert predicted.exit_code == 0, predicted.output
    assert "owner" in predicted.output
    write_trust(tmp_path / "other.toml", [("other", "00" * 32)])
    refused = runner.invoke(app, ["predict", str(folder), str(rows), "--trust", str(tmp_path / "other.toml")])
    assert isinstance(refused.exception, SignatureError)


def test_an_onnx_file_is_checked_here_and_on_the_edge(tmp_path: Path) -> None:
    path, rows, keys = tmp_path / "model.onnx", tmp_path / "rows.csv", tmp_path / "trust.toml"
    rows.write_text("unit,time,vibration\n" + "".join(f"pump,{t},0.{t}\n" for t in range(1, 5)))
    export_onnx(Bundle.load(bundle(tmp_path / "b")), path)
    identity = identity_from_file(tmp_path / "owner.key")
    write_trust(keys, [("owner", identity.public)])

    def edge() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EDGE), str(path), str(rows), "--trust", str(keys)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    with refuses(SignatureError, path):
        OnnxPredictor.load(path, trust=Trust.from_file(keys))
    assert edge().returncode == 1
    sign_file(path, identity)
    assert OnnxPredictor.load(path, trust=Trust.from_file(keys)).signed_by == ("owner",)
    assert edge().stdout.startswith("pump: ")
    altered = bytearray(path.read_bytes())
    altered[-1] ^= 1
    path.write_bytes(altered)
    with refuses(SignatureError, "owner"):
        OnnxPredictor.load(path, trust=Trust.from_file(keys))
    assert "owner" in edge().stderr
    path.write_bytes(bytes(altered[:-1]) + bytes([altered[-1] ^ 1]))
    keys.write_text(keys.read_text().replace("public =", "revoked = true\npublic ="))
    assert edge().returncode == 1
