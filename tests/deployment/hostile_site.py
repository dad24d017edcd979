"""A site that answers what it should not: hostile_site.py FOLDER DATA EXPERIMENT HOW."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np

from fedprognos.cli.deploy import _tell
from fedprognos.deployment.flower.supernode import join
from fedprognos.deployment.folders import SiteOptions, read_options
from fedprognos.deployment.site import site_service as site
from fedprognos.deployment.site.site_data import read_site_data
from fedprognos.deployment.steps.signed_steps import REPLY, read_reply, seal_reply
from fedprognos.experiment import config
from fedprognos.federation.codec import decode, encode, ledger_line
from fedprognos.federation.exchanges.fit import FitReply, FitRequest

HONEST, ANSWER = site.Site.respond, site.Site._answer


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


def header(data: bytes) -> bytes:
    """A header that says nothing of where tensors are."""
    return data.replace(b"data_offsets", b"dada_offsets")


def huge(data: bytes) -> bytes:
    return bytes(200 << 20)


def respond(self: site.Site, data: bytes) -> bytes:
    sealed = HONEST(self, data)
    if not sealed.startswith(REPLY) or HOW == "full":
        return sealed
    about, reply = read_reply(sealed)
    if ledger_line(reply).kind != FitReply.__name__:
        return sealed
    spoilt = {"nan": nan, "shape": shape, "header": header, "huge": huge}[HOW](reply)
    return seal_reply(self.identity, about.contract, about.step, self.options.name, spoilt)


def answer(self: site.Site, request: object, client: object) -> object:
    if HOW == "full" and isinstance(request, FitRequest):  # no file may grow from here on: what a full disk does
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    return ANSWER(self, request, client)  # type: ignore[arg-type]


if __name__ == "__main__":
    folder, table, experiment_file, HOW = sys.argv[1:]
    site.Site.respond = respond  # type: ignore[method-assign]
    site.Site._answer = answer  # type: ignore[method-assign]
    options = read_options(Path(folder), SiteOptions)
    _, experiment, base = config.load(experiment_file)
    own = read_site_data(options.name, experiment, base, Path(table))
    site.serve_site(Path(folder), join, own, _tell)
