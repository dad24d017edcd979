"""An experiment as TOML, validated: sections data, partition, recipe, model, train, federation, evaluation.

Unknown keys are errors with the nearest valid name; every message names section and key. A file may build on a preset
(`base`) and hold itself in several sizes (`[scales.NAME]`, chosen by `scale`).
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from fedprognos.errors import ConfigError, unknown_name

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Wire = Literal["float32", "float16", "bfloat16"]


class Section(BaseModel):
    """Base of all sections: no unknown keys, nothing changed after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SyntheticEngines(Section):
    """The embedded engine fleet."""

    kind: Literal["synthetic-engines"] = "synthetic-engines"
    sites: PositiveInt = 3
    units_per_site: PositiveInt | tuple[PositiveInt, ...] = 16
    test_units_per_site: PositiveInt = 8
    seed: int = 0


class SyntheticBatteries(Section):
    """The embedded battery fleet; the last `test_fraction` of each cell's cycles is the test."""

    kind: Literal["synthetic-batteries"] = "synthetic-batteries"
    sites: PositiveInt = 3
    units_per_site: PositiveInt | tuple[PositiveInt, ...] = 4
    test_fraction: Fraction = 0.3
    seed: int = 0


class Cmapss(Section):
    """C-MAPSS turbofan engines; the test fleet is NASA's own."""

    kind: Literal["cmapss"]
    subset: Literal["FD001", "FD002", "FD003", "FD004"] = "FD004"


class NasaBatteries(Section):
    """NASA Ames batteries up to their end of life; the last `test_fraction` of the cycles is the test."""

    kind: Literal["nasa-battery"]
    batteries: tuple[str, ...] = ("B0006", "B0007", "B0018")
    end_of_life: PositiveFloat = 0.7
    """Share of the rated capacity at which a battery's life ends."""
    test_fraction: Fraction = 0.3


class Table(Section):
    """One's own CSV or Parquet; see `fedprognos init`."""

    kind: Literal["table"]
    path: str
    task: Literal["rul", "soh"] = "rul"
    unit: str | None = None
    time: str
    cycle: str | None = None
    sensors: tuple[str, ...] | None = None
    settings: tuple[str, ...] = ()
    site: str | None = None
    target: str | None = None
    failed: str | None = None
    rated_capacity_in_Ah: PositiveFloat | None = None
    """Rated capacity of every unit, for labels relative to it."""
    test_path: str | None = None
    """Units kept for the test in a file of their own, instead of `test_fraction`."""
    test_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.25
    """Share of the units (rul), or of each unit's last cycles (soh), held out for the test."""


DataSection = Annotated[
    SyntheticEngines | SyntheticBatteries | Cmapss | NasaBatteries | Table, Field(discriminator="kind")
]


