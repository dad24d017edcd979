"""Keys and certificates of connections: an authority, the coordinator's certificate, a key pair for each site.

Apart from these, coordinator and sites each have an identity, which signs (:mod:`fedprognos.identity`).
"""

from __future__ import annotations

import ipaddress
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedprognos.errors import ConfigError
from fedprognos.files import write_private

AUTHORITY_IN_DAYS, SERVER_IN_DAYS = 3650, 365
UNUSED = (
    *("content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "encipher_only", "decipher_only"),
)
"""Purposes that certificates here exclude."""


def private_folder(path: Path) -> Path:
    """Make a folder that only its owner can read."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def make_authority(folder: Path) -> x509.Certificate:
    """Make the certificate authority of this federation: `ca.key` and `ca.crt`."""
    return _issue(folder / "ca", "fedprognos federation authority", AUTHORITY_IN_DAYS)


def make_server_certificate(authority: Path, folder: Path, host: str) -> x509.Certificate:
    """Make the coordinator's `server.key` and `server.crt`, valid for its host name and for this machine."""
    issuer = read_certificate(authority / "ca.crt")
    signer = load_pem_private_key(_read(authority / "ca.key"), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ConfigError(
            "not a key that `deploy init` made", where=str(authority / "ca.key"), hint="restore it from a backup"
        )
    hosts = dict.fromkeys([host, "localhost", "127.0.0.1", "::1"])
    return _issue(
        folder / "server",
        "fedprognos coordinator",
        min(SERVER_IN_DAYS, days_left(issuer)),
        (issuer.subject, signer),
        x509.SubjectAlternativeName([_general_name(name) for name in hosts]),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
    )


def make_site_keys(folder: Path) -> bytes:
    """Make a site's `site.key` and `site.pub`; return the public key."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_private(folder / "site.key", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    write_private(folder / "site.pub", public)
    return public


def make_secret(path: Path) -> None:
    """Make a random secret that processes on one machine share."""
    write_private(path, secrets.token_hex(32).encode())


def read_public_key(path: Path) -> bytes:
    """A site's public key as PEM."""
    try:
        key = load_ssh_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"not a public key: {error}", where=str(path), hint="copy the site's site.pub here") from None
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate from a PEM file."""
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise ConfigError(f"not a certificate: {error}", where=str(path)) from None


def certificates(path: Path) -> bytes:
    """The content of a PEM file, once it is known to hold a certificate."""
    read_certificate(path)
    return _read(path)


def days_left(certificate: x509.Certificate, now: datetime | None = None) -> int:
    """Whole days until a certificate expires; negative afterwards."""
    return (certificate.not_valid_after_utc - (now or datetime.now(UTC))).days


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read: {error.strerror}", where=str(path), hint="`fedprognos deploy init` makes it"
        ) from error


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issue(
    path: Path,
    name: str,
    days: int,
    signed_by: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    """Make a key and its certificate at `path` with the endings .key and .crt; an authority signs its own."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = signed_by or (subject, key)
    is_authority, now = signed_by is None, datetime.now(UTC)
    purposes = {**dict.fromkeys(UNUSED, False), "key_cert_sign": is_authority, "crl_sign": is_authority}
    usage = x509.KeyUsage(digital_signature=not is_authority, **purposes)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
    )
    for extension in extensions or (x509.SubjectKeyIdentifier.from_public_key(key.public_key()),):
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(signer, hashes.SHA384())
    write_private(path.with_suffix(".key"), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_private(path.with_suffix(".crt"), certificate.public_bytes(Encoding.PEM))
    return certificate
