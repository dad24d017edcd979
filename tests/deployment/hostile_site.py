"""A site that answers what it should not: hostile_site.py FOLDER DATA EXPERIMENT HOW."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
from flwr.app import Message

from fedprognos.deployment.flower import site, wire
from fedprognos.deployment.flower.doorstep import ALL_REQUESTS
from fedprognos.deployment.flower.folders import SiteSettings, read_settings
from fedprognos.deployment.flower.holdings import read_holdings
from fedprognos.experiment import config
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.messages import FitReply, FitRequest

HONEST = site.Service.respond


def nan(data: bytes) -> bytes:
    """The first weights as NaN, put into the encoded bytes: the honest encoder is not asked."""
    reply: FitReply = decode(data, (FitReply,))
    name = next(iter(reply.weights))
    array = reply.weights[name]
    at = data.index(array.tobytes())
    return data[:at] + np.full_like(array, np.nan).tobytes() + data[at + array.nbytes :]


def shape(data: bytes) -> bytes:
    reply: FitReply = decode(data, (FitReply,))
    weights = {name: array[..., :-1].copy() for name, array in reply.weights.items()}
    return encode(FitReply(weights, reply.windows, reply.history, reply.best_epoch, reply.collapsed))


def huge(data: bytes) -> bytes:
    return bytes(200 << 20)


def respond(self: site.Service, message: Message) -> Message:
    request = decode(wire.content(message, self.limit, ""), ALL_REQUESTS)
    if not isinstance(request, FitRequest):
        return HONEST(self, message)
    if HOW == "full":  # no file may grow from here on: what a full disk does
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        return HONEST(self, message)
    change = {"nan": nan, "shape": shape, "huge": huge}[HOW]
    return wire.reply(change(wire.content(HONEST(self, message), 1 << 40, "")), message)


if __name__ == "__main__":
    folder, data, experiment_file, HOW = sys.argv[1:]
    site.Service.respond = respond  # type: ignore[method-assign]
    settings = read_settings(Path(folder), SiteSettings)
    _, experiment, base = config.load(experiment_file)
    holdings = read_holdings(settings.name, experiment, base, Path(data))
    site.serve(Path(folder), holdings, lambda text: sys.stdout.write(text + "\n"))
