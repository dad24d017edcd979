"""Flower carries the messages. Only this package knows Flower, and only `patched_superlink` changes it.

Flower's SuperLink provides TLS, node keys, queues and liveness. Coordinator and sites speak to it from their own
processes, so neither side ever runs code that came over the network. The deployment uses `superlink.host` and
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
