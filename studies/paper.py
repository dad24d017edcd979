"""The paper's numbers and our bars, read from paper.toml and checked."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PaperRow(_Part):
    """A row of one of the paper's tables; without `rmse` it is one the paper does not report."""

    train: tuple[str, ...]
    method: str
    scenario: str | None = None
    test: str = "all"
    name: str | None = None
    rmse: float | None = None
    round: int | None = None
    imp: float | None = None
    """In percent."""


class PaperTable(_Part):
    """One experiment as the paper ran it."""

    source: str
    unit: str
    neurons: int
    local_epochs: int
    rounds: int
    fedavg_epochs: int | dict[str, int]
    fedma_epochs: int
    rows: tuple[PaperRow, ...]


class ErrorBar(_Part):
    """A bar for one error."""

    case: str
    preset: str
    scenario: str
    test: str
    field: Literal["rmse", "rmse_capped"]
    stretch: float
    must: float | None = None
    paper: float | None = None
    """The paper's best FedMA."""
    methods: tuple[str, ...] = ("fedma", "concat")

    @property
    def limit(self) -> float:
        """What must be reached: the lowest of all that are given."""
        return min(v for v in (self.must, self.paper) if v is not None)


class Bars(_Part):
    seeds: int
    central_within: float
    errors: tuple[ErrorBar, ...]


class Paper(_Part):
    battery: PaperTable
    turbofan: PaperTable
    bars: Bars


@cache
def paper() -> Paper:
    """Read paper.toml."""
    text = (resources.files("studies") / "paper.toml").read_text("utf-8")
    return Paper.model_validate(tomllib.loads(text))
