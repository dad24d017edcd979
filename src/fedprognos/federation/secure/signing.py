"""What members of masked sums sign, and whether a signature is theirs."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


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
