"""Base of all options that a user writes: no unknown keys, nothing changed after loading."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


class Options(BaseModel):
    """A group of options, such as a section of an experiment's TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
