"""Stores of Java's type JKS, read and written: certificates of others, private keys with their chains.

Answers to sun.security.provider.{JavaKeyStore,KeyProtector}. A store's end is a digest of its password and all before
it; a private key is XORed with a stream of digests of its password. Neither is worth much: what protects a key is
the mode of its file. No library is needed.
"""

from __future__ import annotations

import hashlib
import hmac
from struct import Struct, error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = b"\xfe\xed\xfe\xed"
_WHITENER = b"Mighty Aphrodite"
_KEY, _CERTIFICATE = 1, 2
_DIGEST_BYTES = 20  # so many are the salt, too
# 1.3.6.1.4.1.42.2.17.1.1, Sun's own algorithm, and NULL: an AlgorithmIdentifier.
_ALGORITHM = bytes.fromhex("300e060a2b060104012a021101010500")
_SHORT, _INT, _LONG = Struct(">H"), Struct(">I"), Struct(">Q")


class Store:
    """The contents of a store, in DER. `keys`: each a private key (PKCS8) and its certificates, its own first."""

    __slots__ = ("certificates", "keys")

    def __init__(
        self,
        keys: Sequence[tuple[bytes, list[bytes]]] = (),
        certificates: Sequence[bytes] = (),
    ) -> None:
        self.keys = list(keys)
        self.certificates = list(certificates)


def read(data: bytes, password: str, key_password: str | None) -> Store:
    """The contents of a store. An empty `password`: the digest is not compared, as in Java. `key_password` None:
    private keys are left out. ValueError."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password and not hmac.compare_digest(_digest(password, body), digest):
        raise ValueError("the password is wrong, or the store is damaged")
    store = Store()
    reader = _Reader(body)
    try:
        _, version, count = reader.number(_INT), reader.number(_INT), reader.number(_INT)
        if version not in (1, 2):
            raise ValueError(f"a store of version {version} is not known")
        for _ in range(count):
            kind = reader.number(_INT)
            reader.block(_SHORT)  # the alias
            reader.number(_LONG)  # since when it is there
            if kind == _KEY:
                sealed = reader.block(_INT)
                chain = [_certificate(reader, version) for _ in range(reader.number(_INT))]
                if key_password is not None:
                    store.keys.append((_opened(sealed, key_password), chain))
            elif kind == _CERTIFICATE:
                store.certificates.append(_certificate(reader, version))
            else:
                raise ValueError(f"an entry of kind {kind} is not known")
    except error:
        raise ValueError("the store is cut off") from None
    return store


def write(store: Store, password: str, salt: bytes, now_ms: int) -> bytes:
    """A store of version 2. `salt`: 20 random bytes, of its private keys."""
    parts = [MAGIC, _INT.pack(2), _INT.pack(len(store.keys) + len(store.certificates))]
    for number, (key, chain) in enumerate(store.keys):
        parts += _entry(_KEY, f"key{number or ''}", now_ms)
        sealed = _sealed(key, password, salt)
        parts += [_INT.pack(len(sealed)), sealed, _INT.pack(len(chain))]
        for each in chain:
            parts += _written(each)
    for number, each in enumerate(store.certificates):
        parts += _entry(_CERTIFICATE, f"ca{number or ''}", now_ms)
        parts += _written(each)
    body = b"".join(parts)
    return body + _digest(password, body)


class _Reader:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, kind: Struct) -> int:
        (value,) = kind.unpack_from(self._data, self._position)
        self._position += kind.size
        return int(value)

    def block(self, kind: Struct) -> bytes:
        size = self.number(kind)
        found = self._data[self._position : self._position + size]
        if len(found) < size:
            raise error
        self._position += size
        return found


def _certificate(reader: _Reader, version: int) -> bytes:
    if version == 2:
        kind = reader.block(_SHORT)
        if kind != b"X.509":
            raise ValueError("a certificate that is not X.509")
    return reader.block(_INT)


def _entry(kind: int, alias: str, now_ms: int) -> list[bytes]:
    name = alias.encode()
    return [_INT.pack(kind), _SHORT.pack(len(name)), name, _LONG.pack(now_ms)]


def _written(certificate: bytes) -> list[bytes]:
    return [b"\0\5X.509", _INT.pack(len(certificate)), certificate]


def _digest(password: str, body: bytes) -> bytes:
    return hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body).digest()


def _stream(password: bytes, salt: bytes, size: int) -> bytes:
    found, last = bytearray(), salt
    while len(found) < size:
        last = hashlib.sha1(password + last).digest()
        found += last
    return bytes(found[:size])


def _xor(one: bytes, other: bytes) -> bytes:
    size = len(one)
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(size, "big")


def _sealed(key: bytes, password: str, salt: bytes) -> bytes:
    """An EncryptedPrivateKeyInfo of a private key."""
    secret = password.encode("utf-16-be")
    cipher = salt + _xor(key, _stream(secret, salt, len(key))) + hashlib.sha1(secret + key).digest()
    return _der(0x30, _ALGORITHM + _der(0x04, cipher))


def _opened(sealed: bytes, password: str) -> bytes:
    """The private key in an EncryptedPrivateKeyInfo. ValueError."""
    inner = _contents(0x30, sealed)
    if not inner.startswith(_ALGORITHM):
        raise ValueError("a private key is enciphered in a way that is not Java's own of JKS")
    cipher = _contents(0x04, inner[len(_ALGORITHM) :])
    salt, digest = cipher[:_DIGEST_BYTES], cipher[-_DIGEST_BYTES:]
    middle = cipher[_DIGEST_BYTES:-_DIGEST_BYTES]
    secret = password.encode("utf-16-be")
    key = _xor(middle, _stream(secret, salt, len(middle)))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), digest):
        raise ValueError("the password of the private key is wrong")
    return key


def _der(tag: int, contents: bytes) -> bytes:
    size = len(contents)
    if size < 0x80:
        return bytes((tag, size)) + contents
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + contents


def _contents(tag: int, data: bytes) -> bytes:
    """The contents of a DER element. ValueError."""
    if len(data) < 2 or data[0] != tag:
        raise ValueError("a private key is damaged")
    size, start = data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    return data[start : start + size]
