"""A site's identity: an Ed25519 key made on the site. It signs what the site sends; only its public half leaves."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fedprognos.deployment.keys import write_private
from fedprognos.errors import ConfigError, MessageError

IDENTITY = "identity.key"


@dataclass(frozen=True, eq=False)
class Identity:
    """A key pair; `public` is the public half in hexadecimal."""

    key: Ed25519PrivateKey

    @property
    def public(self) -> str:
        return self.key.public_key().public_bytes_raw().hex()

    def sign(self, data: bytes) -> str:
        """The signature of some bytes, in hexadecimal."""
        return self.key.sign(data).hex()

    def secret(self, purpose: str) -> bytes:
        """A secret that only the owner of the key knows, one for each purpose."""
        return hmac.new(self.key.private_bytes_raw(), f"fedprognos {purpose}".encode(), hashlib.sha256).digest()


def identity_of(folder: Path) -> Identity:
    """The identity that lives in a folder; it is made there when first asked for."""
    path = folder / IDENTITY
    if not path.is_file():
        key = Ed25519PrivateKey.generate()
        write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    try:
        found = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, Ed25519PrivateKey):
        raise ConfigError("not an identity key", where=str(path), hint="restore it from a backup, or remove it")
    return Identity(found)


def verify(public: str, signature: str, data: bytes, who: str) -> None:
    """Raise :class:`MessageError` unless the owner of a public key signed these bytes."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):
        raise MessageError(f"the signature is not that of {who}") from None


def fingerprint(public: str) -> str:
    """A public key in a form that two people can compare by telephone.

    >>> fingerprint("00" * 32)
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    digest = hashlib.sha256(bytes.fromhex(public)).hexdigest()[:32]
    return " ".join(digest[k : k + 4] for k in range(0, 32, 4))
