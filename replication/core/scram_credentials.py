"""SCRAM's credentials (RFC 5802): what a server keeps of a password, in Kafka's notation.

Answers to org.apache.kafka.common.security.scram.internals.{ScramFormatter,ScramCredentialUtils,ScramMechanism}.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's numbers of the mechanisms in AlterUserScramCredentials (ScramMechanism)."""
NAMES = {number: name for name, number in NUMBERS.items()}
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SALT_BYTES = 20


class Credential:
    """What a server keeps of a password: nobody can log in with it."""

    __slots__ = ("iterations", "salt", "server_key", "stored_key")

    def __init__(self, salt: bytes, stored_key: bytes, server_key: bytes, iterations: int) -> None:
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key
        self.iterations = iterations

    @classmethod
    def of_salted(cls, mechanism: str, salt: bytes, salted: bytes, iterations: int) -> Credential:
        """The credential of a salted password, as AlterUserScramCredentials brings it."""
        kind = HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", kind)
        stored_key = hashlib.new(kind, client_key).digest()
        return cls(salt, stored_key, hmac.digest(salted, b"Server Key", kind), iterations)

    @classmethod
    def of_password(
        cls, mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> Credential:
        salted = salted_password(mechanism, password, salt, iterations)
        return cls.of_salted(mechanism, salt, salted, iterations)

    def is_of(self, mechanism: str, password: str) -> bool:
        """Whether it was made from this password."""
        other = self.of_password(mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(other.stored_key, self.stored_key)

    @classmethod
    def from_text(cls, text: str) -> Credential:
        """From the text that Kafka keeps (ScramCredentialUtils). ValueError."""
        found = dict(item.split("=", 1) for item in text.split(","))
        try:
            return cls(
                b64decode(found["salt"]),
                b64decode(found["stored_key"]),
                b64decode(found["server_key"]),
                int(found["iterations"]),
            )
        except KeyError as error:
            raise ValueError(f"a SCRAM credential without {error}") from None

    def to_text(self) -> str:
        """The text that Kafka keeps."""
        texts = (b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key))
        return "salt={},stored_key={},server_key={},iterations={}".format(*texts, self.iterations)

    def __repr__(self) -> str:
        return "Credential([hidden])"


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's Hi(): takes some milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def new_salt(random: Random) -> bytes:
    return random.randbytes(_SALT_BYTES)
