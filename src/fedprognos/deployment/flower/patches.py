"""Every change to Flower, each with its reason. The rest of the adapter uses Flower's interfaces as they are.

`tests/deployment/test_patches.py` fails when a new version of Flower changes the patched parts.
"""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

from fastapi import HTTPException
from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_and_inflate_object_from_tree,
    pull_objects,
)
from flwr.superlink.grid import HttpGrid

from fedprognos.deployment.carrier import CarrierError
from fedprognos.deployment.flower.guard import Guard
from fedprognos.deployment.processes import SHORTEST_IN_S, Backoff
from fedprognos.errors import MessageError

RETRY: dict[str, Any] = {"initial_backoff": 0.02, "backoff_cap": 0.2, "max_tries_per_object": None}
MAX_PARTS = 8
"""Our messages have three parts: the message, its record, and the entry with the bytes."""
ROUTINE = ("ListNodes", "/v1/control/list-nodes")
MAX_REFUSALS_IN_BYTES = 100_000
"""Once the notes of refused messages have this size, further ones are refused without a note."""


def _replace(module: Any, name: str, value: Any) -> None:
    if not hasattr(module, name):
        raise CarrierError(f"this version of Flower has no {module.__name__}.{name}", hint="pip install 'flwr==1.41.*'")
    setattr(module, name, value)


def poll_often(backoff: Backoff) -> None:
    """Make the SuperNode look for messages more often than every three seconds.

    Its clock is replaced. Sleeps below a second wait for the site's own process; looking there costs nothing.
    """
    from flwr.supernode import start_client_internal

    class Clock:
        def __getattr__(self, name: str) -> Any:
            return getattr(time, name)

        def sleep(self, seconds: float) -> None:
            time.sleep(min(seconds, SHORTEST_IN_S if seconds < 1 else backoff.wait_in_s()))

    _replace(start_client_internal, "time", Clock())


def only_tls_1_3() -> None:
    """Make the SuperLink refuse TLS below 1.3: it has no option for that, and leaves uvicorn's default of 1.2."""
    from uvicorn import config

    create = config.create_ssl_context

    def create_strict(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = create(*arguments, **options)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    _replace(config, "create_ssl_context", create_strict)


def send_waiting_replies(backoff: Backoff) -> None:
    """Make the SuperNode send every reply that waits.

    It sends one batch of replies for each message that it fetches. When a run ends while a message is on its way, the
    reply to that message is sent in place of the next one, which then waits for a message that never comes. Here a
    waiting reply counts as a fetched message.
    """
    from flwr.supernode import start_client_internal

    pull = start_client_internal._pull_and_store_message

    def pull_or_reply(*, state: Any, **more: Any) -> int | None:
        run_id = pull(state=state, **more)
        if run_id is not None:
            backoff.reset()
            return run_id
        with state.lock_msg_store:
            entries = list(state.msg_store.values())
        waiting = any(not e.is_retrieved and e.message.metadata.reply_to_message_id for e in entries)
        return 0 if waiting else None  # any number: only None means that there is nothing to send

    _replace(start_client_internal, "_pull_and_store_message", pull_or_reply)


def fetch_parts_often() -> None:
    """Make SuperNode and site ask again soon for parts of a message that have not arrived; Flower waits a second."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.runtime import run_clientapp

    _replace(start_client_internal, "pull_objects", partial(pull_objects, **RETRY))
    _replace(run_clientapp, "pull_and_inflate_object_from_tree", partial(pull_and_inflate_object_from_tree, **RETRY))


def guard_superlink(secret: str, limit_in_bytes: int) -> None:
    """Put the guard before the SuperLink, whose control interface is open and whose messages have no size limit."""
    from flwr.superlink import extensions
    from starlette.middleware import Middleware

    guard = Middleware(Guard, secret=secret, limit_in_bytes=limit_in_bytes)
    _replace(extensions, "get_middleware", lambda: (guard,))


def keep_routine_out_of_the_log() -> None:
    """Keep the coordinator's regular look at who is online out of the log, which would grow for months."""
    for name in ("flwr", "uvicorn.access"):
        logging.getLogger(name).addFilter(lambda record: not any(word in record.getMessage() for word in ROUTINE))


def bind_replies(refused: Path) -> None:
    """Refuse messages whose sender is not the owner of the key that sent them.

    The SuperLink checks the key but lets a node write any sender into a message. A site could answer for another site,
    or send requests to sites in the coordinator's name.
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


def tell_keys_in_use_from_unknown_ones() -> None:
    """Give another error for a key in use than for an unknown key; the SuperLink gives the same.

    A site that was killed and started again meets the first, until the SuperLink notices that the old connection is
    gone.
    """
    from flwr.superlink.servicer.fleet import fleet_handlers

    activate = fleet_handlers.activate_node

    def activate_or_say(request: Any, state: Any) -> Any:
        try:
            return activate(request=request, state=state)
        except FlowerError as error:
            failed = error.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED
            if failed and state.get_node_id_by_public_key(request.public_key) is not None:
                raise FlowerError(ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE, "still connected") from error
            raise

    _replace(fleet_handlers, "activate_node", activate_or_say)


class BoundedGrid(HttpGrid):
    """A grid that waits a short time for the parts of a reply, and takes few; Flower waits two hours and takes any."""

    def __init__(self, address: str, root_certificates: bytes, token: str, arrival_in_s: float) -> None:
        super().__init__(address, root_certificates=root_certificates, token=token)
        # Flower's own retries send SIGINT to this process where the SuperLink gave up the run; the mailbox asks again.
        self._retry_invoker = None  # type: ignore[assignment]
        self._arrival = arrival_in_s

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Replies that have come; raises where one is malformed."""
        client, run_id = self._runtime_client, self.run.run_id
        response = client.PullMessages(PullAppMessagesRequest(message_ids=message_ids))
        messages = []
        for proto, tree in zip(response.messages_list, response.message_object_trees, strict=True):
            parts = [part.object_id for part in iterate_object_tree(tree)]
            if len(parts) > MAX_PARTS:
                raise MessageError(f"a reply of {len(parts)} parts")
            fetch = make_pull_object_fn_protobuf(client.PullObject, self.node, run_id)
            contents = pull_objects(parts, fetch, max_time=self._arrival, **RETRY)
            name = proto.metadata.message_id
            client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(node=self.node, run_id=run_id, message_object_id=name)
            )
            message = cast(Message, inflate_object_from_contents(name, contents))
            message.metadata.__dict__["_message_id"] = name
            messages.append(message)
        return messages
