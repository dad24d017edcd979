"""The federation over a real network: Flower carries the messages, sites and coordinator run their own code.

Flower's SuperLink and SuperNodes give TLS, node keys, queues and liveness. What is asked and answered are the same
encoded messages as in one process, and neither side ever runs code that came over the network.
"""

from __future__ import annotations

from importlib.util import find_spec

from fedprognos.errors import MissingExtraError


def need_flower() -> None:
    """Refuse early, with the command to install it, where Flower is missing."""
    for package in ("flwr", "cryptography"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "deploy", "deploying a federation")
