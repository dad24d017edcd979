"""What every entry of the plant file has: a kind from a shelf, a name, and secrets in files of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from fedprognos.errors import ConfigError
from fedprognos.options import Options


class PlantEntry(Options):
    """A source or a sink; each adds its own keys and fixes `kind` to its name on the shelf."""

    kind: str
    name: Annotated[str, Field(max_length=100)] = ""
    """Names the entry in the log, and a sink in the outbox, too; needed where two are of one kind."""

    @model_validator(mode="before")
    @classmethod
    def _named_by_kind(cls, value: Any) -> Any:
        return {"name": value.get("kind", ""), **value} if isinstance(value, Mapping) else value


def read_secret(file: Path) -> str:
    """A password or token from a text file, without the end of its line."""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        hint = "give a text file that you may read"
        raise ConfigError(f"cannot read the secret: {error}", where=str(file), hint=hint) from None
