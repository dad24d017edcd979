"""Flower carries the messages. This is the only package that knows Flower, and `patches` the only file that changes it.

SuperLink and SuperNodes provide TLS, node keys, queues and liveness. Coordinator and sites do Flower's tasks in their
own processes, so neither side ever runs code that came over the network. The deployment uses `superlink.host` and
`supernode.join`.
"""

from __future__ import annotations

from importlib.util import find_spec

from fedprognos.errors import MissingExtraError


def require_flower() -> None:
    """Raise with the command to install it where Flower is missing."""
    for package in ("flwr", "cryptography"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "deploy", "deploying a federation")
