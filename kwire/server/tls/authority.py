"""A certificate authority, and certificates of brokers and of a client, for clusters that are started with `--tls`.

They are made with the library cryptography, in a directory: PEM, PKCS12 and JKS beside each other, and what Java's
clients and librdkafka are configured with. The authority is kept, so that clients trust a later start, too; the rest
is made at each start, as names and addresses may have changed. Private keys are not enciphered, or with a password
that everybody knows: what protects them is the mode of their files, 0600.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_EX, flock
from ipaddress import ip_address

from kwire.security.certificates import PASSWORD
from kwire.security.client import client_config
from kwire.server.errors import NodeError, SettingsError
from kwire.server.tls import jks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from kwire.security.certificates import Certificates
    from kwire.security.client import Credentials

    Key = Any
    """A private key of cryptography's, whose types are there only where it is installed."""
    Certificate = Any

_ALWAYS = ("localhost", "127.0.0.1", "::1")
_DAYS = 3650
_PUBLIC = 0o644
_EARLIER = timedelta(days=1)  # clocks of other machines
_MISSING = "needs the library cryptography, which is not installed: pip install 'kwire[tls]'"


def check_library(option: str) -> None:
    """SettingsError when the library is missing. `option`: what needs it."""
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import (
            serialize_java_truststore,  # noqa: F401
        )
    except ImportError:
        raise SettingsError(f"{option} {_MISSING}") from None


def make_certificates(
    found: Certificates,
    brokers: Mapping[int, Iterable[str]],
    credentials: Credentials | None,
    option: str = "--tls",
) -> None:
    """Make all files in their directory, which is created. `brokers`: names and addresses of each. `credentials`:
    clients log in. `option`: what asks for it. SettingsError without the library, NodeError."""
    check_library(option)
    try:
        os.makedirs(found.directory, exist_ok=True)
        with _locked(found.directory):
            _make(found, brokers, credentials)
    except OSError as error:
        name = error.filename or found.directory
        raise NodeError(f"certificates of {option}: {name}: {error.strerror}") from None


def _make(
    found: Certificates, brokers: Mapping[int, Iterable[str]], credentials: Credentials | None
) -> None:
    authority = _Authority(found)
    for broker_id, names in brokers.items():
        authority.issue(found.broker(broker_id), f"broker-{broker_id}", [*_ALWAYS, *names])
    authority.issue(found.client, "client", [])
    for kind, path in (
        ("java", found.java_properties),
        ("librdkafka", found.librdkafka_properties),
    ):
        values = client_config(kind, "", credentials, found)
        del values["bootstrap.servers"]  # ports are not known yet, and options have it
        escaped = _escaped if kind == "java" else str
        lines = (f"{key}={escaped(value)}\n" for key, value in values.items())
        _write(path, "".join(lines).encode())


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """One process at a time: containers of a cluster share the directory, and the authority in it. OSError."""
    descriptor = os.open(os.path.join(directory, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _Authority:
    """The authority in a directory: read, or made."""

    def __init__(self, files: Certificates) -> None:
        self._now = datetime.now(UTC)
        kept = _kept(files, self._now)
        self._key, self._certificate = kept or self._made(files)
        certificate = _der(self._certificate)
        now_ms = int(self._now.timestamp() * 1000)
        _write(f"{files.truststore}.p12", _trust_p12(self._certificate), _PUBLIC)
        store = jks.Store([], [certificate])
        _write(f"{files.truststore}.jks", jks.write(store, PASSWORD, b"", now_ms), _PUBLIC)

    def _made(self, files: Certificates) -> tuple[Key, Certificate]:
        from cryptography.x509 import KeyUsage

        key = _new_key()
        name = _name(f"kwire CA {os.urandom(4).hex()}")  # several are told apart in a trust store
        usage = KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = self._signed(name, name, key, key, True, usage)
        _write(files.ca_key, _key_pem(key))
        _write(files.ca, _pem(certificate), _PUBLIC)
        return key, certificate

    def issue(self, base: str, name: str, hosts: list[str]) -> None:
        """A key with its certificate in all formats, at `base` and an ending."""
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
        from cryptography.hazmat.primitives.serialization.pkcs12 import (
            serialize_key_and_certificates,
        )
        from cryptography.x509 import KeyUsage

        key = _new_key()
        usage = KeyUsage(True, False, False, False, False, False, False, False, False)
        issuer = self._certificate.subject
        certificate = self._signed(_name(name), issuer, key, self._key, False, usage, hosts)
        chain = [certificate, self._certificate]
        _write(f"{base}.pem", _key_pem(key) + b"".join(map(_pem, chain)))
        cipher = BestAvailableEncryption(PASSWORD.encode())
        p12 = serialize_key_and_certificates(
            name.encode(), key, certificate, [self._certificate], cipher
        )
        _write(f"{base}.p12", p12)
        store = jks.Store([(_key_der(key), [_der(each) for each in chain])])
        now_ms = int(self._now.timestamp() * 1000)
        _write(f"{base}.jks", jks.write(store, PASSWORD, os.urandom(20), now_ms))

    def _signed(
        self,
        subject: Any,
        issuer: Any,
        key: Key,
        signer: Key,
        is_authority: bool,
        usage: Any,
        hosts: Iterable[str] = (),
    ) -> Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.x509.oid import ExtendedKeyUsageOID

        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _EARLIER)
            .not_valid_after(self._now + timedelta(days=_DAYS))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
            )
        )
        if not is_authority:
            purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
        names = [_general_name(each) for each in dict.fromkeys(hosts)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        return builder.sign(signer, SHA256())


def _kept(files: Certificates, now: datetime) -> tuple[Key, Certificate] | None:
    """The authority of an earlier start; None: never made, or its time is over. NodeError when it cannot be read."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificate

    try:
        with open(files.ca_key, "rb") as file:
            key = load_pem_private_key(file.read(), None)
        with open(files.ca, "rb") as file:
            certificate = load_pem_x509_certificate(file.read())
    except FileNotFoundError:
        return None
    except ValueError:
        raise NodeError(
            f"{files.ca_key}, {files.ca}: no certificate and key; delete them"
        ) from None
    if certificate.public_key() != key.public_key():
        raise NodeError(f"{files.ca_key} is not the key of {files.ca}; delete both")
    if certificate.not_valid_after_utc < now + _EARLIER:
        return None
    return key, certificate


def _new_key() -> Key:
    """Of a curve that every client knows, made in a tenth of a millisecond; RSA's take a tenth of a second."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(text: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text if text.isascii() else text.encode("idna").decode())


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    found: bytes = certificate.public_bytes(Encoding.PEM)
    return found


def _der(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    found: bytes = certificate.public_bytes(Encoding.DER)
    return found


def _key_pem(key: Key) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    found: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return found


def _key_der(key: Key) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    found: bytes = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return found


def _trust_p12(certificate: Certificate) -> bytes:
    """A store that Java takes for one of certificates to be trusted: it looks for an attribute of its own."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import (
        PKCS12Certificate,
        serialize_java_truststore,
    )

    cipher = BestAvailableEncryption(PASSWORD.encode())
    found: bytes = serialize_java_truststore([PKCS12Certificate(certificate, b"ca")], cipher)
    return found


def _escaped(value: str) -> str:
    """A value of a properties file."""
    return value.replace("\\", "\\\\")


def _write(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write a file, whole or not at all; by default its owner alone can read it."""
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
    os.replace(temporary, path)
