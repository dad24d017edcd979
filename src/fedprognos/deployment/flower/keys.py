"""Keys and certificates: an authority, the coordinator's certificate, one key pair a site."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
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

from fedprognos.errors import ConfigError, OutputError

AUTHORITY_IN_DAYS, SERVER_IN_DAYS = 3650, 365


def private_folder(path: Path) -> Path:
    """Make a folder that only its owner can look into."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on; what was there is replaced."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write: {error.strerror}", where=str(path)) from error


def make_authority(folder: Path, now: datetime | None = None) -> x509.Certificate:
    """A certificate authority of this federation's own: `ca.key` and `ca.crt`."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedprognos federation authority")])
    start = now or datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - timedelta(minutes=5))
        .not_valid_after(start + timedelta(days=AUTHORITY_IN_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    write_private(folder / "ca.key", _pem(key))
    write_private(folder / "ca.crt", certificate.public_bytes(Encoding.PEM))
    return certificate


def make_server_certificate(authority: Path, folder: Path, host: str, now: datetime | None = None) -> x509.Certificate:
    """The coordinator's `server.key` and `server.crt`, good for its host's name and for this machine."""
    issuer = read_certificate(authority / "ca.crt")
    signer = load_pem_private_key(_read(authority / "ca.key"), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ConfigError("not a key of this program's making", where=str(authority / "ca.key"))
    key = ec.generate_private_key(ec.SECP384R1())
    start = now or datetime.now(UTC)
    names = x509.SubjectAlternativeName(_names([host, "localhost", "127.0.0.1", "::1"]))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedprognos coordinator")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - timedelta(minutes=5))
        .not_valid_after(min(start + timedelta(days=SERVER_IN_DAYS), issuer.not_valid_after_utc))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    write_private(folder / "server.key", _pem(key))
    write_private(folder / "server.crt", certificate.public_bytes(Encoding.PEM))
    return certificate


def make_site_keys(folder: Path) -> bytes:
    """A site's `site.key` and `site.pub`; gives the public one."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_private(folder / "site.key", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    write_private(folder / "site.pub", public)
    return public


def make_secret(path: Path) -> None:
    """A random secret between processes of one machine."""
    write_private(path, secrets.token_hex(32).encode())


def read_public_key(path: Path) -> bytes:
    """A site's public key in the encoding Flower knows nodes by."""
    try:
        key = load_ssh_public_key(_read(path))
    except ValueError as error:
        raise ConfigError(f"not a public key: {error}", where=str(path), hint="take site.pub of the site") from None
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate from a PEM file."""
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise ConfigError(f"not a certificate: {error}", where=str(path)) from None


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


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
