"""The plant file: where rows come from beside HTTP, and who is told about alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from fedprognos.errors import ConfigError
from fedprognos.files import parse_toml
from fedprognos.options import Options, chosen_options, validated
from fedprognos.service.alert_sinks import SinkOptions
from fedprognos.service.alert_sinks import sinks as sink_shelf
from fedprognos.service.alerts import CLEAR_AFTER, RAISE_AFTER
from fedprognos.service.plant_entry import PlantEntry
from fedprognos.service.sources import SourceOptions
from fedprognos.service.sources import sources as source_shelf

PATHS = frozenset({"token_file", "password_file", "ca", "folder", "move_to", "certificate", "private_key"})
"""Keys whose relative paths start at the folder of the plant file."""


class AlertOptions(Options):
    """The section `[alerts]`."""

    raise_after: Annotated[int, Field(ge=1)] = RAISE_AFTER
    """Healths in a row until a more urgent status is announced."""
    clear_after: Annotated[int, Field(ge=1)] = CLEAR_AFTER
    """Healths in a row until a less urgent status is announced."""
    sinks: tuple[Annotated[SerializeAsAny[SinkOptions], BeforeValidator(chosen_options(sink_shelf, "kind"))], ...] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        _check_names("sinks", self.sinks)
        return self


class PlantOptions(Options):
    """All of a plant file."""

    alerts: AlertOptions = Field(default_factory=AlertOptions)
    sources: tuple[
        Annotated[SerializeAsAny[SourceOptions], BeforeValidator(chosen_options(source_shelf, "kind"))], ...
    ] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        _check_names("sources", self.sources)
        return self


def read_plant(path: Path | None, source: Mapping[str, Any] | None = None) -> PlantOptions:
    """The options of a plant file; the defaults where there is none.

    Parameters
    ----------
    source
        A further source, as on the command line.
    """
    document: dict[str, Any] = {}
    if path is not None:
        try:
            text = path.read_bytes()
        except OSError as error:
            hint = "give --plant a TOML file that you may read"
            raise ConfigError(f"cannot read the plant file: {error.strerror}", where=str(path), hint=hint) from None
        document = _anchored(parse_toml(text, str(path)), path.resolve().parent)
    if source is not None:
        document["sources"] = [source, *document.get("sources", [])]
    options = validated(PlantOptions, document, "" if path is None else str(path))
    for each in options.sources:
        source_shelf[each.kind].check(each)
    return options


def _check_names(what: str, entries: Sequence[PlantEntry]) -> None:
    counts = Counter(entry.name for entry in entries)
    if any(count > 1 for count in counts.values()):
        raise ValueError(f"two {what} have the name '{counts.most_common(1)[0][0]}'; give each a name of its own")


def _anchored(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_anchored(entry, folder) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        key: str(folder / inner) if key in PATHS and isinstance(inner, str) else _anchored(inner, folder)
        for key, inner in value.items()
    }
