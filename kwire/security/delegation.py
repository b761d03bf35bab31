"""Delegation tokens as a log-in by SCRAM needs them: each is a user whose password is its HMAC.

Answers to org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache and to
kafka.server.DelegationTokenManager.prepareScramCredentials. A broker makes the credential of a token at the first
log-in by it, of its own key: neither HMACs nor credentials travel.
"""

from __future__ import annotations

from kwire.replication.config.tokens import token_secret
from kwire.replication.core.delegation_tokens import Token, password_of
from kwire.replication.core.metadata import TOKEN_RESOURCE
from kwire.replication.core.scram_credentials import Credential, new_salt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from kwire.replication.config.broker_config import BrokerConfig

_KEPT = 1000
"""Credentials that are kept at most: one takes some milliseconds."""


class DelegationTokens:
    """The tokens of a node whose clients log in. Secrets: not shown."""

    __slots__ = ("_credentials", "_known", "_random", "_secret")

    def __init__(
        self,
        config: BrokerConfig,
        known: Callable[[int, str], Mapping[str, str]],
        random: Random,
    ) -> None:
        """`known`: the texts of what the controller has sent, by resource type and name. `random`: of salts."""
        self._secret = token_secret(config)
        self._known = known
        self._random = random
        self._credentials: dict[tuple[str, str], Credential] = {}

    def of(self, mechanism: str, token_id: str) -> tuple[Credential, str, int] | None:
        """The credential of a token, the name of its owner, and when it expires (Unix ms); None: no such token.

        As in Kafka one that is over and not yet deleted has a credential, too: its session ends as it begins."""
        token = Token.from_texts(token_id, self._known(TOKEN_RESOURCE, token_id))
        if token is None or self._secret is None:
            return None
        key = mechanism, token_id
        credential = self._credentials.get(key)
        if credential is None:
            if len(self._credentials) >= _KEPT:
                self._credentials.clear()
            password = password_of(self._secret, token_id)
            credential = Credential.of_password(mechanism, password, new_salt(self._random))
            self._credentials[key] = credential
        return credential, token.owner.partition(":")[2], token.expires_ms
