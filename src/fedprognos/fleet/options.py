"""What an experiment says about its data: where rows come from and how units are dealt out to clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from fedprognos.options import Fraction, Options


class SyntheticEngines(Options):
    """The embedded engine fleet."""

    kind: Literal["synthetic-engines"] = "synthetic-engines"
    sites: PositiveInt = 3
    units_per_site: PositiveInt | tuple[PositiveInt, ...] = 16
    test_units_per_site: PositiveInt = 8
    seed: int = 0


class SyntheticBatteries(Options):
    """The embedded battery fleet; the last `test_fraction` of each cell's cycles is the test."""

    kind: Literal["synthetic-batteries"] = "synthetic-batteries"
    sites: PositiveInt = 3
    units_per_site: PositiveInt | tuple[PositiveInt, ...] = 4
    test_fraction: Fraction = 0.3
    seed: int = 0


class Cmapss(Options):
    """C-MAPSS turbofan engines; the test fleet is NASA's own."""

    kind: Literal["cmapss"]
    subset: Literal["FD001", "FD002", "FD003", "FD004"] = "FD004"


class NasaBatteries(Options):
    """NASA Ames batteries up to their end of life; the last `test_fraction` of the cycles is the test."""

    kind: Literal["nasa-battery"]
    batteries: tuple[str, ...] = ("B0006", "B0007", "B0018")
    end_of_life: PositiveFloat = 0.7
    """Share of the rated capacity at which a battery's life ends."""
    test_fraction: Fraction = 0.3


class Table(Options):
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


DataOptions = Annotated[
    SyntheticEngines | SyntheticBatteries | Cmapss | NasaBatteries | Table, Field(discriminator="kind")
]


class Partition(Options):
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
