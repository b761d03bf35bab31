"""Delegation tokens in a cluster: made at one broker, good at all, also after the controller was replaced."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from token_kit import ByToken

from kwire import Cluster
from kwire.client.connection import Connection
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.schema import Message
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kwire.security.client import Credentials

pytestmark = pytest.mark.timeout(90)

USERS = {"alice": "secret", "bob": "hush"}
MECHANISM = "SCRAM-SHA-256"


class TokenCredentials(Credentials):
    """A token in place of a user."""

    def __init__(self, token: Any) -> None:
        super().__init__(MECHANISM, "", "")
        self.token = token

    def new_exchange(self) -> ByToken:  # type: ignore[override]
        return ByToken(MECHANISM, self.token.token_id, self.token.hmac)


def ask(address: str, credentials: Credentials, request: Message, version: int) -> Any:
    """The answer on a connection of its own."""
    host, _, port = address.rpartition(":")
    exchange = Connection("me", {}, credentials).ask(request, version)
    with socket.create_connection((host, int(port)), 20) as connection:
        try:
            wanted = next(exchange)
            while True:
                if wanted is not None:
                    connection.sendall(wanted)
                    wanted = exchange.send(None)
                else:
                    wanted = exchange.send(connection.recv(100_000))
        except StopIteration as end:
            return end.value


def user(name: str) -> Credentials:
    return Credentials(MECHANISM, name, USERS[name])


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_token_of_one_broker_is_good_at_all(isolation: str) -> None:
    with Cluster(
        2,
        controllers=2,
        sasl="scram-sha-256",
        users=USERS,
        config={"delegation.token.secret.key": "a key that nobody learns"},
        isolation=isolation,  # type: ignore[arg-type]
    ) as cluster:
        first, second = cluster.bootstrap_servers.split(",")
        renewer = CreatableRenewers(principal_type="User", principal_name="bob")
        request = CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1)
        token = ask(first, user("alice"), request, 3)
        assert (token.error_code, token.principal_name) == (0, "alice")
        by_token = TokenCredentials(token)
        for address in (first, second):
            described = ask(address, user("bob"), DescribeDelegationTokenRequest(owners=None), 3)
            assert [each.hmac for each in described.tokens] == [token.hmac]
            assert len(ask(address, by_token, MetadataRequest(topics=[]), 9).brokers) == 2
            refusal = ask(address, by_token, request, 3)
            assert refusal.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        cluster.active_controller().kill()
        renewal = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=60_000)
        renewed = ask(second, user("bob"), renewal, 2)
        assert renewed.error_code == 0 and renewed.expiry_timestamp_ms < token.expiry_timestamp_ms
        for address in (first, second):
            (found,) = ask(
                address, user("alice"), DescribeDelegationTokenRequest(owners=None), 3
            ).tokens
            assert found.expiry_timestamp == renewed.expiry_timestamp_ms
        token.hmac = b"wrong"
        with pytest.raises(KafkaError) as refused:
            ask(second, TokenCredentials(token), MetadataRequest(topics=[]), 9)
        assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
