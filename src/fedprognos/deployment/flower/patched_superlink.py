"""The SuperLink's process: Flower's own, with the few changes that this deployment makes to it, each with its reason.

This is the only file that changes Flower. `tests/deployment/test_patches.py` fails when a new version of Flower
changes the patched parts. The process ends when its parent is gone.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import ssl
import threading
import time
from pathlib import Path
from typing import Any

from fastapi import HTTPException

from fedprognos.deployment.carrier import CarrierError
from fedprognos.deployment.flower.guard import LOOK, NEWS, SuperLinkGuard

SECRET_FILE, LIMIT = "FEDPROGNOS_CONTROL_SECRET_FILE", "FEDPROGNOS_MAX_MESSAGE_IN_BYTES"
REFUSED_FILE = "FEDPROGNOS_REFUSED_FILE"
FRAME_IN_BYTES = 1 << 20
"""The most that Flower adds to a message."""
ROUTINE = ("ListNodes", "ListRuns", "/v1/control/list-", "/v1/fleet/send-node-heartbeat", LOOK, NEWS)
"""What is asked all the time, also while nothing happens."""
MAX_REFUSALS_IN_BYTES = 100_000
"""Once the notes of refused messages have this size, further ones are refused without a note."""


def _replace(module: Any, name: str, value: Any) -> None:
    if not hasattr(module, name):
        raise CarrierError(f"this version of Flower has no {module.__name__}.{name}", hint="pip install 'flwr==1.41.*'")
    setattr(module, name, value)


def guard_superlink(secret: str, limit_in_bytes: int) -> None:
    """Put the guard before the SuperLink, whose control interface is open and whose messages have no size limit."""
    from flwr.superlink import extensions
    from starlette.middleware import Middleware

    guard = Middleware(SuperLinkGuard, secret=secret, limit_in_bytes=limit_in_bytes)
    _replace(extensions, "get_middleware", lambda: (guard,))


def bind_replies(refused: Path) -> None:
    """Refuse messages whose sender is not the owner of the key that sent them.

    The SuperLink checks the key but lets a node write any sender into a message. A site could answer for another site,
    or send requests to sites in the coordinator's name. The guard cannot do this: it does not know whose a key is.
    """
    from flwr.superlink.servicer.fleet import fleet_handlers

    push = fleet_handlers.push_messages

    def push_own(request: Any, state: Any) -> Any:
        for message in request.messages_list:
            if (claimed := message.metadata.src_node_id) != request.node.node_id:
                if not refused.is_file() or refused.stat().st_size < MAX_REFUSALS_IN_BYTES:
                    with refused.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"sender": request.node.node_id, "claimed": claimed}) + "\n")
                raise HTTPException(403, "a message in another's name")
        return push(request=request, state=state)

    _replace(fleet_handlers, "push_messages", push_own)


def only_tls_1_3() -> None:
    """Refuse TLS below 1.3: the SuperLink has no option for that, and leaves uvicorn's default of 1.2."""
    from uvicorn import config

    create = config.create_ssl_context

    def create_strict(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = create(*arguments, **options)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    _replace(config, "create_ssl_context", create_strict)


def keep_routine_out_of_the_log() -> None:
    """Keep what is asked all the time out of the log, which would grow by 10 MB a day for each site."""
    for name in ("flwr", "uvicorn.access"):
        logging.getLogger(name).addFilter(lambda record: not any(word in record.getMessage() for word in ROUTINE))


def end_with_parent() -> None:
    """End this process soon after its parent has gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Entry point of the process; its arguments are the SuperLink's."""
    from flwr.superlink.cli import flower_superlink

    end_with_parent()
    guard_superlink(Path(os.environ[SECRET_FILE]).read_text("utf-8"), int(os.environ[LIMIT]) + FRAME_IN_BYTES)
    bind_replies(Path(os.environ[REFUSED_FILE]))
    only_tls_1_3()
    keep_routine_out_of_the_log()
    flower_superlink()


if __name__ == "__main__":
    main()
