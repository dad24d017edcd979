"""A grid that no site can hold up: an answer has few parts, and once announced must arrive in time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.superlink.grid import HttpGrid

from fedprognos.deployment.flower.pace import RETRY
from fedprognos.errors import MessageError

MOST_PARTS = 8
"""Ours have three: the message, its records, the one with the bytes. Each part is at most as large as agreed."""
ARRIVAL_IN_S = 60.0


class BoundedGrid(HttpGrid):
    """Flower's grid, which would wait two hours for the parts of an answer, and fetch any number of them.

    Parameters
    ----------
    arrival_in_s
        How long an announced answer may take to arrive.
    """

    def __init__(self, address: str, root_certificates: bytes, token: str, arrival_in_s: float = ARRIVAL_IN_S) -> None:
        super().__init__(address, root_certificates=root_certificates, token=token)
        self._arrival = arrival_in_s

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Answers that have come; raises where one is not as it should be."""
        client, run_id = self._runtime_client, self.run.run_id
        response = client.PullMessages(PullAppMessagesRequest(message_ids=message_ids))
        messages = []
        for proto, tree in zip(response.messages_list, response.message_object_trees, strict=True):
            parts = [part.object_id for part in iterate_object_tree(tree)]
            if len(parts) > MOST_PARTS:
                raise MessageError(f"an answer of {len(parts)} parts")
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