class Partition(Section):
    """How the training units are dealt out to clients."""

    by: Literal["lifespan", "random", "column", "unit", "condition", "dirichlet"]
    edges: tuple[PositiveFloat, ...] | None = None
    clients: PositiveInt | None = None
    column: str | None = None
    alpha: PositiveFloat | None = None
    decimals: Mapping[str, int] | None = None
    seed: int = 0
    units: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Only these units train; all by default."""

    @model_validator(mode="after")
    def _options_belong(self) -> Self:
        wanted: dict[str, tuple[str, ...]] = {
            "lifespan": ("edges",),
            "random": ("clients",),
            "column": ("column",),
            "unit": (),
            "condition": ("decimals",),
            "dirichlet": ("clients", "alpha"),
        }
        for key in ("edges", "clients", "column", "alpha", "decimals"):
            given, needed = getattr(self, key) is not None, key in wanted[self.by]
            if needed and not given:
                raise ValueError(f"by = '{self.by}' needs {key}")
            if given and not needed:
                raise ValueError(f"{key} means nothing with by = '{self.by}'")
        return self

    def options(self) -> dict[str, Any]:
        """The options that go with `by`."""
        return {k: v for k, v in self.model_dump().items() if k not in ("by", "units") and v is not None}


class RecipeSection(Section):
    """How rows become windows and labels."""

    sensors: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    window: PositiveInt | None = None
    """Rows in a window; for cycles by sample index the default is the shortest cycle of all."""
    stride: PositiveInt = 1
    short: Literal["exclude", "pad"] = "exclude"
    """Units shorter than the window are left out (and counted), or padded on the left."""
    cap: PositiveFloat | None = None
    """RUL labels above it are set to it; predictions are clipped to [0, cap]."""
    label: Literal["absolute", "relative"] = "absolute"
    """Cyclic data: learn the capacity itself, or its share of the rated capacity (state of health)."""
    conditions: Mapping[str, Annotated[int, Field(ge=-6, le=9)]] = {}
    """Decimals to which each setting is rounded to make an operating condition; empty = one condition."""
    setting_inputs: bool = False
    """Feed the settings themselves to the network, standardised over all conditions."""
    condition_inputs: bool = False
    """Feed the operating condition to the network as one-hot columns."""
    cycle: Literal["index", "grid"] = "grid"
    """Cyclic data: cut every cycle by sample index, or resample it onto a grid in time."""
    grid_end_in_s: PositiveFloat | None = None
    grid_points: Annotated[int, Field(ge=2)] = 171
    min_count: PositiveInt = 20
    """Moments of fewer rows than this never leave a client."""


class ModelSection(Section):
    """The network."""

    cell: Literal["lstm", "gru"] = "lstm"
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (64,)
    input_width: PositiveInt | None = None
    """Neurons of a fully connected layer before the recurrent ones; none by default."""


class TrainSection(Section):
    """Local training."""

    optimizer: Literal["adam", "rmsprop"] = "adam"
    learning_rate: PositiveFloat = 1e-3
    schedule: Literal["constant", "cosine"] = "cosine"
    """Keep the learning rate, or let it fall to zero along a half cosine over the epochs."""
    epochs: PositiveInt = 30
    batch_size: PositiveInt = 128
    validation_fraction: Fraction = 0.2
    """Share of a client's units kept for early stopping (with one unit: of its last windows); 0 = none."""
    patience: PositiveInt | None = None
    """Stop after so many epochs without a better validation error; None = always all epochs."""
    warmup: Annotated[int, Field(ge=0)] = 5
    """Epochs before early stopping may begin to count."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled decay of all weights (AdamW), per step and unit of learning rate."""
    dropout: Fraction = 0.0
    """Share of each recurrent layer's outputs left out at random while training."""
    clip: PositiveFloat | None = 1.0
    """Largest norm of a gradient step."""
    device: str = "auto"

    @model_validator(mode="after")
    def _stopping_needs_validation(self) -> Self:
        if self.patience is not None and self.validation_fraction == 0:
            raise ValueError("patience needs a validation part: set validation_fraction above 0")
        return self


class FedAvgSection(Section):
    """FedAvg: coordinate-wise averages weighted by data size (Eq. 2)."""

    rounds: PositiveInt = 10
    epochs: PositiveInt = 5
    """Local epochs a round."""


class FedProxSection(FedAvgSection):
    """FedProx: FedAvg whose clients are held near the federated model."""

    mu: PositiveFloat = 0.01


class FedMASection(Section):
    """FedMA: matched averaging, layer by layer (Algorithm 1)."""

    rounds: PositiveInt = 1
    epochs: PositiveInt | None = None
    """Local epochs a round; train.epochs by default."""
    retrain_epochs: PositiveInt | None = None
    """Epochs of the layers above a matched one; as `epochs` by default."""
    start: Literal["independent", "common"] = "independent"
    """Whether clients draw their first weights each for themselves or start from the same."""
    cost: Literal["spahm", "pfnm"] = "spahm"
    signature: Literal["ih", "ih+hh"] = "ih+hh"
    average: Literal["mean", "weighted", "map", "median", "trimmed"] = "mean"
    noise: PositiveFloat | None = None
    """Variance of a client's neuron around its global one, as a share of the pooled variance; 0.5 by default."""
    estimate: bool = True
    """Re-estimate the variances from the partition."""
    gamma: PositiveFloat = 1.0
    sweeps: Annotated[int, Field(ge=0)] = 10
    width_limit: Annotated[float, Field(ge=1.0)] | None = None
    """Most neurons of a federated layer, in multiples of the widest client's; 1 = fixed width, None = free growth."""
    next_round: Literal["grown", "sliced"] = "grown"
    """Whether clients go on with the grown model or with their own neurons of it."""


class ConcatSection(Section):
    """Every client's extractors side by side, nothing merged."""

    epochs: PositiveInt | None = None
    """Local epochs; train.epochs by default."""


