"""What kwire's own clients say of a port that no broker listens on."""

from __future__ import annotations

import pytest

from kwire.apis.releases import release_ranges
from kwire.client.connection import Connection, NoResponseError
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.replication.core.events import Event


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request", "this is an HTTP server, no Kafka broker"),
        (b"\x15\x03\x03\x00\x02", "this port speaks TLS"),
        (b"SSH-2.0-OpenSSH", "this is no Kafka broker: its answer begins with 'SSH-'"),
        (b"\x7f\xff\xff\xff", "an answer of 2147483647 bytes"),
    ],
)
def test_another_server_is_named(answer: bytes, says: str) -> None:
    asking = Connection("test").ask(MetadataRequest(topics=[]))
    assert next(asking)
    assert next(asking) is None
    with pytest.raises(NoResponseError) as found:
        asking.send(answer)
    assert says in str(found.value)


@pytest.mark.parametrize(
    ("release", "near"),
    [
        ("3.6", "; the nearest are 3.4 and 3.7; known"),
        ("3.6.1", "; the nearest are 3.4 and 3.7; known"),
        ("9.0", "; the nearest is 4.4; known"),
        ("0.11", "; the nearest is 2.0; known"),
        ("new", "'new'; known are 2.0"),
    ],
)
def test_an_unknown_release_is_answered_with_the_nearest(release: str, near: str) -> None:
    with pytest.raises(ValueError, match="unknown Kafka release") as found:
        release_ranges(release)
    assert near in str(found.value)


def test_one_partition_is_no_plural() -> None:
    fields: dict[str, object] = dict.fromkeys(Event.TOPIC_CREATED.fields)
    fields |= {"topic": "t", "partitions": 1, "replication_factor": 3}
    assert "1 partition, " in Event.TOPIC_CREATED.text(fields)
    assert "2 partitions, " in Event.TOPIC_CREATED.text({**fields, "partitions": 2})
    assert "11 partitions, " in Event.TOPIC_CREATED.text({**fields, "partitions": 11})
