"""An experiment as TOML, validated: sections data, partition, recipe, model, train, federation, evaluation.

Unknown keys are errors with the nearest valid name; every message names section and key. A file may build on a preset
(`base`) and have several sizes (`[scales.NAME]`), of which `scale` chooses one.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, SerializeAsAny, create_model, model_validator

from fedprognos.errors import ConfigError, unknown_name
from fedprognos.evaluation import EvaluationOptions
from fedprognos.features import RecipeOptions
from fedprognos.federation import FederationOptions, federation_options
from fedprognos.files import parse_toml, toml_text, write_text
from fedprognos.fleet import Partition
from fedprognos.fleet.readers import ReaderOptions, readers
from fedprognos.networks import ModelOptions, TrainOptions
from fedprognos.networks.cells import cells
from fedprognos.options import Options, chosen_options, validated
from fedprognos.tables import SUFFIXES


def _federation() -> FederationOptions:
    return federation_options()()


class Experiment(Options):
    """A whole experiment."""

    title: str = ""
    scale: str = ""
    """Which of its sizes this is, where there are several."""
    search: NonNegativeInt | Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?[smh]$")] = 0
    """Try other recipes on training units kept out before the run, within this budget: time for the whole run ("10m"),
    or training steps of all clients together. The run records the steps. 0 runs exactly what is written."""
    data: Annotated[SerializeAsAny[ReaderOptions], BeforeValidator(chosen_options(readers, "kind"))]
    partition: dict[str, Partition]
    recipe: RecipeOptions = RecipeOptions()
    model: ModelOptions = ModelOptions()
    train: TrainOptions = TrainOptions()
    federation: FederationOptions = Field(default_factory=_federation)
    evaluation: EvaluationOptions = Field(default_factory=EvaluationOptions)

    @model_validator(mode="after")
    def _privacy_covers_all_that_leaves(self) -> Self:
        from fedprognos.federation.strategies import strategies

        privacy = self.federation.privacy
        if privacy is None:
            return self
        if self.train.validation_fraction > 0:
            raise ValueError("privacy does not cover errors on a validation part: set train.validation_fraction = 0")
        if privacy.per == "row" and self.recipe.history == "life":
            raise ValueError("with whole lives every row is in all later ones: set federation.privacy.per = 'unit'")
        covered = [name for name, cell in cells.items() if cell.recurrent_factor is not None]
        if any(strategies[name].trains for name in self.federation.methods) and self.model.cell not in covered:
            raise ValueError(
                f"privacy does not cover training of model.cell = '{self.model.cell}'; it covers {', '.join(covered)}"
            )
        return self

    @model_validator(mode="after")
    def _search_needs_units_kept_out(self) -> Self:
        if not self.search:
            return self
        if self.federation.privacy is not None:
            raise ValueError("privacy does not cover errors on units kept out: set search = 0")
        if self.federation.start == "bundles":
            raise ValueError("models that were trained earlier have their recipe: set search = 0")
        if self.train.validation_fraction == 0 or "exact" not in self.federation.heads:
            raise ValueError("search needs train.validation_fraction above 0 and 'exact' among federation.heads")
        return self

    @model_validator(mode="after")
    def _refit_trains_again(self) -> Self:
        if self.evaluation.refit and self.federation.privacy is not None:
            raise ValueError("privacy counts every training; set evaluation.refit = false")
        if self.evaluation.refit and self.federation.start == "bundles":
            raise ValueError("models that were trained earlier are not trained again; set evaluation.refit = false")
        return self

    @property
    def releases(self) -> int:
        """Noised sums that each client sends under privacy: all scenarios, methods and seeds together.

        Intervals are not made under privacy, so that calibration adds none.
        """
        from fedprognos.federation.strategies import strategies

        options, heads = self.federation, self.federation.heads
        each = [
            strategy.releases(options.strategy_options(name, strategy.options), heads)
            for name in options.methods
            if (strategy := strategies[name]).releases is not None
        ]
        return len(self.partition) * self.evaluation.seeds * sum(each)

    def dump(self) -> dict[str, Any]:
        """Plain JSON values, ready for results.json."""
        plain: dict[str, Any] = json.loads(self.model_dump_json())
        return plain


def parse(raw: Mapping[str, Any], where: str) -> Experiment:
    """Validate a parsed TOML document.

    `[partition]` may hold one scenario directly (then called "all") or several as `[partition.NAME]`.
    """
    document = dict(raw)
    partition = document.get("partition")
    unnamed = isinstance(partition, Mapping) and not all(
        isinstance(v, Mapping) and "by" in v for v in partition.values()
    )
    if unnamed:
        document["partition"] = {"all": partition}
    try:
        return validated(assembled(), document, where, hint="see docs/experiments.md for every key")
    except ConfigError as error:
        what = error.what.replace("partition.all", "partition") if unnamed else error.what
        raise ConfigError(what, where=error.where, hint=error.hint) from None


def assembled() -> type[Experiment]:
    """The model of an experiment with the options of everything that is registered now."""
    return _assembled(federation_options())


@lru_cache
def _assembled(federation: type[FederationOptions]) -> type[Experiment]:
    return create_model("Experiment", __base__=Experiment, federation=(federation, Field(default_factory=federation)))


def presets() -> dict[str, str]:
    """Name and title of every preset that comes with the package."""
    titles = {}
    for file in sorted(resources.files("fedprognos.presets").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            titles[file.name.removesuffix(".toml")] = tomllib.loads(file.read_text("utf-8")).get("title", "")
    return titles


def load(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> tuple[str, Experiment, Path]:
    """Read a preset by name, a TOML file or its content, with `section.key=value` overrides.

    Returns
    -------
    name, experiment, folder
        The experiment's name, its validated content, and the folder that relative paths in it refer to.
    """
    name, raw, folder = _read(source)
    where = name if isinstance(source, Mapping) else str(source)
    chosen = [o for o in overrides if o.partition("=")[0].strip() == "scale"]
    for override in chosen:
        _override(raw, override)
    raw = _scaled(raw, where)
    for override in overrides:
        if override not in chosen:
            _override(raw, override)
    return name, parse(raw, where), folder


def merged(source: str | Path | Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a preset, file or mapping with some keys changed; paths of a file's data stay valid."""
    _, raw, folder = _read(source)
    data = raw.get("data")
    if isinstance(data, dict):
        paths = {k: str(folder / data[k]) for k in ("path", "test_path") if isinstance(data.get(k), str)}
        raw["data"] = {**data, **paths}
    return _merged(raw, changes)


