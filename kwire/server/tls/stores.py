"""Key stores and trust stores as PEM, which is what Python's ssl reads: of types PKCS12 and JKS.

Answers to org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.FileBasedStore and to Java's KeyStore, which
reads either format under both names (keystore.type.compat). PKCS12 takes the library cryptography.
"""

from __future__ import annotations

from base64 import encodebytes

from kwire.server.tls import jks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

TYPES = ("JKS", "PKCS12", "PEM")
MISSING = "the library cryptography is not installed: pip install 'kwire[tls]'"


class NoLibraryError(Exception):
    """The library cryptography is missing. The text says what to install."""

    def __init__(self) -> None:
        super().__init__(MISSING)


def own_pem(data: bytes, password: str, key_password: str) -> str:
    """The first private key of a store and its certificates, in PEM, not enciphered. ValueError with what is wrong,
    NoLibraryError."""
    store = _contents(data, password, key_password or password)
    if not store.keys:
        raise ValueError("there is no private key in it")
    key, chain = store.keys[0]
    return pem("PRIVATE KEY", [key]) + pem("CERTIFICATE", chain)


def trusted_pem(data: bytes, password: str) -> str:
    """The certificates of a store, in PEM. ValueError with what is wrong, NoLibraryError."""
    if data.startswith(jks.MAGIC):
        found = jks.read(data, password, None).certificates
    else:
        store = _contents(data, password, password)
        found = store.certificates
    if not found:
        raise ValueError("there is no certificate in it")
    return pem("CERTIFICATE", found)


def pem(kind: str, items: Iterable[bytes]) -> str:
    """Texts in PEM of what is in DER."""
    return "".join(
        f"-----BEGIN {kind}-----\n{encodebytes(each).decode()}-----END {kind}-----\n"
        for each in items
    )


def _contents(data: bytes, password: str, key_password: str) -> jks.Store:
    if data.startswith(jks.MAGIC):
        return jks.read(data, password, key_password)
    if data.lstrip().startswith(b"-----BEGIN"):
        raise ValueError("it is of type PEM, which its key .type has to say")
    if not data.startswith(b"\x30"):
        raise ValueError("it is of neither type, JKS or PKCS12")
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise NoLibraryError from None
    try:
        found = load_pkcs12(data, password.encode())
    except ValueError:
        raise ValueError("the password is wrong, or the store is damaged") from None
    others = [each.certificate.public_bytes(Encoding.DER) for each in found.additional_certs]
    if found.key is None:
        return jks.Store([], others)
    if found.cert is None:
        raise ValueError("there is no certificate of the private key in it")
    key = found.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    chain, last = [], found.cert.certificate
    issuers = {each.certificate.subject: each.certificate for each in found.additional_certs}
    while True:  # in whatever order they are
        chain.append(last.public_bytes(Encoding.DER))
        issuer = issuers.pop(last.issuer, None)
        if issuer is None or issuer == last:
            return jks.Store([(key, chain)], others)
        last = issuer
