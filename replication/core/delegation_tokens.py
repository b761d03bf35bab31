"""Delegation tokens (KIP-48): what is known of one, as the journal has it and as the brokers get it.

Answers to org.apache.kafka.common.security.token.delegation.TokenInformation and DelegationTokenRecord. The secret part
of a token, its HMAC, is nowhere kept: whoever has the key of the cluster makes it of the token's id.
"""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_RECORD = "record"
"""The one text of a token on its way to the brokers."""


class Token(NamedTuple):
    """A token. `owner`, `requester`, `renewers`: principals, "User:alice". `issued_ms`, `max_ms` (it cannot be renewed
    beyond that), `expires_ms`: Unix milliseconds."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def is_over(self, wall_ms: int) -> bool:
        return self.max_ms < wall_ms or self.expires_ms < wall_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether that is its owner or one of its renewers. Who has asked for it for somebody else is neither."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether that may see it: also who has asked for it (TokenInformation.ownerOrRenewer)."""
        return principal == self.requester or self.may_be_renewed_by(principal)

    @classmethod
    def from_value(cls, token_id: str, value: Mapping[str, Any]) -> Token:
        """Of the value of a record. KeyError."""
        return cls(
            token_id,
            value["owner"],
            value["requester"],
            tuple(value["renewers"]),
            value["issueTimestamp"],
            value["maxTimestamp"],
            value["expirationTimestamp"],
        )

    def to_value(self) -> dict[str, Any]:
        """The value of its record: the fields of Kafka's."""
        return {
            "owner": self.owner,
            "requester": self.requester,
            "renewers": list(self.renewers),
            "issueTimestamp": self.issued_ms,
            "maxTimestamp": self.max_ms,
            "expirationTimestamp": self.expires_ms,
        }

    @classmethod
    def from_texts(cls, token_id: str, texts: Mapping[str, str]) -> Token | None:
        """Of what a broker has of TOKEN_RESOURCE; None: there is no such token."""
        text = texts.get(_RECORD)
        return None if text is None else cls.from_value(token_id, json.loads(text))


def texts_of(value: Mapping[str, Any] | None) -> dict[str, str]:
    """The value of a record, as brokers get it; None: the token is deleted."""
    return {} if value is None else {_RECORD: json.dumps(value)}


def hmac_of(secret: bytes, token_id: str) -> bytes:
    """The secret part of a token (DelegationTokenManager.createHmac): 64 bytes."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def password_of(secret: bytes, token_id: str) -> str:
    """What a client that has the token shows as its password."""
    return b64encode(hmac_of(secret, token_id)).decode()
