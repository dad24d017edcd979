"""A bundle: a folder with the weights (safetensors) and all that is needed to use them (JSON).

No pickle; loading needs neither the training data nor the experiment. Both files are covered by a
digest, so that a changed recipe or weight is refused rather than used. Whoever changes a bundle on purpose can compute
the digest again; signatures (:mod:`fedprognos.networks.trust`) hold against that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedprognos.arrays import FloatArray
from fedprognos.errors import BundleError
from fedprognos.features import Recipe, WindowSet, build_windows
from fedprognos.files import read_json, replacing
from fedprognos.fleet import Fleet
from fedprognos.networks.calibration import Calibration, calibration_of_head
from fedprognos.networks.network import Network
from fedprognos.networks.novelty import Novelty, features_of_novelty
from fedprognos.networks.spec import NetworkSpec
from fedprognos.networks.trust import Trust, keep_signatures, model_text
from fedprognos.tables import TableLayout

if TYPE_CHECKING:
    from fedprognos.identity import Identity

FORMAT = 1
DOCUMENT, TENSORS = "bundle.json", "weights.safetensors"


@dataclass(frozen=True, eq=False)
class Bundle:
    """A trained model ready for use.

    Parameters
    ----------
    provenance
        Where it comes from: experiment, method, clients, seed, versions. No times, no hosts: equal runs
        give equal bytes.
    metrics
        Its scores when it was made.
    calibration
        What prediction intervals are made from; None where there were too few units to calibrate on.
    table
        How the tables that it was trained on were written; None if it was not trained on tables.
    novelty
        How far a state is from those of training; None where the head was not solved from sums.
    signed_by
        Names of the trusted keys that signed it; None where that was not checked.
    """

    recipe: Recipe
    network: Network
    provenance: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None
    table: TableLayout | None = None
    novelty: Novelty | None = None
    signed_by: tuple[str, ...] | None = None

    def save(self, folder: str | Path) -> Path:
        """Write the bundle as a whole or not at all; an older one at the same place is replaced."""
        folder = Path(folder)
        tensors = self._tensors()
        document = self._document(tensors)
        document["digest"] = _digest(document)
        with replacing(folder) as temporary:
            temporary.mkdir()
            (temporary / TENSORS).write_bytes(tensors)
            (temporary / DOCUMENT).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return folder

    def with_own_head(self, head: FloatArray, kept_out: FloatArray | None, facts: Mapping[str, Any]) -> Bundle:
        """The model with an owner's own head; the shared head's intervals are none of this one's.

        Parameters
        ----------
        kept_out : (3, N)
            See :func:`fedprognos.networks.calibration.calibration_of_head`; None where nothing is known.
        facts
            What the provenance says of the head.
        """
        calibration = calibration_of_head(self.calibration, kept_out, self.recipe)
        provenance = {**self.provenance, **facts}
        if calibration is None and self.calibration is not None:
            provenance["no_intervals"] = (
                "it has a head of its owner's, and those of the shared head say nothing of it"
                if kept_out is None
                else "it has a head of its owner's, who has too few machines to tell how often intervals hold"
            )
        network, novelty = self.network.with_head(head), self.novelty
        if novelty is not None and features_of_novelty(network.spec) != features_of_novelty(self.network.spec):
            novelty = None  # a reservoir that the head brings comes before the inputs
            provenance["no_novelty"] = "it has a head of its owner's, and the measure is of other features"
        return replace(
            self, network=network, provenance=provenance, metrics={}, calibration=calibration, novelty=novelty
        )

    def _tensors(self) -> bytes:
        return save_tensors({name: np.ascontiguousarray(array) for name, array in sorted(self.network.weights.items())})

    def _document(self, tensors: bytes) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "recipe": json.loads(self.recipe.to_json()),
            "network": self.network.spec.model_dump(mode="json"),
            "provenance": dict(self.provenance),
            "metrics": dict(self.metrics),
            "calibration": None if self.calibration is None else self.calibration.model_dump(mode="json"),
            "table": None if self.table is None else self.table.model_dump(mode="json", exclude_defaults=True),
            "novelty": None if self.novelty is None else self.novelty.model_dump(mode="json"),
            "weights_sha256": hashlib.sha256(tensors).hexdigest(),
        }

    @property
    def fingerprint(self) -> str:
        """Names everything that decides a prediction; where the model comes from is no part of it."""
        document = self._document(self._tensors())
        return _digest({key: value for key, value in document.items() if key not in {"provenance", "metrics"}})

    @staticmethod
    def load(folder: str | Path, trust: Trust | None = None) -> Bundle:
        """Read a bundle, refusing one that is incomplete, altered, of a newer format, or not signed as trust asks."""
        folder = Path(folder)
        if not (folder / DOCUMENT).is_file() or not (folder / TENSORS).is_file():
            inside = folder / "bundle"
            run = (inside / DOCUMENT).is_file()
            hint = f"this is a run; its model is {inside}" if run else f"a bundle holds {DOCUMENT} and {TENSORS}"
            raise BundleError("not a bundle", where=str(folder), hint=hint)
        document = _read_document(folder / DOCUMENT)
        tensors = (folder / TENSORS).read_bytes()
        if hashlib.sha256(tensors).hexdigest() != document["weights_sha256"]:
            raise BundleError("the weights were altered or cut short", where=str(folder), hint="get the bundle again")
        signed_by = None if trust is None else trust.signers(model_text("bundle", document["digest"]), folder)
        try:
            weights: dict[str, NDArray[np.float32]] = load_tensors(tensors)
            spec = NetworkSpec.model_validate(document["network"])
            calibration = document["calibration"]
            calibration = None if calibration is None else Calibration.model_validate(calibration)
            table = document.get("table")
            table = None if table is None else TableLayout.model_validate(table)
            novelty = document.get("novelty")
            life = bool(document["recipe"].get("life"))
            novelty = None if novelty is None else Novelty.model_validate(novelty).usable(life)
        except (SafetensorError, ValidationError) as error:
            raise BundleError(f"cannot be read: {error}", where=str(folder), hint="another version made it") from None
        recipe = Recipe.from_json(json.dumps(document["recipe"]))
        network = Network(spec, weights).check(str(folder))
        if spec.inputs != recipe.channels:
            what = f"its network takes {spec.inputs} columns, its recipe gives {recipe.channels}"
            raise BundleError(what, where=str(folder), hint="get the bundle again")
        if novelty is not None and len(novelty.mean) > features_of_novelty(spec):
            what = f"its novelty is of {len(novelty.mean)} features, its network has {features_of_novelty(spec)}"
            raise BundleError(what, where=str(folder), hint="get the bundle again")
        return Bundle(
            recipe, network, document["provenance"], document["metrics"], calibration, table, novelty, signed_by
        )

    def windows(self, fleet: Fleet, **options: Any) -> WindowSet:
        """Windows of a fleet as this model sees them; units without a known health are kept."""
        return build_windows(self.recipe, fleet, **{"labelled": False, **options})

    def predict(self, fleet: Fleet, *, last: bool = True) -> dict[str, FloatArray]:
        """Health of each unit: at its last row or cycle, or at every point a full window reaches."""
        windows = self.windows(fleet, points="last" if last else "all", stride=1)
        from fedprognos.networks.network_outputs import predict

        values = predict(self.network, windows, self.recipe)
        return {name: values[windows.unit == k] for k, name in enumerate(windows.unit_ids)}


def sign_bundle(folder: Path, identity: Identity) -> None:
    """Sign a bundle that is saved, after checking that it can be loaded."""
    Bundle.load(folder)
    text = model_text("bundle", _read_document(folder / DOCUMENT)["digest"])
    keep_signatures(folder, {identity.public: identity.sign(text)})


def _digest(document: Mapping[str, Any]) -> str:
    covered = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = read_json(path)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise BundleError("not JSON", where=str(path), hint="get the bundle again")
    version = document.get("format")
    if version != FORMAT:
        newer = isinstance(version, int) and version > FORMAT
        raise BundleError(
            f"format {version!r}, this program reads format {FORMAT}",
            where=str(path),
            hint="update fedprognos" if newer else "it is not a fedprognos bundle",
        )
    needed = {"recipe", "network", "provenance", "metrics", "calibration", "weights_sha256", "digest"}
    if missing := sorted(needed - document.keys()):
        raise BundleError(f"'{missing[0]}' is missing", where=str(path), hint="get the bundle again")
    if not all(isinstance(document[name], dict) for name in ("recipe", "network", "provenance", "metrics")):
        raise BundleError("a part of it is not a table", where=str(path), hint="get the bundle again")
    if document["digest"] != _digest(document):
        raise BundleError("the bundle was altered after it was saved", where=str(path), hint="get the bundle again")
    return document
