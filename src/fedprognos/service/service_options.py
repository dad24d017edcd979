"""What can be set about the service, with the defaults: on the command line, and in a plant file.

A plant file says where rows come from beside HTTP, and who is told about alerts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from fedprognos.errors import ConfigError
from fedprognos.features import Recipe
from fedprognos.files import parse_toml
from fedprognos.options import Options, chosen_options, validated
from fedprognos.prognosis import Predictor
from fedprognos.service.alert_sinks import SinkOptions
from fedprognos.service.alert_sinks import sinks as sink_shelf
from fedprognos.service.alerts import CLEAR_AFTER, RAISE_AFTER
from fedprognos.service.forecasts import Costs
from fedprognos.service.plant_entry import PlantEntry, read_secret
from fedprognos.service.sources import SourceOptions
from fedprognos.service.sources import sources as source_shelf

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost", "::ffff:127.0.0.1"})
DUE_SHARE_OF_CAP = 0.2
END_OF_LIFE_SHARE = 0.7
NEAR_SHARE = 0.5


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


@dataclass(frozen=True)
class ServiceOptions:
    """Limits and addresses of one service.

    Parameters
    ----------
    state
        Folder of the state; None keeps it in memory only.
    token
        What clients must show; None serves loopback only.
    shadow
        A second model that runs along; None for none.
    threshold
        Health at or below which maintenance is due; None where no such line is known.
    max_body_in_bytes
        Larger bodies are refused before they are read.
    max_rows
        Rows in one request.
    max_waiting_rows
        Rows waiting to be taken, over all requests; beyond it clients are asked to come back.
    max_units
        Units watched; rows of further ones are refused.
    keep_rows
        Rows a unit that stay for the next model to begin from; by default all where whole lives are read, else as many
        as are shown.
    silent_after_in_s
        Seconds without a row after which a unit counts as silent; None judges by the pauses that it usually makes.
    rate_per_s
        Requests a second and client address, with bursts of as many; 0 for no limit.
    backup_to
        Folder for backups of the state; None writes none.
    backup_every_in_s, kept_backups
        How often, and how many of them stay.
    breakdown_cost, replacement_cost
        What a breakdown and a planned replacement of a machine cost; both, or None for no best moment.
    plant
        Where rows come from beside HTTP, and who is told about alerts.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    state: Path | None = None
    token: str | None = None
    shadow: Predictor | None = None
    threshold: float | None = None
    max_body_in_bytes: int = 5_000_000
    max_rows: int = 10_000
    max_waiting_rows: int = 50_000
    max_units: int = 20_000
    keep_rows: int | None = None
    silent_after_in_s: float | None = None
    rate_per_s: float = 500.0
    coverage: float = 0.9
    backup_to: Path | None = None
    backup_every_in_s: float = 86_400.0
    kept_backups: int = 7
    breakdown_cost: float | None = None
    replacement_cost: float | None = None
    plant: PlantOptions = field(default_factory=PlantOptions)

    def check(self) -> None:
        """Refuse what would be unsafe."""
        if self.token is None and self.host not in LOOPBACK:
            raise ConfigError(
                f"without a token only this machine is served, not '{self.host}'",
                hint="give --token-file FILE or FEDPROGNOS_TOKEN, or leave out --host",
            )
        if self.backup_to is not None and self.state is None:
            raise ConfigError("a state in memory has no backups", where="--backup-to", hint="give a --state folder")
        self.costs()

    def costs(self) -> Costs | None:
        """What a best moment to replace is found from; None where nobody said."""
        if self.breakdown_cost is None and self.replacement_cost is None:
            return None
        if self.breakdown_cost is None or self.replacement_cost is None:
            hint = "give --breakdown-cost and --replacement-cost"
            raise ConfigError("a best moment needs the cost of a breakdown and that of a replacement", hint=hint)
        if not 0 < self.replacement_cost < self.breakdown_cost < math.inf:
            raise ConfigError(
                f"a breakdown ({self.breakdown_cost:g}) must cost more than a replacement ({self.replacement_cost:g})",
                where="--breakdown-cost",
                hint="where it does not, running to failure is best",
            )
        return Costs(self.breakdown_cost, self.replacement_cost)


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


def read_token(file: Path | None, environment: str | None) -> str | None:
    """The token from a file or the environment; refuse one that is too easy to guess."""
    where, token = "FEDPROGNOS_TOKEN", environment
    if file is not None:
        where, token = str(file), read_secret(file)
    if token is None:
        return None
    token = token.strip()
    if len(token) < 16 or not token.isascii() or any(c.isspace() for c in token):
        raise ConfigError(
            "a token is at least 16 printable characters without spaces",
            where=where,
            hint="python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return token


def near_margin(recipe: Recipe) -> float:
    """How near to the threshold a value without an interval is too near to be called fine.

    Without a calibration nobody knows how far off a value is. Half the spread of the labels is a rule of thumb: a
    model that always gave their mean would be off by twice as much.
    """
    return NEAR_SHARE * recipe.label_std


def usual_threshold(recipe: Recipe) -> float | None:
    """A line for when maintenance is due where none was given.

    A fifth of the cap for RUL, 70 % of the rated capacity for a relative SoH; None where neither is known.
    """
    if recipe.task == "rul":
        return None if recipe.cap is None else DUE_SHARE_OF_CAP * recipe.cap
    return END_OF_LIFE_SHARE if recipe.relative else None
