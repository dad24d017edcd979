"""Flower carries the messages: the one place that knows Flower, and the one place that changes it (`patches`).

SuperLink and SuperNodes give TLS, node keys, queues and liveness. Coordinator and sites take on Flower's tasks in their
own processes, so that neither side ever runs code that came over the network. This module is the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedprognos.errors import MissingExtraError

if TYPE_CHECKING:
    from fedprognos.deployment.engine import Hub, Inbox, Tell
    from fedprognos.deployment.folders import CoordinatorOptions, SiteOptions


def require() -> None:
    """Refuse early, with the command to install it, where Flower is missing."""
    for package in ("flwr", "cryptography"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "deploy", "deploying a federation")


def host(folder: Path, options: CoordinatorOptions, keys: Mapping[str, bytes]) -> AbstractContextManager[Hub]:
    """Start the coordinator's SuperLink."""
    from fedprognos.deployment.flower import superlink

    return superlink.host(folder, options, keys)


def join(folder: Path, options: SiteOptions, tell: Tell) -> AbstractContextManager[Inbox]:
    """Start a site's SuperNode."""
    from fedprognos.deployment.flower import supernode

    return supernode.join(folder, options, tell)
