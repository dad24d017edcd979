"""A site on another processor: in this process, with other last digits; or in a process with other kernels.

As a script it is such a site: it answers the messages that come by its standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS), str(TESTS / "attacks")]
KERNELS = {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Prescott", "MKL_CBWR": "COMPATIBLE"}
"""Kernels without vector instructions, as old or other processors have them."""


def nudged(message: bytes, rng: np.random.Generator) -> bytes:
    """A message whose numbers differ in their last digits."""
    size = int.from_bytes(message[:8], "little")
    from fedprognos.files import parse_json

    metadata = parse_json(message[8 : 8 + size])["__metadata__"]
    tensors = load(message)
    for name, tensor in tensors.items():
        if tensor.dtype in (np.float32, np.float64):
            step = np.finfo(np.float32).eps * rng.uniform(-0.5, 0.5, tensor.shape)
            tensors[name] = (tensor * (1 + step)).astype(tensor.dtype)
    return save(tensors, metadata=metadata)


def round_otherwise(monkeypatch: pytest.MonkeyPatch, site: str) -> None:
    """Let one site of this process make all its requests with other last digits."""
    from fedprognos.deployment.steps.replay import Replay

    send, rng = Replay.send, np.random.default_rng(0)

    def send_nudged(self: Replay, requests: Mapping[str, bytes]) -> Any:
        if self.site == site:
            requests = {name: nudged(data, rng) for name, data in requests.items()}
        return send(self, requests)

    monkeypatch.setattr(Replay, "send", send_nudged)


@dataclass
class RemoteSite:
    """A site in a process of its own with these variables in its environment; it has what tests use of a `Site`."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    approvals: Any = None
    process: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, __file__, *self.arguments]
        environment = {**os.environ, **self.environment}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def respond(self, data: bytes) -> bytes:
        self.process.stdin.write(len(data).to_bytes(8, "little") + data)
        self.process.stdin.flush()
        size = int.from_bytes(self.process.stdout.read(8), "little")
        assert size, "the other process has ended"
        return bytes(self.process.stdout.read(size))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)


def main() -> None:
    """Serve the site of a small run: its folder and its name."""
    folder, name = sys.argv[1:]
    sys.path.append(str(TESTS / "deployment"))
    import torch
    from small_run import SmallRun

    torch.set_num_threads(int(os.environ["TORCH_THREADS"]))
    site = SmallRun(Path(folder)).site(name)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not print into the replies
    while header := sys.stdin.buffer.read(8):
        reply = site.respond(sys.stdin.buffer.read(int.from_bytes(header, "little")))
        replies.write(len(reply).to_bytes(8, "little") + reply)
        replies.flush()


if __name__ == "__main__":
    main()
