"""Certificates for the tests of TLS: an authority, and what it signs for a server on this machine or for a client."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class CertificateAuthority:
    """Writes PEM files into a folder; `ca` is its own certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        certificate = _builder(self._name, self._name, self._key.public_key())
        self._own = certificate.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(
            self._key, hashes.SHA256()
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, lifetime: timedelta = timedelta(days=1), hosts: tuple[str, ...] = ("localhost",)
    ) -> tuple[Path, Path]:
        """Sign a certificate for 127.0.0.1 and `hosts`; returns the files of the certificate and of its key.

        With a negative `lifetime` it has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        addresses = x509.SubjectAlternativeName(
            [*map(x509.DNSName, hosts), *([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))] if "localhost" in hosts else [])]
        )
        builder = _builder(_name(name), self._name, key.public_key(), lifetime).add_extension(addresses, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        files = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta = timedelta(days=1)
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + lifetime)
    )
