"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802) as Kafka speaks them: both halves of the exchange.

Answers to ScramMessages, ScramSaslServer and ScramSaslClient of org.apache.kafka.common.security.scram.internals.
Left out: channel binding (as in Kafka). A client whose first message has `tokenauth=true` shows a delegation token: its
name is the token's id, its password the token's HMAC in base64, and who comes in is the token's owner.

Invariants: a password is not kept, and no text of a `SaslFailure` has a secret; keys are compared in
constant time; a server's nonce is new for each exchange.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode

from kwire.replication.core.scram_credentials import (
    HASHES,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Credential,
    salted_password,
)
from kwire.security.mechanism import Exchange, SaslFailure, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_NONCE_BYTES = 18

_SASLNAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASLNAME}))?,(?:m={_VALUE},)?"
    rf"(?P<bare>n=(?P<name>{_SASLNAME}),r=(?P<nonce>{_PRINTABLE})(?P<more>{_EXTENSIONS}))"
)
_FINAL = re.compile(
    rf"(?P<without>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<count>[0-9]{{1,9}}){_EXTENSIONS}"
)


class ScramServer(Exchange):
    """The server's half: two tokens of the client, each with an answer."""

    def __init__(
        self,
        mechanism: str,
        credential_of: Callable[[str], Credential | None],
        random: Random,
        token_of: Callable[[str], tuple[Credential, str, int] | None] = lambda _: None,
    ) -> None:
        """`credential_of`: of a user, None if unknown. `random`: for the nonce. `token_of`: of the id of a
        delegation token: its credential, its owner's name, when it expires (Unix ms)."""
        super().__init__(mechanism)
        self._credential_of = credential_of
        self._token_of = token_of
        self._own_nonce = b64encode(random.randbytes(_NONCE_BYTES)).decode()
        self._credential: Credential | None = None
        self._bare = self._first = self._nonce = ""
        self._name: str | None = None
        self._owner: tuple[str, int] | None = None  # of a token, and when it expires

    def evaluate(self, token: bytes) -> bytes:
        if self._name is None:
            return self._evaluate_first(token)
        return self._evaluate_final(token, self._name)

    def _evaluate_first(self, token: bytes) -> bytes:
        found = _FIRST.fullmatch(_text(token))
        if found is None:
            raise SaslFailure("the client's first message is malformed")
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        credential = self._sought(name, found["more"])
        authzid = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        if authzid and authzid != name:
            raise SaslFailure.said(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < MIN_ITERATIONS:
            raise SaslFailure(f"{credential.iterations} iterations are fewer than {MIN_ITERATIONS}")
        self._credential, self._name, self._bare = credential, name, found["bare"]
        self._nonce = found["nonce"] + self._own_nonce
        salt = b64encode(credential.salt).decode()
        self._first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._first.encode()

    def _sought(self, name: str, extensions: str) -> Credential:
        """Of the user or the token of that name. SaslFailure."""
        if _asks_for_token(extensions):
            token = self._token_of(name)
            if token is None:
                raise SaslFailure(f"there is no delegation token {shown(name)}")
            self._owner = token[1:]
            return token[0]
        credential = self._credential_of(name)
        if credential is None:
            raise SaslFailure(f"there is no user {shown(name)} for {self.mechanism}")
        return credential

    def _evaluate_final(self, token: bytes, name: str) -> bytes:
        credential, self._credential = self._credential, None  # one try
        assert credential is not None
        found = _FINAL.fullmatch(_text(token))
        if found is None:
            raise SaslFailure("the client's final message is malformed")
        # As Kafka 3.9, which looks at the server's part: librdkafka before 2.6.1 repeats its own in front of both.
        own = self._own_nonce
        if not hmac.compare_digest(found["nonce"][-len(own) :].encode(), own.encode()):
            raise SaslFailure("Invalid client nonce in the final client message.")
        kind = HASHES[self.mechanism]
        signed = f"{self._bare},{self._first},{found['without']}".encode()
        signature = hmac.digest(credential.stored_key, signed, kind)
        proof = b64decode(found["proof"])
        client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=False))
        computed = hashlib.new(kind, client_key).digest()
        if len(proof) != len(signature) or not hmac.compare_digest(computed, credential.stored_key):
            of = "user" if self._owner is None else "delegation token"
            raise SaslFailure(f"wrong password of {of} {shown(name)}")
        self.user = name
        if self._owner is not None:
            self.by_token, (self.user, self.expires_ms) = True, self._owner
        return b"v=" + b64encode(hmac.digest(credential.server_key, signed, kind))


class ScramClient(Exchange):
    """The client's half: its first message, its final one, then the check of the server's."""

    def __init__(self, mechanism: str, name: str, password: str, random: Random) -> None:
        super().__init__(mechanism)
        self._password: str | None = password
        self._nonce = b64encode(random.randbytes(_NONCE_BYTES)).decode()
        saslname = name.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={saslname},r={self._nonce}"
        self._signature: bytes | None = None
        self._name = name

    def first(self) -> bytes:
        return b"n,," + self._bare.encode()

    def evaluate(self, token: bytes) -> bytes | None:
        """The answer to a token of the server; None: the exchange is over. SaslFailure."""
        if self._signature is not None:
            if not hmac.compare_digest(token, b"v=" + b64encode(self._signature)):
                raise SaslFailure("the server does not know the password: it is another server")
            self.user = self._name
            return None
        found = _SERVER_FIRST.fullmatch(_text(token))
        if found is None or not found["nonce"].startswith(self._nonce):
            raise SaslFailure("the server's first message is malformed")
        count, password = int(found["count"]), self._password
        if not MIN_ITERATIONS <= count <= 100 * MAX_ITERATIONS:
            raise SaslFailure(f"the server asks for {count} iterations")
        assert password is not None
        self._password = None
        salted = salted_password(self.mechanism, password, b64decode(found["salt"]), count)
        kind = HASHES[self.mechanism]
        client_key = hmac.digest(salted, b"Client Key", kind)
        without = f"c={b64encode(b'n,,').decode()},r={found['nonce']}"
        signed = f"{self._bare},{_text(token)},{without}".encode()
        signature = hmac.digest(hashlib.new(kind, client_key).digest(), signed, kind)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", kind), signed, kind)
        return f"{without},p={b64encode(proof).decode()}".encode()


def _asks_for_token(extensions: str) -> bool:
    """Whether a client shows a delegation token (ScramExtensions.tokenAuthenticated)."""
    found = dict(each.split("=", 1) for each in extensions.split(",") if each)
    return found.get("tokenauth", "").lower() == "true"


def _text(token: bytes) -> str:
    """A message; what is no ASCII matches no pattern."""
    return token.decode("latin-1")
