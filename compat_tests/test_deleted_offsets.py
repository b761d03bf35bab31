"""ListOffsets after DeleteRecords: what is found of records that are deleted, but still in their segment."""

from collections.abc import Callable

import pytest

from compat_tests.brokers import Broker

pytestmark = pytest.mark.timeout(90)


def test_the_largest_timestamp_may_be_that_of_a_deleted_record(
    broker: Broker, fresh: Callable[[str], str]
) -> None:
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

    topic = fresh("deleted-offsets")
    servers = {"bootstrap.servers": broker.bootstrap_servers, "broker.address.family": "v4"}
    admin, producer = AdminClient(servers), Producer(servers)
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(20)
    for time_ms in (1_700_000_009_000, 1_700_000_001_000, 1_700_000_002_000):
        producer.produce(topic, b"v", partition=0, timestamp=time_ms)
        producer.flush(20)
    for deleted in admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        deleted.result(20)

    def offset(spec: object) -> tuple[int, int]:
        (found,) = admin.list_offsets({TopicPartition(topic, 0): spec}).values()
        return found.result(20).offset, found.result(20).timestamp

    assert offset(OffsetSpec.earliest())[0] == 1
    assert offset(OffsetSpec.for_timestamp(1_700_000_001_500)) == (2, 1_700_000_002_000)
    assert offset(OffsetSpec.for_timestamp(1_700_000_008_000))[0] == -1
    assert offset(OffsetSpec.max_timestamp()) == (0, 1_700_000_009_000)
