"""The cryptography of masked sums: keys, masks, signatures, and secrets that are shared among members.

Keys are X25519 with HKDF, masks are ChaCha20 as a stream of integers. Secrets are shared as in Shamir (1979): any
`threshold` shares give the secret, and fewer reveal nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedprognos.errors import MessageError
from fedprognos.privacy.sum_vectors import Limbs

KEY_IN_BYTES = 32
PRIME = 2**521 - 1
SHARE_IN_BYTES = 66
POLYNOMIAL_IN_BYTES = 74
"""Random bytes for each factor of a polynomial: 64 bits more than the prime has, so that the remainder is as good as
uniform."""


def public_of(private: bytes) -> bytes:
    """The public half of a key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, public: bytes, purpose: str) -> bytes:
    """The secret of two keys for one purpose: both sides get the same."""
    try:
        secret = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise MessageError("a public key is not a valid X25519 key") from None
    return HKDF(SHA256(), KEY_IN_BYTES, salt=None, info=purpose.encode()).derive(secret)


def expanded(secret: bytes, purpose: str, size: int) -> bytes:
    """Bytes for one purpose from a secret: always the same, and nobody can tell them from random ones."""
    key = HKDF(SHA256(), KEY_IN_BYTES, salt=None, info=purpose.encode()).derive(secret)
    return Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(size))


def mask(seed: bytes, count: int, limbs: int) -> Limbs:
    """Integers (count, limbs) that nobody without the seed can tell from uniform ones."""
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(8 * count * limbs))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64).reshape(count, limbs)


def seal(key: bytes, text: bytes) -> bytes:
    """Encrypt under a key that is used once."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), text, None)


def unseal(key: bytes, sealed: bytes, sender: str) -> bytes:
    """Decrypt a share, or refuse one that was changed after its sender sealed it."""
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, None)
    except InvalidTag:
        raise MessageError(f"the sealed share of member {sender!r} was changed on its way") from None


def keys_text(batch: str, identities: Mapping[str, str], sealing: str, masking: tuple[str, ...]) -> bytes:
    """What a member signs about its keys."""
    return "\n".join(["keys", batch, *(f"{k} {v}" for k, v in sorted(identities.items())), sealing, *masking]).encode()


def survivors_text(batch: str, index: int, survivors: tuple[str, ...]) -> bytes:
    """What a member signs about a sum; requests computed on other machines may differ in their last digits."""
    return "\n".join(["survivors", batch, str(index), *survivors]).encode()


def verified(public: str, signature: str, text: bytes) -> bool:
    """Whether a signature (hex) is that of a public key (hex)."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True


def split_secret(secret: bytes, members: int, threshold: int, seed: bytes) -> list[bytes]:
    """One share for each of the members 1, 2, ...

    Parameters
    ----------
    seed
        Random bytes, 74 for each share of the threshold: the same seed gives the same shares.

    >>> shares = split_secret(b"secret", 5, 3, bytes(range(222)))
    >>> join_shares({1: shares[0], 4: shares[3], 5: shares[4]}, 6)
    b'secret'
    """
    if not 1 <= threshold <= members or len(secret) > SHARE_IN_BYTES - 2:
        raise MessageError(f"cannot share a secret of {len(secret)} bytes among {members}, {threshold} needed")
    if len(seed) < threshold * POLYNOMIAL_IN_BYTES:
        raise MessageError(f"a seed of {len(seed)} bytes is too short to share a secret")
    parts = (seed[k * POLYNOMIAL_IN_BYTES : (k + 1) * POLYNOMIAL_IN_BYTES] for k in range(threshold - 1))
    factors = [int.from_bytes(secret, "big"), *(int.from_bytes(part, "big") % PRIME for part in parts)]

    def at(x: int) -> int:
        value = 0
        for factor in reversed(factors):
            value = (value * x + factor) % PRIME
        return value

    return [at(x).to_bytes(SHARE_IN_BYTES, "big") for x in range(1, members + 1)]


def join_shares(shares: Mapping[int, bytes], size: int) -> bytes:
    """The secret of `size` bytes from shares by the number of their member, by Lagrange's polynomial at zero."""
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
        raise MessageError("the shares of a secret do not belong together") from None
