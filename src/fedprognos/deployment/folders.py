"""The folders of a deployment: the authority's, the coordinator's and one for each site, with their settings."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import tomli_w
from pydantic import Field, PositiveInt

from fedprognos.deployment import keys
from fedprognos.errors import ConfigError, OutputError
from fedprognos.files import parse_toml, write_private
from fedprognos.options import Options, validated

SETTINGS, EXPERIMENT = "settings.toml", "experiment.toml"
Port = Annotated[int, Field(ge=1, le=65535)]
O = TypeVar("O", bound=Options)  # noqa: E741


class CoordinatorOptions(Options):
    """`settings.toml` of the coordinator."""

    host: str
    """Name or address by which sites reach this machine."""
    port: Port = 9092
    """Port that sites reach."""
    bind: str = "0.0.0.0"  # noqa: S104 - sites come from elsewhere; docs/deploy.md says what guards the port
    """Address to listen on."""
    sites: tuple[str, ...]
    """Names of the sites."""
    max_message_in_mb: PositiveInt = 64
    """Larger messages are refused before they are read."""
    grace_in_s: Annotated[float, Field(ge=0)] = 30.0
    """How long to wait for absent sites while `min_clients` others are there; during a run at least 45 s."""


class SiteOptions(Options):
    """`settings.toml` of a site."""

    name: str
    """Name of the site: its client in the experiment."""
    coordinator: str
    """Host and port of the coordinator."""
    min_count: Annotated[int, Field(ge=20)] = 20
    """No statistic of fewer rows than this leaves the site, whatever it is asked."""
    min_units: PositiveInt = 5
    """No statistic of fewer units leaves the site either, unless the site has a single one."""
    max_leverage: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Largest leverage of a row in the statistics of a head; 1 switches the check off."""
    max_message_in_mb: PositiveInt = 64
    """Larger messages are refused."""
    max_memory_in_mb: PositiveInt = 4096
    """Requests that need more are refused before they are worked on."""
    max_answers_per_run: PositiveInt = 5000
    """Answers that the site gives in a run."""
    max_sums_per_seed: PositiveInt = 1000
    """Sums over the outputs of networks that others had a part in, for one seed of a run."""
    max_answers_per_month: PositiveInt = 50_000
    """Answers that the site gives in a month."""
    max_runs_per_month: PositiveInt = 30
    """Runs that begin in a month."""
    small_differences: bool = False
    """Whether a run may begin whose sums differ from those of an earlier run by fewer rows or units than the floors."""
    approved: tuple[str, ...] = ()
    """Digests of contracts that are approved beforehand."""
    members: Mapping[str, Annotated[str, Field(pattern="^[0-9a-f]{32}$")]] = {}
    """Fingerprints of all other members, by name. With any set, contracts with other keys or members are refused."""
    splits: Literal["secret", "public"] = "secret"
    """What decides which units are kept out of training: the site's secret, the same for all seeds, or the run's seed
    as on one machine. Choose "public" only to compare a deployment with one machine: nested sums and counts of
    residuals are then sent as there, and sums over many seeds reveal single units."""
    bundle: str | None = None
    """Folder of a model trained earlier, for experiments with federation.start = "bundles"."""


def make_deployment(
    folder: Path, sites: Sequence[str], host: str, port: int, bind: str | None, experiment: Path | None
) -> tuple[Path, dict[str, Path]]:
    """Make every folder of a new deployment; return the coordinator's, and each site's by name."""
    _check_names(sites)
    if folder.exists() and any(folder.iterdir()):
        raise OutputError(
            "is not empty", where=str(folder), hint="Choose a new folder. To renew keys, use `deploy renew`."
        )
    authority = keys.private_folder(keys.private_folder(folder) / "authority")
    coordinator = keys.private_folder(folder / "coordinator")
    keys.make_authority(authority)
    keys.make_server_certificate(authority, coordinator, host)
    for secret in ("tasks.secret", "control.secret"):
        keys.make_secret(coordinator / secret)
    settings = {"host": host, "port": port, "sites": list(sites)} | ({} if bind is None else {"bind": bind})
    _write_options(coordinator, CoordinatorOptions.model_validate(settings))
    for parent in (coordinator, folder):
        keys.private_folder(parent / "sites")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    places = {}
    for name in sites:
        places[name] = keys.private_folder(site_folder(folder, name))
        write_private(public_key_file(coordinator, name), keys.make_site_keys(places[name]))
        _write_options(places[name], SiteOptions(name=name, coordinator=address))
    for place in (coordinator, *places.values()):
        shutil.copy2(authority / "ca.crt", place / "ca.crt")
        if experiment is not None:
            write_private(place / EXPERIMENT, experiment.read_bytes())
    return coordinator, places


def renew(folder: Path, sites: Sequence[str]) -> dict[str, Path]:
    """Make a new certificate for the coordinator and new keys for these sites; return the sites' new folders."""
    coordinator = coordinator_folder(folder)
    options = read_options(coordinator, CoordinatorOptions)
    keys.make_server_certificate(folder / "authority", coordinator, options.host)
    renewed = {}
    for name in sites:
        if name not in options.sites:
            raise ConfigError(f"no site '{name}'", where=str(folder), hint=f"sites: {', '.join(options.sites)}")
        renewed[name] = keys.private_folder(site_folder(folder, name))
        write_private(public_key_file(coordinator, name), keys.make_site_keys(renewed[name]))
    return renewed


def site_folder(folder: Path, site: str) -> Path:
    """A site's folder in a new deployment."""
    from fedprognos.experiment import folder_name  # loads torch, which `deploy status` need not

    return folder / "sites" / folder_name(site)


def public_key_file(coordinator: Path, site: str) -> Path:
    """Where the coordinator keeps a site's public key."""
    place = site_folder(coordinator, site)
    return place.with_name(f"{place.name}.pub")


def coordinator_folder(folder: Path) -> Path:
    """The coordinator's folder, given that folder or the deployment's."""
    return folder / "coordinator" if (folder / "coordinator" / SETTINGS).is_file() else folder


def read_options(folder: Path, kind: type[O]) -> O:
    """The checked content of a `settings.toml`."""
    path = folder / SETTINGS
    if not path.is_file():
        raise ConfigError(
            "there is no settings.toml", where=str(folder), hint="`fedprognos deploy init` makes the folders."
        )
    document = parse_toml(path.read_bytes(), str(path))
    for table in (key for key, value in document.items() if isinstance(value, dict)):
        if misplaced := sorted(set(document[table]) & set(kind.model_fields)):
            raise ConfigError(
                f"'{misplaced[0]}' stands below [{table}], so TOML reads it as a key of that table",
                where=str(path),
                hint=f"Move it above [{table}].",
            )
    return validated(kind, document, str(path))


def _write_options(folder: Path, options: Options) -> None:
    values = options.model_dump(mode="json", exclude_none=True)
    # An empty table is left out: TOML would read every key that an owner adds below it as a key of that table.
    text = tomli_w.dumps({key: value for key, value in values.items() if value != {}})
    write_private(folder / SETTINGS, text.encode())


def _check_names(sites: Sequence[str]) -> None:
    if not sites or len(set(sites)) < len(sites):
        raise ConfigError("sites need different names", where="--sites", hint="--sites plant-a,plant-b")
    for name in sites:
        if not (1 <= len(name) <= 60 and name.isprintable()) or name != name.strip():
            raise ConfigError(
                f"'{name}' cannot be the name of a site", where="--sites", hint="Use 1 to 60 printable characters."
            )
