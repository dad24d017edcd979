"""The folders of a deployment: one for the coordinator, a small one for each site, the authority's apart."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import tomli_w
from pydantic import Field, PositiveInt

from fedprognos.deployment import keys
from fedprognos.errors import ConfigError, OutputError
from fedprognos.files import parse_toml
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
    """How long to wait for absent sites where `min_clients` others are there; during a run 45 s at the least."""


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
    """No row may count for more than this in the statistics of a head; 1 lets statistics of few rows leave."""
    max_message_in_mb: PositiveInt = 64
    """Larger messages are refused."""
    max_memory_in_mb: PositiveInt = 4096
    """Requests that need more are refused before they are worked on."""
    max_answers_per_run: PositiveInt = 5000
    """Answers that the site gives in a run."""
    max_answers_per_month: PositiveInt = 50_000
    """Answers that the site gives in a month."""
    max_runs_per_month: PositiveInt = 30
    """Runs that begin in a month."""
    small_differences: bool = False
    """Whether a run may begin whose sums differ from an earlier one's by fewer rows or units than the floors."""
    approved: tuple[str, ...] = ()
    """Digests of contracts that are approved beforehand."""
    members: Mapping[str, Annotated[str, Field(pattern="^[0-9a-f]{32}$")]] = {}
    """Fingerprints of all other members, as they gave them by other means; once there are any, contracts with other
    keys or other members are refused."""
    splits: Literal["secret", "public"] = "secret"
    """Which units are kept out of training: by a secret of the site's own, the same for all seeds, or by the run's seed
    as on one machine. Choose "public" only to compare a deployment with one machine: nested sums and counts of
    residuals are then sent as there, too, and sums of many seeds tell of single units."""
    bundle: str | None = None
    """Folder of a model trained earlier, for experiments with federation.start = "bundles"."""


def make_deployment(
    folder: Path, sites: Sequence[str], host: str, port: int, bind: str | None, experiment: Path | None
) -> tuple[Path, dict[str, Path]]:
    """Make every folder of a new deployment; the coordinator's, and each site's by name."""
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
    own = {"host": host, "port": port, "sites": list(sites)} | ({} if bind is None else {"bind": bind})
    _write_options(coordinator, CoordinatorOptions.model_validate(own))
    for parent in (coordinator, folder):
        keys.private_folder(parent / "sites")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    made = {}
    for name in sites:
        made[name] = keys.private_folder(site_folder(folder, name))
        keys.write_private(public_key_file(coordinator, name), keys.make_site_keys(made[name]))
        keys.make_secret(made[name] / "tasks.secret")
        _write_options(made[name], SiteOptions(name=name, coordinator=address))
    for place in (coordinator, *made.values()):
        shutil.copy2(authority / "ca.crt", place / "ca.crt")
        if experiment is not None:
            keys.write_private(place / EXPERIMENT, experiment.read_bytes())
    return coordinator, made


def renew(folder: Path, sites: Sequence[str]) -> dict[str, Path]:
    """A new certificate for the coordinator and new key pairs for the sites named; the folders to hand out again."""
    coordinator = coordinator_folder(folder)
    options = read_options(coordinator, CoordinatorOptions)
    keys.make_server_certificate(folder / "authority", coordinator, options.host)
    handed = {}
    for name in sites:
        if name not in options.sites:
            raise ConfigError(f"no site '{name}'", where=str(folder), hint=f"sites: {', '.join(options.sites)}")
        handed[name] = keys.private_folder(site_folder(folder, name))
        keys.write_private(public_key_file(coordinator, name), keys.make_site_keys(handed[name]))
    return handed


def site_folder(folder: Path, site: str) -> Path:
    """A site's folder in a new deployment."""
    from fedprognos.experiment.run_folder import folder_name  # loads torch, which `deploy status` need not

    return folder / "sites" / folder_name(site)


def public_key_file(coordinator: Path, site: str) -> Path:
    """Where the coordinator keeps a site's public key."""
    place = site_folder(coordinator, site)
    return place.with_name(f"{place.name}.pub")


def coordinator_folder(folder: Path) -> Path:
    """The coordinator's folder, given itself or the deployment's."""
    return folder / "coordinator" if (folder / "coordinator" / SETTINGS).is_file() else folder


def read_options(folder: Path, kind: type[O]) -> O:
    """The checked content of a `settings.toml`."""
    path = folder / SETTINGS
    if not path.is_file():
        raise ConfigError(
            "there is no settings.toml", where=str(folder), hint="`fedprognos deploy init` makes such folders"
        )
    found = parse_toml(path.read_bytes(), str(path))
    for table in (key for key, value in found.items() if isinstance(value, dict)):
        if misplaced := sorted(set(found[table]) & set(kind.model_fields)):
            raise ConfigError(
                f"'{misplaced[0]}' stands below [{table}], so it belongs to it",
                where=str(path),
                hint=f"Move it above [{table}].",
            )
    return validated(kind, found, str(path))


def _write_options(folder: Path, options: Options) -> None:
    kept = options.model_dump(mode="json", exclude_none=True)
    text = tomli_w.dumps({key: value for key, value in kept.items() if value != {}})  # keys below a table are its own
    keys.write_private(folder / SETTINGS, text.encode())


def _check_names(sites: Sequence[str]) -> None:
    if not sites or len(set(sites)) < len(sites):
        raise ConfigError("sites need different names", where="--sites", hint="--sites plant-a,plant-b")
    for name in sites:
        if not (1 <= len(name) <= 60 and name.isprintable()) or name != name.strip():
            raise ConfigError(
                f"'{name}' cannot be the name of a site", where="--sites", hint="use 1 to 60 printable characters"
            )
