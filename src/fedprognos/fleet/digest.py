"""A digest of a fleet's data: results and agreements of other data must not be taken for those of this."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np

from fedprognos.fleet.unit import Fleet


def fleet_digest(fleet: Fleet, secret: bytes = b"") -> str:
    """Changes with every value of every unit: rows, operating settings, labels, cycles, names, how a life ended.

    Parameters
    ----------
    secret
        With a secret the digest tells nothing to whoever does not have it.
    """
    digest = hmac.new(secret, digestmod=hashlib.sha256)
    for unit in fleet:
        attributes = sorted((k, repr(v)) for k, v in unit.attributes.items())
        digest.update(repr((unit.id, unit.failed, unit.rul_at_end, attributes)).encode())
        for array in (unit.time, unit.sensors, unit.settings, unit.target, unit.cycles, unit.cycle_numbers):
            digest.update(b"-" if array is None else repr((array.dtype.str, array.shape)).encode())
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