class FederationSection(Section):
    """Which ways of training are compared, and how."""

    methods: Annotated[
        tuple[Literal["local", "central", "fedavg", "fedprox", "single", "concat", "fedma"], ...], Field(min_length=1)
    ] = ("local", "central", "fedavg", "fedprox", "concat", "fedma")
    heads: Annotated[tuple[Literal["mean", "exact", "personal"], ...], Field(min_length=1)] = ("exact", "mean")
    """Heads examined for every method: as trained and averaged, solved exactly, or the client's own. The first decides
    which bundle is published."""
    ridge: PositiveFloat = 10.0**-3.5
    """Strength of exact and personal heads where training keeps nothing out to choose it on, relative to the mean
    square of the features."""
    start: Literal["train", "bundles"] = "train"
    """Let fedma and concat begin with models trained anew, or with those the clients trained earlier."""
    bundles: str | None = None
    """Folder with one bundle a client, by its name."""
    min_clients: PositiveInt | None = None
    """Go on with so many clients when others fail; all of them by default."""
    participation: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the clients that takes part in a round."""
    timeout_in_s: PositiveFloat | None = None
    """Longest wait for a client's answer."""
    wire: Wire = "float32"
    """Precision of weights between coordinator and clients while training; half of it moves half the bytes."""
    patience: PositiveInt | None = None
    """Stop after so many rounds without a better validation error."""
    fedavg: FedAvgSection = FedAvgSection()
    fedprox: FedProxSection = FedProxSection()
    fedma: FedMASection = FedMASection()
    concat: ConcatSection = ConcatSection()

    @model_validator(mode="after")
    def _bundles_go_with_start(self) -> Self:
        if (self.start == "bundles") != (self.bundles is not None):
            raise ValueError("start = 'bundles' and bundles = FOLDER go together")
        return self


class EvaluationSection(Section):
    """What is measured, how often."""

    seeds: PositiveInt = 3
    yardsticks: tuple[Literal["constant", "last", "age", "ridge", "boosting"], ...] = (
        "constant",
        "last",
        "age",
        "ridge",
    )
    points: Literal["auto", "last", "all"] = "auto"
    """Score each test unit at its last row or at all; auto = last where test units end before failure."""
    folds: Annotated[int, Field(ge=0, le=20)] = 0
    """Train the published method so many times more, each time without some of the units, and make prediction
    intervals from the errors on those; 0 = no intervals."""
    best_on_test: bool = False
    """Also report the round that is best on the test data, marked as such (as the paper does)."""
    coverage: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    """Share of raw labels that intervals should hold; measured on the test units."""
    bootstrap: Annotated[int, Field(ge=0)] = 200
    """Resamples of the test units behind each interval; 0 = none."""


class Experiment(Section):
    """A whole experiment."""

    title: str = ""
    scale: str = ""
    """Which of its sizes this is, where there are several."""
    data: DataSection
    partition: dict[str, Partition]
    recipe: RecipeSection = RecipeSection()
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
    federation: FederationSection = FederationSection()
    evaluation: EvaluationSection = EvaluationSection()

    @model_validator(mode="after")
    def _two_folds_or_none(self) -> Self:
        if self.evaluation.folds == 1:
            raise ValueError("evaluation.folds must be 0 or at least 2")
        return self

    def dump(self) -> dict[str, Any]:
        """Plain JSON values, ready for results.json."""
        plain: dict[str, Any] = json.loads(self.model_dump_json())
        return plain


def parse(raw: Mapping[str, Any], where: str) -> Experiment:
    """Validate a parsed TOML document.

    `[partition]` may hold one setting directly (then called "all") or several as `[partition.NAME]`.
    """
    document = dict(raw)
    partition = document.get("partition")
    if isinstance(partition, Mapping) and not all(isinstance(v, Mapping) and "by" in v for v in partition.values()):
        document["partition"] = {"all": dict(partition)}
    try:
        return Experiment.model_validate(document)
    except ValidationError as error:
        raise _explain(error, where) from None


