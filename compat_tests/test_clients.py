"""Each client library by itself: what it writes it reads, groups, time, administration."""

from collections.abc import Callable

import pytest

from compat_tests.brokers import Broker
from compat_tests.cases import START_MS, large_record, numbered_records, varied_records
from compat_tests.clients import KINDS, Client, ClientError, Record, eventually

Start = Callable[..., Client]
Fresh = Callable[[str], str]

PARTITIONS = 4
each_client = pytest.mark.parametrize("kind", KINDS)
each_client_and_codec = pytest.mark.parametrize(
    ("kind", "codec"), [(kind.name, codec) for kind in KINDS.values() for codec in kind.codecs]
)
pytestmark = pytest.mark.timeout(120)


@each_client_and_codec
def test_what_a_client_writes_it_reads_back(
    client_pool: Callable[[str], Client], fresh: Fresh, kind: str, codec: str
) -> None:
    client, topic = client_pool(kind), fresh("varied")
    client.call("create", topic=topic, partitions=1, config={})
    records = varied_records(codec, KINDS[kind].headers)

    offsets = client.produce(topic, records, codec)
    read = client.fetch(topic, len(records))

    assert offsets == list(range(len(records)))
    assert [r.content for r in read] == [r.content for r in records]
    assert [r.offset for r in read] == offsets
    assert [r.timestamp for r in read] == [r.timestamp for r in records]


@each_client
def test_a_large_message_passes(
    client_pool: Callable[[str], Client], fresh: Fresh, kind: str
) -> None:
    client, topic, record = client_pool(kind), fresh("large"), large_record()
    client.call("create", topic=topic, partitions=1, config={})

    for codec in KINDS[kind].codecs[:2]:
        client.produce(topic, [record], codec)

    assert [r.content for r in client.fetch(topic, 2)] == [record.content] * 2


@each_client
def test_a_fetch_from_the_middle_starts_at_the_offset_asked_for(
    client_pool: Callable[[str], Client], fresh: Fresh, kind: str
) -> None:
    client, topic = client_pool(kind), fresh("middle")
    client.call("create", topic=topic, partitions=1, config={})
    client.produce(topic, numbered_records(0, 10, 1), KINDS[kind].codecs[1])

    read = client.fetch(topic, 3, offset=7)

    assert [(r.offset, r.value) for r in read] == [(7, b"7"), (8, b"8"), (9, b"9")]


@each_client
def test_seek_by_time_finds_the_first_record_not_older(
    client_pool: Callable[[str], Client], fresh: Fresh, kind: str
) -> None:
    client, topic = client_pool(kind), fresh("time")
    client.call("create", topic=topic, partitions=1, config={})
    for first in (0, 5):  # two batches, a record every 100 ms
        batch = [Record(b"t", timestamp=START_MS + 100 * n) for n in range(first, first + 5)]
        client.produce(topic, batch, KINDS[kind].codecs[-1])

    def at(time: int) -> int:
        found: int = client.call("offset_for_time", topic=topic, partition=0, time=time)
        return found

    assert at(START_MS) == 0
    assert at(START_MS + 250) == 3
    assert at(START_MS + 700) == 7
    assert at(START_MS + 10_000) in (-1, 10)  # some clients turn "none" into the end offset


@each_client
def test_a_group_rebalances_commits_and_resumes(
    start_client: Start, broker: Broker, fresh: Fresh, kind: str
) -> None:
    topic, group = fresh("group-topic"), fresh("group")
    admin, first, second = start_client(kind), start_client(kind), start_client(kind)
    admin.call("create", topic=topic, partitions=PARTITIONS, config={})
    admin.produce(topic, numbered_records(0, 40, PARTITIONS))

    first.call("join", group=group, topic=topic)
    partitions, read = first.wait(PARTITIONS, 40)
    assert partitions == list(range(PARTITIONS))
    assert sorted(r.number for r in read) == list(range(40))
    first.call("commit")

    second.call("join", group=group, topic=topic)
    second.send("wait", partitions=2, records=0)
    mine, _ = first.wait(2, 40)
    theirs, _ = second.received_wait()
    assert sorted(mine + theirs) == list(range(PARTITIONS))

    admin.produce(topic, numbered_records(40, 80, PARTITIONS))
    second.send("wait", partitions=2, records=20)
    _, by_first = first.wait(2, 60)
    _, by_second = second.received_wait()
    assert sorted(r.number for r in by_first + by_second) == list(range(80))

    first.call("commit")
    second.call("commit")
    second.call("leave")
    first.wait(PARTITIONS, 60)
    first.call("leave")

    resumed = start_client(kind)
    resumed.call("join", group=group, topic=topic)
    admin.produce(topic, numbered_records(80, 84, PARTITIONS))
    _, read = resumed.wait(PARTITIONS, 4)
    assert sorted(r.number for r in read) == [80, 81, 82, 83]
    resumed.call("leave")


@each_client
def test_the_life_of_a_topic(client_pool: Callable[[str], Client], fresh: Fresh, kind: str) -> None:
    client, topic = client_pool(kind), fresh("admin")

    client.call("create", topic=topic, partitions=2, config={"retention.ms": "86400000"})
    eventually(lambda: topic in client.call("topics"))
    assert client.call("describe", topic=topic) == 2
    assert client.call("get_config", topic=topic, key="retention.ms") == "86400000"
    with pytest.raises(ClientError):
        client.call("create", topic=topic, partitions=2, config={})

    client.call("set_config", topic=topic, key="max.message.bytes", value="2000000")
    eventually(lambda: client.call("get_config", topic=topic, key="max.message.bytes") == "2000000")

    client.call("grow", topic=topic, total=5)
    eventually(lambda: client.call("describe", topic=topic) == 5)

    client.produce(topic, numbered_records(0, 10, 1))
    eventually(lambda: client.call("delete_records", topic=topic, partition=0, before=6))
    assert [r.offset for r in client.fetch(topic, 4, offset=6)] == [6, 7, 8, 9]
    assert client.call("offset_for_time", topic=topic, partition=0, time=0) == 6

    client.call("delete", topic=topic)
    eventually(lambda: topic not in client.call("topics"))
