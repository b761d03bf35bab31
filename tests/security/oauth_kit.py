"""Tokens, and brokers without sockets that take them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from login_kit import Client, Guarded

NOW_S = 1_700_000_000
"""The brokers' time of day."""
JAAS = "listener.name.sasl.oauthbearer.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
INVALID = b'{"status":"invalid_token"}'


def guarded(options: str = "", **keys: str) -> Guarded:
    """A broker whose listener takes tokens, unsecured ones by these JAAS options."""
    own = {JAAS: f"{MODULE} {options};"}
    return Guarded(
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", **own, **keys
    )


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b64encode(data).decode().rstrip("=")


def unsecured(claims: Any = None, header: Any = None, /, **more: Any) -> str:
    usual = {"sub": "alice", "exp": NOW_S + 100, "iat": NOW_S - 10, **more}
    return f"{part(header or {'alg': 'none'})}.{part(usual if claims is None else claims)}."


def bearer(token: str, more: str = "", authzid: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {token}\x01{more}\x01".encode()


def shaken(broker: Guarded, version: int = 1) -> Client:
    client = broker.client()
    assert client.handshake("OAUTHBEARER", version).error_code == 0
    return client
