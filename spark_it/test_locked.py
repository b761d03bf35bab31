"""Spark's source and sink over SASL_SSL: by a user's secret, and by a delegation token as executors have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kwire import Cluster

pytest.importorskip("cryptography", reason="certificates need the extra kwire[tls]")
pytestmark = pytest.mark.timeout(400)

USERS = {"admin": "s3cret", "alice": "hush", "bob": "other"}
MECHANISM = "scram-sha-512"
TOKEN_KEY = {"delegation.token.secret.key": "between-brokers"}


@pytest.fixture(scope="module")
def locked() -> Iterator[Cluster]:
    """Three brokers whose clients log in over TLS and need rights: admin may do everything, alice what it allows."""
    with Cluster(
        3,
        sasl=MECHANISM,
        users=USERS,
        tls=True,
        acl=True,
        super_users=["admin", "alice"],
        config=TOKEN_KEY,
    ) as cluster:
        yield cluster


def options(cluster: Cluster, user: str) -> dict[str, str]:
    """What Spark needs to come in as a user."""
    return {f"kafka.{key}": str(text) for key, text in cluster.client_config("java", user).items()}


def written_and_read(spark: Any, found: dict[str, str], topic: str) -> list[str]:
    """Writes three values with these options and reads the topic, as batches and as a stream."""
    frame = spark.createDataFrame([("a",), ("b",), ("c",)], ["value"])
    frame.write.format("kafka").options(**found, topic=topic).save()
    again = spark.read.format("kafka").options(**found, subscribe=topic).load()
    batch = sorted(bytes(row.value).decode() for row in again.collect())
    stream = (
        spark.readStream.format("kafka")
        .options(**found, subscribe=topic, startingOffsets="earliest")
        .load()
    )
    name = topic.replace("-", "_")
    query = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.sql(f"select value from {name}").collect()
    assert sorted(bytes(row.value).decode() for row in rows) == batch
    return batch


def test_a_user_writes_and_reads(spark: Any, locked: Cluster) -> None:
    locked.create_topic("by-secret", partitions=3, replication_factor=3)
    found = written_and_read(spark, options(locked, "alice"), "by-secret")
    assert found == ["a", "b", "c"]


def test_who_has_no_rights_is_told_so(spark: Any, locked: Cluster) -> None:
    locked.create_topic("not-for-bob", partitions=1, replication_factor=3)
    frame = spark.createDataFrame([("a",)], ["value"])
    with pytest.raises(Exception, match="Authorization"):
        frame.write.format("kafka").options(**options(locked, "bob"), topic="not-for-bob").save()
    assert locked.records("not-for-bob") == []


def test_a_delegation_token_is_enough(spark: Any, locked: Cluster) -> None:
    """A token in the credentials of the Hadoop user, where Spark looks for one for each cluster that it knows. What
    the source is given has neither a protocol nor a secret."""
    locked.create_topic("by-token", partitions=3, replication_factor=3)
    config = locked.client_config("java", "alice")
    jvm = spark._jvm
    token_id, hmac = made_token(jvm, config)
    token = jvm.org.apache.hadoop.security.token.Token(
        token_id.encode(),
        hmac.encode(),
        jvm.org.apache.hadoop.io.Text("KAFKA_DELEGATION_TOKEN"),
        jvm.org.apache.hadoop.io.Text("kafka.server.delegation.token.kwire"),
    )
    jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addToken(token)
    known = {
        "auth.bootstrap.servers": locked.bootstrap_servers,
        "target.bootstrap.servers.regex": ".*",
        "security.protocol": "SASL_SSL",
        "sasl.token.mechanism": MECHANISM.upper(),
        "ssl.truststore.location": config["ssl.truststore.location"],
        "ssl.truststore.password": config.get("ssl.truststore.password", "changeit"),
    }
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    for key, text in known.items():
        conf.set(f"spark.kafka.clusters.kwire.{key}", text)
    try:
        address = {"kafka.bootstrap.servers": locked.bootstrap_servers}
        found = written_and_read(spark, {**address, **trust(config)}, "by-token")
    finally:
        for key in known:
            conf.remove(f"spark.kafka.clusters.kwire.{key}")
    assert found == ["a", "b", "c"]


def trust(config: dict[str, Any]) -> dict[str, str]:
    """Whom to trust: Spark adds the rest, by the token."""
    return {f"kafka.{key}": str(config[key]) for key in config if key.startswith("ssl.truststore")}


def made_token(jvm: Any, config: dict[str, Any]) -> tuple[str, str]:
    """A delegation token's id and HMAC, made by Kafka's admin client for the user of a configuration."""
    properties = jvm.java.util.Properties()
    for key, text in config.items():
        properties.setProperty(key, str(text))
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    try:
        token = admin.createDelegationToken().delegationToken().get()
        return token.tokenInfo().tokenId(), token.hmacAsBase64String()
    finally:
        admin.close()