def _read(source: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any], Path]:
    """Name, content and folder of a preset, file or mapping, on top of what it is based on."""
    if isinstance(source, Mapping):
        return "experiment", _based(dict(source), "experiment"), Path()
    path = Path(source)
    if path.is_dir() or path.name.lower().endswith(SUFFIXES):
        hint = f"make an experiment of it first: fedprognos init {path}"
        raise ConfigError("this is data, not an experiment", where=str(path), hint=hint)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise ConfigError("no such file", where=str(path), hint="give a TOML file or a preset name")
        name, text, folder = path.stem, path.read_bytes(), path.parent
    else:
        names = presets()
        if str(source) not in names:
            raise unknown_name("preset", source, names)
        name, folder = str(source), Path()
        text = (resources.files("fedprognos.presets") / f"{name}.toml").read_bytes()
    return name, _based(parse_toml(text, str(source)), name), folder


def _based(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """The content on top of the preset that its `base` names."""
    base = raw.pop("base", None)
    if base is None:
        return raw
    if not isinstance(base, str) or base == name or base not in presets():
        raise ConfigError(f"base = {base!r} is not another preset", where=name, hint="fedprognos presets")
    return _merged(_read(base)[1], raw)


def _scaled(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """The experiment in the size that `scale` names."""
    scales = raw.pop("scales", {})
    scale = raw.get("scale", "")
    if not isinstance(scales, dict) or not all(isinstance(s, dict) for s in scales.values()):
        raise ConfigError("scales must be tables: [scales.NAME.section]", where=where)
    if scale == "":
        return raw
    if not isinstance(scale, str) or scale not in scales:
        scale_names = ", ".join(scales) or "none"
        raise ConfigError(
            f"scale = {scale!r} is unknown", where=where, hint=f"scales of this experiment: {scale_names}"
        )
    return _merged(raw, scales[scale])


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables key by key, `high` over `low`; a partition is replaced as a whole."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping) and key not in ("partition", "conditions")
        merged[key] = _merged(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _override(raw: dict[str, Any], text: str) -> None:
    """Apply one `section.key=value`; the value is read as TOML, else taken as a string."""
    path, sign, value = text.partition("=")
    keys = path.strip().split(".")
    if not sign or not all(keys):
        raise ConfigError(f"cannot read '{text}'", where="--set", hint="write --set section.key=value")
    try:
        parsed = parse_toml(f"v = {value}")["v"]
    except ConfigError:
        parsed = value.strip()
    target = raw
    for key in keys[:-1]:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ConfigError(f"'{key}' is a value, not a section", where=f"--set {text}")
    target[keys[-1]] = parsed


def write(path: Path, experiment: Experiment, remarks: Sequence[str], base: Path) -> None:
    """A complete experiment with remarks at its head; paths of its data are relative to where it lies.

    Parameters
    ----------
    base
        What relative paths in the experiment refer to.
    """
    document = experiment.dump()
    document.pop("scale", None)  # its size is in its values now
    for key in ("path", "test_path"):
        if document["data"].get(key) is not None:
            document["data"][key] = _seen_from(path.parent, base / document["data"][key])
    head = "".join(f"# {line}\n" for line in remarks)
    write_text(path, f"{head}\n{toml_text(document)}")


def _seen_from(folder: Path, data: Path) -> str:
    """A path relative to a folder, which may be a link to another disk; in full where it is on another drive."""
    where = data.parent.resolve() / data.name
    try:
        return Path(os.path.relpath(where, folder.resolve())).as_posix()
    except ValueError:  # Windows knows no way from one drive to another
        return where.as_posix()
