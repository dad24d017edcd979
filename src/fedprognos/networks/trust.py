"""Who may sign a model: a file of public keys, and the signatures that travel beside the model.

A signature covers a digest: that of a bundle's document, which covers its weights, or that of a file's bytes. It is
checked before anything of the model is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tomli_w
from pydantic import Field, model_validator

from fedprognos.errors import BundleError, ConfigError, MessageError, MissingExtraError
from fedprognos.files import parse_json, parse_toml, write_json, write_text
from fedprognos.options import Options, validated

if TYPE_CHECKING:
    from fedprognos.identity import Identity

SIGNATURES = "signatures.json"
MAX_IN_BYTES = 1 << 20
HINT = "Get the model again from its owner, or ask whether a new key signs it (docs/predict.md, Signed models)."


class SignatureError(BundleError):
    """A model is not signed by those who are trusted here."""

    code = "signature"


class TrustedKey(Options):
    """A public key, in hexadecimal, and until when it is accepted."""

    name: str = Field(min_length=1, max_length=80)
    public: str = Field(pattern="^[0-9a-f]{64}$")
    until: date | None = None
    """The last day on which its signatures are accepted."""
    revoked: bool = False
    """Its signatures are not accepted any more."""

    @property
    def refusal(self) -> str:
        """Why it is not accepted today; empty if it is."""
        if self.revoked:
            return "is revoked"
        expired = self.until is not None and datetime.now(UTC).date() > self.until
        return f"was valid until {self.until}" if expired else ""


class Trust(Options):
    """The keys that are trusted, and how many of them must have signed a model."""

    needed: int = Field(default=1, ge=1)
    keys: Annotated[tuple[TrustedKey, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _enough_keys(self) -> Trust:
        if len({key.public for key in self.keys}) < len(self.keys):
            raise ValueError("a key is listed twice")
        if self.needed > len(self.keys):
            raise ValueError(f"needed = {self.needed} is more than the {len(self.keys)} keys")
        return self

    @staticmethod
    def from_file(path: str | Path) -> Trust:
        """Read a trust file (TOML)."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            hint = "`fedprognos sign` prints what to write into it."
            raise ConfigError(f"cannot read the trust file: {error.strerror}", where=str(path), hint=hint) from None
        return validated(Trust, parse_toml(content, str(path)), str(path))

    def signers(self, text: bytes, model: Path) -> tuple[str, ...]:
        """Names of the trusted keys that signed a text; :class:`SignatureError` where they are too few.

        A wrong signature of a trusted key is refused, even beside enough good ones: something was altered.
        """
        try:
            from fedprognos.identity import verify
        except ModuleNotFoundError as error:
            raise MissingExtraError(error.name or "cryptography", "sign", "checking signatures") from None
        signatures = read_signatures(model)
        names, refusals = [], []
        for key in self.keys:
            if (signature := signatures.pop(key.public, None)) is None:
                continue
            if key.refusal:
                refusals.append(f"the key of {key.name} {key.refusal}")
                continue
            try:
                verify(key.public, signature, text, key.name)
            except MessageError:
                what = f"the signature of {key.name} is not of this model: it was altered, or signed as another model"
                raise SignatureError(what, where=str(model), hint=HINT) from None
            names.append(key.name)
        if len(names) < self.needed:
            if signatures:
                refusals.append(f"{len(signatures)} of its signatures are of unknown keys")
            why = "; ".join(refusals) or ("it is not signed" if not names else "the others did not sign it")
            what = f"signed by {len(names)} of {self.needed} trusted keys that are needed: {why}"
            raise SignatureError(what, where=str(model), hint=HINT)
        return tuple(names)

    def check_file(self, content: bytes, path: Path) -> tuple[str, ...]:
        """Names of the trusted keys that signed a file with this content."""
        return self.signers(file_text(content), path)


def model_text(kind: Literal["bundle", "file"], digest: str) -> bytes:
    """What is signed: a signature of a bundle cannot be shown for a file, nor for a message of a run."""
    return f"fedprognos model|{kind}|{digest}".encode()


def file_text(content: bytes) -> bytes:
    """What is signed of a single file: an ONNX model, or a personal head."""
    return model_text("file", hashlib.sha256(content).hexdigest())


def signatures_file(model: Path) -> Path:
    """Where the signatures of a model are: in a bundle's folder, or beside a file."""
    return model / SIGNATURES if model.is_dir() else model.with_name(f"{model.name}.{SIGNATURES}")


def read_signatures(model: Path) -> dict[str, str]:
    """Signatures of a model by public key; none where it is not signed."""
    path = signatures_file(model)
    if not path.is_file():
        return {}
    try:
        content = parse_json(path.read_bytes()) if path.stat().st_size <= MAX_IN_BYTES else None
    except (OSError, ValueError):
        content = None
    signatures = content.get("signatures") if isinstance(content, dict) else None
    if not isinstance(signatures, dict) or not all(isinstance(value, str) for value in signatures.values()):
        raise SignatureError("not a file of signatures", where=str(path), hint=HINT)
    return signatures


def keep_signatures(model: Path, signatures: Mapping[str, str]) -> None:
    """Add signatures, by public key, to those of a model; a key's earlier one is replaced."""
    together = {**read_signatures(model), **signatures}
    write_json(signatures_file(model), {"signatures": dict(sorted(together.items()))})


def sign_file(path: Path, identity: Identity) -> None:
    """Sign a single file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(f"cannot read: {error.strerror}", where=str(path), hint="Name a bundle or a file.") from None
    keep_signatures(path, {identity.public: identity.sign(file_text(content))})


def trust_text(keys: Iterable[tuple[str, str]], needed: int = 1) -> str:
    """A trust file (TOML) of names and public keys."""
    entries = [{"name": name, "public": public} for name, public in keys]
    return tomli_w.dumps({"needed": needed, "keys": entries})


def write_trust(path: Path, keys: Iterable[tuple[str, str]]) -> None:
    """Write a trust file."""
    write_text(path, trust_text(keys))
