"""The section `[federation]` of an experiment: which ways of training are compared, and how."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, PositiveFloat, PositiveInt, create_model, field_validator, model_validator

from fedprognos.matching import RIDGE
from fedprognos.options import Options
from fedprognos.privacy import PrivacyOptions

Wire = Literal["float32", "float16", "bfloat16"]
HeadKind = Literal["mean", "exact", "personal", "choice"]
O = TypeVar("O", bound=Options)  # noqa: E741
CHECKED_SCREEN, CHECKED_WEIGHT_CAP, CHECKED_AVERAGE = 0.13, 3.0, "geometric"
"""Defences of `mode = "checked"`, where an experiment sets no others. docs/robustness.md says what they cost."""


def _default_methods() -> tuple[str, ...]:
    from fedprognos.federation.strategies import strategies

    return tuple(name for name, strategy in strategies.items() if strategy.by_default)


class FederationOptions(Options):
    """Which methods are compared, and how.

    :func:`federation_options` adds a section for each strategy.
    """

    methods: tuple[str, ...] = Field(default_factory=_default_methods, min_length=1)
    """Methods to train and compare; by default all but `single` and `direct`."""
    heads: Annotated[tuple[HeadKind, ...], Field(min_length=1)] = ("exact", "mean")
    """Heads evaluated for every method: as trained and averaged, solved exactly, personal, or the one that each client
    chose for its own machines on units it kept out. The first decides which bundle is published."""
    ridge: PositiveFloat = RIDGE
    """Strength of exact heads where training keeps nothing out to choose it on, relative to the spread of each
    feature."""
    alike: bool = False
    """Exact heads: let every unit count alike, however many rows it has."""
    start: Literal["train", "bundles"] = "train"
    """Let strategies that begin with models of the clients' own train them, or import those trained earlier."""
    bundles: str | None = None
    """Folder with one bundle a client, by its name."""
    imported: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Digest of the recipe that imported models must have, which are then at most as wide as `model` says. The contract
    of a deployment sets it."""
    min_clients: PositiveInt | None = None
    """Continue without clients that fail, as long as so many answer; by default all must."""
    participation: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the clients that takes part in a round."""
    timeout_in_s: PositiveFloat | None = None
    """Longest wait for a client's answer."""
    wire: Wire = "float32"
    """Precision of weights between coordinator and clients while training; half of it moves half the bytes."""
    mode: Literal["masked", "checked"] | None = None
    """`masked`: the coordinator sees totals only. `checked`: it sees each client's replies and defends the model. Then
    `screen` and `weight_cap` are on, and methods that average weights do it robustly, where you set nothing else. By
    default deployments of three or more sites are masked; runs on one machine show each reply and defend nothing."""
    screen: PositiveFloat | None = None
    """Leave out clients without whom the majority's error is smaller by more than this share (0.13, say), and moments
    that are far from most others'. Needs three clients; off by default, 0.13 with `mode = "checked"`."""
    weight_cap: Annotated[float, Field(ge=1.0)] | None = None
    """The most a client counts, in multiples of the median client's windows; no limit by default, 3 with
    `mode = "checked"`."""
    privacy: PrivacyOptions | None = None
    """Differential privacy of what clients send, for methods that send sums or average weights."""
    patience: PositiveInt | None = None
    """Stop after so many rounds without a better validation error."""

    @model_validator(mode="before")
    @classmethod
    def _checked_is_defended(cls, section: Any) -> Any:
        """Whoever wants each reply seen wants it checked: fill in the defences that the experiment leaves open."""
        if not isinstance(section, dict) or section.get("mode") != "checked" or section.get("privacy") is not None:
            return section
        from fedprognos.federation.strategies import strategies

        defended = dict(section)
        for key, value in (("screen", CHECKED_SCREEN), ("weight_cap", CHECKED_WEIGHT_CAP)):
            if defended.get(key) is None:
                defended[key] = value
        for name, strategy in strategies.items():
            options = defended.get(name, {})
            # Only sums of weights: what matches networks screens each of them before it averages neurons.
            if strategy.sums_only and "average" in strategy.options.model_fields and isinstance(options, dict):
                defended[name] = {"average": CHECKED_AVERAGE, **options}
        return defended

    @field_validator("methods")
    @classmethod
    def _methods_exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        from fedprognos.federation.strategies import strategies

        return tuple(map(strategies.valid_name, names))

    @model_validator(mode="after")
    def _choice_is_among_others(self) -> Self:
        if self.heads[0] == "choice":
            raise ValueError("heads: 'choice' starts from a shared head; put 'exact' before it")
        return self

    @model_validator(mode="after")
    def _bundles_go_with_start(self) -> Self:
        if (self.start == "bundles") != (self.bundles is not None):
            raise ValueError("start = 'bundles' and bundles = FOLDER go together")
        return self

    @model_validator(mode="after")
    def _privacy_covers_all_that_leaves(self) -> Self:
        from fedprognos.federation.strategies import strategies

        if self.privacy is None:
            return self
        covered = [name for name, strategy in strategies.items() if strategy.releases is not None]
        if others := [name for name in self.methods if name not in covered]:
            raise ValueError(f"privacy does not cover method '{others[0]}'; it covers {', '.join(covered)}")
        if uncovered := [head for head in self.heads if head not in ("exact", "mean")]:
            raise ValueError(f"privacy covers exact and mean heads, not '{uncovered[0]}'")
        if self.participation < 1:
            raise ValueError("privacy counts every client in every round; set participation = 1")
        if self.screen is not None or self.weight_cap is not None:
            raise ValueError("screen and weight_cap do not work with privacy: statistics with noise look harmful")
        return self

    @model_validator(mode="after")
    def _screening_needs_replies(self) -> Self:
        if self.mode == "masked" and (self.screen is not None or self.weight_cap is not None):
            raise ValueError("screen and weight_cap look at each client's replies; they need mode = 'checked'")
        return self

    def strategy_options(self, strategy: str, kind: type[O]) -> O:
        """The options of a strategy; the defaults if the section has none for it."""
        options = getattr(self, strategy, None)
        return options if isinstance(options, kind) else kind()


def federation_options() -> type[FederationOptions]:
    """The section with a sub-section for every strategy that is registered now."""
    from fedprognos.federation.strategies import strategies

    return _assembled(tuple((name, s.options) for name, s in strategies.items() if s.options is not Options))


@lru_cache
def _assembled(sections: tuple[tuple[str, type[Options]], ...]) -> type[FederationOptions]:
    fields: dict[str, Any] = {name: (kind, kind()) for name, kind in sections}
    return create_model("FederationOptions", __base__=FederationOptions, **fields)
