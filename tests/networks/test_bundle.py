from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedprognos.errors import BundleError, OutputError
from fedprognos.features import Recipe, build_windows
from fedprognos.networks import Bundle, Network, NetworkSpec, Novelty, predict
from fedprognos.networks.bundle import _digest
from refusals import refuses
from small_fleets import recipe_of, series_fleet

FLEET = series_fleet([60, 50])
RECIPE = recipe_of(FLEET, cap=30)
SPEC = NetworkSpec(inputs=2, widths=(5,))


def bundle() -> Bundle:
    return Bundle(RECIPE, Network.seeded(SPEC, 3), {"method": "central"}, {"all": {"rmse": 1.5}})


def test_a_bundle_comes_back_whole_and_predicts_the_same(tmp_path: Path) -> None:
    original = bundle()
    loaded = Bundle.load(original.save(tmp_path / "b"))
    assert loaded.recipe == original.recipe
    assert loaded.network.spec == SPEC
    assert loaded.provenance == {"method": "central"}
    windows = build_windows(RECIPE, FLEET)
    expected = predict(original.network, windows, RECIPE)
    got = loaded.predict(FLEET, last=False)
    np.testing.assert_array_equal(np.concatenate([got[name] for name in FLEET.ids]), expected)
    assert set(loaded.predict(FLEET)) == set(FLEET.ids)


def test_equal_bundles_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        bundle().save(tmp_path / name)
    for file in ("bundle.json", "weights.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def edit(folder: Path, **changes: object) -> None:
    path = folder / "bundle.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda f: edit(f, format=2), "format 2"),
        (lambda f: edit(f, format="x"), "bundle"),
        (lambda f: edit(f, provenance={"method": "mine"}), "altered"),
        (lambda f: (f / "bundle.json").write_text("{"), "JSON"),
        (lambda f: (f / "bundle.json").write_text('{"format": 1}'), "missing"),
        (lambda f: (f / "weights.safetensors").unlink(), "bundle"),
        (lambda f: (f / "weights.safetensors").write_bytes(b"\0" * 99), "weights"),
    ],
)
def test_a_damaged_bundle_is_refused(tmp_path: Path, damage, named: str) -> None:  # type: ignore[no-untyped-def]
    folder = bundle().save(tmp_path / "b")
    damage(folder)
    with refuses(BundleError, named):
        Bundle.load(folder)


@pytest.mark.parametrize("part", ["recipe", "network", "provenance", "metrics"])
def test_a_bundle_whose_digest_was_made_again_for_something_else_than_tables_is_refused(
    tmp_path: Path, part: str
) -> None:
    folder = bundle().save(tmp_path / "b")
    document = {**json.loads((folder / "bundle.json").read_text()), part: ["no table"]}
    edit(folder, **{**document, "digest": _digest(document)})
    with refuses(BundleError, "bundle"):
        Bundle.load(folder)


def test_a_recipe_that_does_not_fit_the_network_is_refused(tmp_path: Path) -> None:
    """With a digest made again, it would fail only when rows come."""
    bundle().save(tmp_path / "b")
    document = json.loads((tmp_path / "b" / "bundle.json").read_text())
    document["recipe"]["condition_inputs"] = True
    document["digest"] = _digest({key: value for key, value in document.items() if key != "digest"})
    (tmp_path / "b" / "bundle.json").write_text(json.dumps(document))
    with refuses(BundleError, 2, Recipe.from_json(json.dumps(document["recipe"])).channels):
        Bundle.load(tmp_path / "b")


@pytest.mark.parametrize("widths", [(5,), ()])
def test_a_head_with_a_reservoir_keeps_a_novelty_of_layers_and_leaves_one_of_inputs(widths: tuple[int, ...]) -> None:
    """The reservoir stands where the inputs stood: their mean and whitening would be applied to its outputs."""
    network = Network.seeded(NetworkSpec(inputs=2, widths=widths, direct=1), 3)
    novelty = Novelty(mean=(0.0, 0.0), whitening=((1.0, 0.0), (0.0, 1.0)), limit=4.0)
    shared = replace(bundle(), network=network, novelty=novelty)
    head = np.zeros(network.with_reservoir().spec.features + 1)
    own = shared.with_own_head(head, None, {"head": "choice"})
    assert own.novelty == (novelty if widths else None)
    assert ("no_novelty" in own.provenance) == (not widths)
    assert shared.with_own_head(np.zeros(network.spec.features + 1), None, {}).novelty == novelty


@pytest.mark.parametrize(("rows", "columns", "named"), [(9, 9, "9 features"), (2, 3, "whitening")])
def test_a_novelty_that_does_not_fit_the_network_is_refused(
    tmp_path: Path, rows: int, columns: int, named: str
) -> None:
    bundle().save(tmp_path / "b")
    document = json.loads((tmp_path / "b" / "bundle.json").read_text())
    document["novelty"] = {"mean": [0.0] * rows, "whitening": [[0.0] * columns] * rows, "limit": 3.0}
    document["digest"] = _digest({key: value for key, value in document.items() if key != "digest"})
    (tmp_path / "b" / "bundle.json").write_text(json.dumps(document))
    with refuses(BundleError, named):
        Bundle.load(tmp_path / "b")


def test_one_flipped_bit_anywhere_in_the_weights_is_noticed(tmp_path: Path) -> None:
    folder = bundle().save(tmp_path / "b")
    whole = (folder / "weights.safetensors").read_bytes()
    for place in np.random.default_rng(0).integers(len(whole), size=25):
        broken = bytearray(whole)
        broken[place] ^= 1
        (folder / "weights.safetensors").write_bytes(bytes(broken))
        with pytest.raises(BundleError):
            Bundle.load(folder)


def test_a_failed_save_leaves_the_old_bundle_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bundle().save(tmp_path / "b")
    before = (folder / "bundle.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with refuses(OutputError, "No space left on device"):
        bundle().save(folder)
    assert (folder / "bundle.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


@pytest.mark.long
def test_loading_needs_no_pickle_and_no_training_data(tmp_path: Path) -> None:
    folder = bundle().save(tmp_path / "b")
    code = "import sys; from fedprognos import Bundle; b = Bundle.load(sys.argv[1]); print(b.network.spec.widths)"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(5,)"
