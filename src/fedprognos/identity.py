"""An identity: an Ed25519 key that signs messages and models. Only its public half leaves its owner's machine."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fedprognos.errors import ConfigError, MessageError
from fedprognos.files import write_private

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
        """A secret that follows from the private key, another one for each purpose."""
        return hmac.new(self.key.private_bytes_raw(), f"fedprognos {purpose}".encode(), hashlib.sha256).digest()


def identity_of(folder: Path) -> Identity:
    """The identity that a folder holds; it is made on first use."""
    return identity_from_file(folder / IDENTITY)


def identity_from_file(path: Path) -> Identity:
    """The identity whose private key is in a file; it is made on first use."""
    if not path.exists():
        key = Ed25519PrivateKey.generate()
        write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    try:
        loaded = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"cannot read: {error.strerror}", where=str(path), hint="Name the file of a key.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        loaded = None
    if not isinstance(loaded, Ed25519PrivateKey):
        raise ConfigError("not an identity key", where=str(path), hint="Restore it from a backup, or remove it.")
    return Identity(loaded)


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
