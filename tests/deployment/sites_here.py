"""Sites in this process, asked as over Flower: everything of a deployment but its processes and its network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message

from fedprognos.deployment.flower.site import Service


@dataclass
class Node:
    node_id: int
    public_key: bytes
    last_activated_at: str = "monday"


@dataclass
class Grid:
    """Answers at once."""

    sites: Mapping[str, Service]
    replies: dict[str, Message] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def keys(self) -> dict[str, bytes]:
        return {name: name.encode() for name in self.sites}

    def get_nodes(self) -> list[Node]:
        return [Node(k, name.encode()) for k, name in enumerate(self.sites)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for one in messages:
            ids.append(f"m{len(self.replies)}")
            one.metadata.__dict__["_message_id"] = ids[-1]
            name = list(self.sites)[one.metadata.dst_node_id]
            self.asked[name] += 1
            self.replies[ids[-1]] = self.sites[name].respond(one)
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        return [self.replies[one] for one in ids]
