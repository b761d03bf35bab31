"""`Cluster.reset` of users and quotas: what was there at the start is there again, what a test has added is gone."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kwire import Cluster
from kwire.client import blocking
from kwire.client.admin import Admin
from kwire.client.connection import parse_address
from kwire.protocol.schemas.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

pytestmark = pytest.mark.timeout(60)
quiet = logging.getLogger("librdkafka of this test")
quiet.disabled = True


def upsertion(user: str, mechanism: ScramMechanism, secret: bytes) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), secret)


def can_log_in(config: dict[str, object]) -> bool:
    try:
        Producer({**config, "logger": quiet}).list_topics(timeout=3)
    except KafkaException:
        return False
    return True


@pytest.mark.parametrize("brokers", [1, 2])
def test_users_of_the_start_have_their_secrets_again_and_others_are_gone(brokers: int) -> None:
    with Cluster(
        brokers, sasl="scram-sha-256", users={"admin": "secret", "alice": "hush"}
    ) as cluster:
        admin = AdminClient(cluster.client_config("librdkafka", "admin"))
        changes = [
            upsertion("alice", ScramMechanism.SCRAM_SHA_256, b"other"),
            upsertion("bob", ScramMechanism.SCRAM_SHA_256, b"new"),
            upsertion("admin", ScramMechanism.SCRAM_SHA_512, b"more"),
        ]
        for change in changes:
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(10)
        alice = cluster.client_config("librdkafka", "alice")
        assert not can_log_in(alice)
        assert can_log_in({**alice, "sasl.password": "other"})
        cluster.reset(keep_clients=True)
        found = admin.describe_user_scram_credentials().result(10)
        mechanisms = {
            user: [each.mechanism for each in it.scram_credential_infos]
            for user, it in found.items()
        }
        once = [ScramMechanism.SCRAM_SHA_256]
        assert mechanisms == {"admin": once, "alice": once}
        assert can_log_in(alice)
        assert not can_log_in({**alice, "sasl.password": "other"})


def test_quotas_are_gone() -> None:
    def set_quotas(admin: Admin) -> Generator[Any, Any, list[int]]:
        entries = [
            AlterClientQuotasRequestEntryData(
                entity=[EntityData(entity_type=kind, entity_name=name)],
                ops=[OpData(key=key, value=1000.0)],
            )
            for kind, name, key in (
                ("user", "alice", "producer_byte_rate"),
                ("user", None, "consumer_byte_rate"),
                ("client-id", "x", "request_percentage"),
                ("ip", "10.0.0.1", "connection_creation_rate"),
            )
        ]
        response = yield from admin.ask_any(AlterClientQuotasRequest(entries=entries))
        return [each.error_code for each in response.entries]

    def quotas(admin: Admin) -> Generator[Any, Any, int]:
        response = yield from admin.ask_any(DescribeClientQuotasRequest())
        return len(response.entries)

    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        client = blocking.Client(lambda: [parse_address(servers)], 10.0, "test")
        assert client.run(set_quotas(client)) == [0, 0, 0, 0]
        assert client.run(quotas(client)) == 4
        cluster.reset(keep_clients=True)
        assert client.run(quotas(client)) == 0
