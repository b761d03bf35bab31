"""One exchange of a SASL mechanism, and PLAIN (RFC 4616).

Answers to javax.security.sasl.SaslServer and
org.apache.kafka.common.security.plain.internals.{PlainSaslServer,PlainServerCallbackHandler}.
"""

from __future__ import annotations

import hmac

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
_SHOWN_CHARACTERS = 40


class SaslFailure(Exception):
    """A token that ends the exchange. Its text is for the log; `message`: for the client, None: the
    general one, which does not say whether the user exists."""

    message: str | None = None

    @classmethod
    def said(cls, message: str, text: str | None = None) -> SaslFailure:
        """A failure whose `message` the client is given."""
        failure = cls(text or message)
        failure.message = message
        return failure


class Exchange:
    """One half of an exchange of tokens. `user`: who has logged in, None until it is complete. `expires_ms`: when what
    the user has shown expires, in ms since the epoch; None: never. `by_token`: that is a delegation token. `refused`:
    why a token was refused after which another may follow."""

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        self.user: str | None = None
        self.expires_ms: int | None = None
        self.by_token = False
        self.refused: str | None = None

    def evaluate(self, token: bytes) -> bytes | None:
        """The answer to a token of the other side. SaslFailure ends the exchange."""
        raise NotImplementedError


class PlainServer(Exchange):
    """PLAIN: the only token has the user's name and the password."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """`users`: their passwords, by name."""
        super().__init__(PLAIN)
        self._users = users

    def evaluate(self, token: bytes) -> bytes:
        parts = token.decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            count = min(len(parts), 4)  # Kafka stops counting there
            raise SaslFailure.said(f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}")
        authzid, name, password = parts
        if not name:
            raise SaslFailure.said("Authentication failed: username not specified")
        if not password:
            raise SaslFailure.said("Authentication failed: password not specified")
        expected = self._users.get(name)
        # Compared in any case: the time must not tell whether there is such a user.
        same = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not same:
            reason = "there is no user" if expected is None else "wrong password of user"
            raise SaslFailure.said(
                "Authentication failed: Invalid username or password", f"{reason} {shown(name)}"
            )
        if authzid and authzid != name:
            raise SaslFailure.said(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = name
        return b""


class PlainClient(Exchange):
    """The client's half of PLAIN."""

    def __init__(self, name: str, password: str) -> None:
        super().__init__(PLAIN)
        self._name = name
        self._token = f"\0{name}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def evaluate(self, token: bytes) -> None:
        self.user = self._name


def shown(name: str) -> str:
    """A user's name as a log shows it: whoever failed to log in may have sent anything."""
    return repr(name[:_SHOWN_CHARACTERS])
