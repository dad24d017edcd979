"""Flower carries the messages: the one place that knows Flower, and the one place that changes it (`patches`).

SuperLink and SuperNodes give TLS, node keys, queues and liveness. Coordinator and sites take on Flower's tasks in their
own processes, so that neither side ever runs code that came over the network. `engine` is what the deployment uses.
"""

from __future__ import annotations

from importlib.util import find_spec

from fedprognos.errors import MissingExtraError


def require_flower() -> None:
    """Refuse early, with the command to install it, where Flower is missing."""
    for package in ("flwr", "cryptography"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "deploy", "deploying a federation")
