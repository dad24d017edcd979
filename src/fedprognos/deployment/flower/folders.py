"""The folders of a deployment: one for the coordinator, one small one for each site, the authority's apart."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from fedprognos.deployment.flower import keys
from fedprognos.errors import ConfigError, OutputError

SETTINGS, EXPERIMENT = "settings.toml", "experiment.toml"
Port = Annotated[int, Field(ge=1, le=65535)]
S = TypeVar("S", bound="Settings")


class Settings(BaseModel):
    """What a settings file may hold: nothing unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CoordinatorSettings(Settings):
    """`settings.toml` of the coordinator."""

    host: str
    """Name or address by which sites reach this machine."""
    port: Port = 9092
    bind: str = "0.0.0.0"  # noqa: S104 - sites come from elsewhere; the how-to says what guards the port
    """Address to listen on."""
    sites: tuple[str, ...]
    max_message_in_mb: PositiveInt = 64
    """Larger messages are refused before they are read."""
    grace_in_s: Annotated[float, Field(ge=0)] = 30.0
    """How long to wait for the others once `min_clients` are there."""


class SiteSettings(Settings):
    """`settings.toml` of a site."""

    name: str
    coordinator: str
    """Host and port of the coordinator."""
    min_count: Annotated[int, Field(ge=20)] = 20
    """No statistic of fewer rows than this leaves the site, whatever it is asked."""
    max_message_in_mb: PositiveInt = 64
    bundle: str | None = None
    """Folder of a model trained earlier, for experiments with federation.start = "bundles"."""


def make_deployment(
    folder: Path, sites: Sequence[str], host: str, port: int, bind: str | None, experiment: Path | None
) -> tuple[Path, dict[str, Path]]:
    """Make every folder of a new deployment; the coordinator's, and each site's by name."""
    from fedprognos.experiment.run_folder import folder_name

    _check_names(sites)
    if folder.exists() and any(folder.iterdir()):
        raise OutputError("is not empty", where=str(folder), hint="choose a new folder; `deploy renew` renews keys")
    authority = keys.private_folder(keys.private_folder(folder) / "authority")
    coordinator = keys.private_folder(folder / "coordinator")
    keys.make_authority(authority)
    keys.make_server_certificate(authority, coordinator, host)
    shutil.copy2(authority / "ca.crt", coordinator / "ca.crt")
    for secret in ("tasks.secret", "control.secret"):
        keys.make_secret(coordinator / secret)
    keys.private_folder(coordinator / "sites")
    own: dict[str, Any] = {"host": host, "port": port, "sites": list(sites)}
    _write_settings(coordinator, CoordinatorSettings, {**own, **({} if bind is None else {"bind": bind})})
    made = {}
    keys.private_folder(folder / "sites")
    for name in sites:
        site = keys.private_folder(folder / "sites" / folder_name(name))
        keys.write_private(public_key_file(coordinator, name), keys.make_site_keys(site))
        keys.make_secret(site / "tasks.secret")
        shutil.copy2(authority / "ca.crt", site / "ca.crt")
        _write_settings(site, SiteSettings, {"name": name, "coordinator": f"{_bracketed(host)}:{port}"})
        made[name] = site
    if experiment is not None:
        for place in (coordinator, *made.values()):
            keys.write_private(place / EXPERIMENT, experiment.read_bytes())
    return coordinator, made


def renew(folder: Path, sites: Sequence[str]) -> dict[str, Path]:
    """A new certificate for the coordinator, and new key pairs for the sites named; the folders to hand out again."""
    from fedprognos.experiment.run_folder import folder_name

    coordinator = coordinator_folder(folder)
    settings = read_settings(coordinator, CoordinatorSettings)
    keys.make_server_certificate(folder / "authority", coordinator, settings.host)
    handed = {}
    for name in sites:
        if name not in settings.sites:
            raise ConfigError(f"no site '{name}'", where=str(folder), hint=f"sites: {', '.join(settings.sites)}")
        site = keys.private_folder(folder / "sites" / folder_name(name))
        keys.write_private(public_key_file(coordinator, name), keys.make_site_keys(site))
        handed[name] = site
    return handed


def public_key_file(coordinator: Path, site: str) -> Path:
    """Where the coordinator keeps a site's public key."""
    from fedprognos.experiment.run_folder import folder_name  # loads torch, which asking for the status need not

    return coordinator / "sites" / f"{folder_name(site)}.pub"


def coordinator_folder(folder: Path) -> Path:
    """The coordinator's folder, given itself or the deployment's."""
    return folder / "coordinator" if (folder / "coordinator" / SETTINGS).is_file() else folder


def read_settings(folder: Path, kind: type[S]) -> S:
    """A checked settings file."""
    path = folder / SETTINGS
    if not path.is_file():
        raise ConfigError(
            "no settings.toml here", where=str(folder), hint="`fedprognos deploy init` makes such folders"
        )
    try:
        return kind.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        wrong = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
        raise ConfigError(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}", where=str(path)) from None


def _write_settings(folder: Path, kind: type[Settings], values: Mapping[str, Any]) -> None:
    settings = kind.model_validate(values).model_dump(mode="json", exclude_none=True)
    text = "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in settings.items() if value is not None
    )
    keys.write_private(folder / SETTINGS, text.encode())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_names(sites: Sequence[str]) -> None:
    if not sites or len(set(sites)) < len(sites):
        raise ConfigError("sites must have different names", where="--sites", hint="--sites plant-a,plant-b")
    for name in sites:
        if not re.fullmatch(r"[^\x00-\x1f]{1,60}", name) or name != name.strip():
            raise ConfigError(f"'{name}' cannot be the name of a site", where="--sites")
