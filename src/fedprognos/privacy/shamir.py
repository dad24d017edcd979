"""Shamir's secret sharing: any `threshold` shares give the secret, fewer tell nothing (Shamir, 1979)."""

from __future__ import annotations

from collections.abc import Mapping

from fedprognos.errors import MessageError

PRIME = 2**521 - 1
SHARE_IN_BYTES = 66
SEED_IN_BYTES = 74
"""64 bits more than the prime has, so that the remainder is as good as uniform."""


def split(secret: bytes, members: int, threshold: int, seed: bytes) -> list[bytes]:
    """One share for each of the members 1, 2, ...

    Parameters
    ----------
    seed
        Random bytes, 74 for each share that is needed: the same seed gives the same shares.

    >>> shares = split(b"secret", 5, 3, bytes(range(222)))
    >>> join({1: shares[0], 4: shares[3], 5: shares[4]}, 6)
    b'secret'
    """
    if not 1 <= threshold <= members or len(secret) > SHARE_IN_BYTES - 2:
        raise MessageError(f"cannot share a secret of {len(secret)} bytes among {members}, {threshold} needed")
    if len(seed) < threshold * SEED_IN_BYTES:
        raise MessageError("too short a seed")
    parts = (seed[k * SEED_IN_BYTES : (k + 1) * SEED_IN_BYTES] for k in range(threshold - 1))
    factors = [int.from_bytes(secret, "big"), *(int.from_bytes(part, "big") % PRIME for part in parts)]

    def at(x: int) -> int:
        value = 0
        for factor in reversed(factors):
            value = (value * x + factor) % PRIME
        return value

    return [at(x).to_bytes(SHARE_IN_BYTES, "big") for x in range(1, members + 1)]


def join(shares: Mapping[int, bytes], size: int) -> bytes:
    """The secret of `size` bytes from shares by member, by Lagrange's polynomial at zero."""
    total = 0
    for x, share in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        total = (total + int.from_bytes(share, "big") * above * pow(below, -1, PRIME)) % PRIME
    try:
        return total.to_bytes(size, "big")
    except OverflowError:
        raise MessageError("shares that do not belong together") from None