def _explain(error: ValidationError, where: str) -> ConfigError:
    lines = []
    hint = "see docs/experiments.md for every key"
    for problem in error.errors():
        path = [str(p) for p in problem["loc"] if str(p) not in _KINDS]
        if path[:2] == ["partition", "all"]:
            path.pop(1)
        key = ".".join(path)
        if problem["type"] == "extra_forbidden":
            valid = _valid_keys(path[:-1])
            close = difflib.get_close_matches(path[-1], valid, n=1, cutoff=0.5)
            lines.append(f"unknown key {key}" + (f" (did you mean '{close[0]}'?)" if close else ""))
            hint = f"valid here: {', '.join(valid)}"
        elif problem["type"] == "missing":
            lines.append(f"{key} is missing")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            value = problem.get("input")
            shown = f", not {value!r}" if isinstance(value, str | int | float) else ""
            lines.append(f"{key}: {message}{shown}")
    return ConfigError("; ".join(lines), where=where, hint=hint)


_KINDS = ("synthetic-engines", "synthetic-batteries", "cmapss", "nasa-battery", "table")
_SECTIONS: dict[str, tuple[type[Section], ...]] = {
    "data": (SyntheticEngines, SyntheticBatteries, Cmapss, NasaBatteries, Table),
    "partition": (Partition,),
    "recipe": (RecipeSection,),
    "model": (ModelSection,),
    "train": (TrainSection,),
    "federation": (FederationSection,),
    "federation.fedavg": (FedAvgSection,),
    "federation.fedprox": (FedProxSection,),
    "federation.fedma": (FedMASection,),
    "federation.concat": (ConcatSection,),
    "evaluation": (EvaluationSection,),
}


def _valid_keys(path: Sequence[str]) -> list[str]:
    if not path:
        return list(Experiment.model_fields)
    return sorted(
        {name for model in _SECTIONS.get(".".join(path[:2]), _SECTIONS.get(path[0], ())) for name in model.model_fields}
    )


def presets() -> dict[str, str]:
    """Name and title of every preset that comes with the package."""
    found = {}
    for file in sorted(resources.files("fedprognos.presets").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            found[file.name.removesuffix(".toml")] = tomllib.loads(file.read_text("utf-8")).get("title", "")
    return found


def load(source: str | Path, overrides: Sequence[str] = ()) -> tuple[str, Experiment, Path]:
    """Read a preset by name or a TOML file, with `section.key=value` overrides.

    Returns
    -------
    name, experiment, folder
        The experiment's name, its validated content, and the folder that relative paths in it refer to.
    """
    name, raw, folder = _read(source)
    chosen = [o for o in overrides if o.partition("=")[0].strip() == "scale"]
    for override in chosen:
        _override(raw, override)
    raw = _scaled(raw, str(source))
    for override in overrides:
        if override not in chosen:
            _override(raw, override)
    return name, parse(raw, str(source)), folder


def _read(source: str | Path) -> tuple[str, dict[str, Any], Path]:
    """Name, content and folder of a preset or file, on top of what it is based on."""
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise ConfigError("no such file", where=str(path), hint="give a TOML file or a preset name")
        name, text, folder = path.stem, path.read_text("utf-8"), path.parent
    else:
        names = presets()
        if str(source) not in names:
            raise unknown_name("preset", source, names)
        name, folder = str(source), Path()
        text = (resources.files("fedprognos.presets") / f"{name}.toml").read_text("utf-8")
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", where=str(source)) from None
    base = raw.pop("base", None)
    if base is not None:
        if base == name or base not in presets():
            raise ConfigError(f"base = {base!r} is not another preset", where=str(source), hint="fedprognos presets")
        raw = _merged(_read(base)[1], raw)
    return name, raw, folder


def _scaled(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """The experiment in the size that `scale` names."""
    scales = raw.pop("scales", {})
    scale = raw.get("scale", "")
    if not isinstance(scales, dict) or not all(isinstance(s, dict) for s in scales.values()):
        raise ConfigError("scales must be tables: [scales.NAME.section]", where=where)
    if scale == "":
        return raw
    if scale not in scales:
        known = ", ".join(scales) or "none"
        raise ConfigError(f"scale = {scale!r} is unknown", where=where, hint=f"scales of this experiment: {known}")
    return _merged(raw, scales[scale])


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Tables key by key, the higher one counts; a partition is taken as a whole."""
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
        parsed = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    target = raw
    for key in keys[:-1]:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ConfigError(f"'{key}' is a value, not a section", where=f"--set {text}")
    target[keys[-1]] = parsed
