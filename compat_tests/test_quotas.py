"""Client quotas as stock clients feel them and as Kafka's own tool describes them; REAL=1 at Apache Kafka 3.9.1."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests import brokers
from compat_tests.test_security import CLOSED, Wire
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

pytestmark = pytest.mark.timeout(120)

MEGABYTE = 1 << 20
RECORD = bytes(10_000)
# By Kafka's arithmetic a client may use at once what all windows but one allow, and waits as long afterwards: with
# eleven windows that evens out over half a minute, with two of a second over some seconds.
KEYS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
THROTTLED = 89


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    broker = brokers.broker_class()(Path(tmp_path_factory.mktemp("quotas")), KEYS)
    broker.start()
    wire = Wire(broker.port)
    names = ("made", "read", "asked", "near")
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    answer = wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    assert [topic.error_code for topic in answer.topics] == [0] * len(names)
    wire.close()
    yield broker
    broker.stop()


@pytest.fixture
def wire(broker: brokers.Broker) -> Iterator[Wire]:
    wire = Wire(broker.port)
    yield wire
    wire.close()


def alter(
    wire: Wire, entity: dict[str, str | None], **values: float | None
) -> tuple[int, str | None]:
    """Error code and message. None: the value is removed."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )
    (answer,) = wire.ask(AlterClientQuotasRequest(entries=[entry]), 1).entries
    return answer.error_code, answer.error_message


class Statistics:
    """What a client of librdkafka has told of its throttling: the longest one of a broker's answers, milliseconds."""

    def __init__(self) -> None:
        self.longest_ms = 0

    def __call__(self, text: str) -> None:
        for each in json.loads(text)["brokers"].values():
            self.longest_ms = max(self.longest_ms, each["throttle"]["max"])


def client(broker: brokers.Broker, name: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "client.id": name,
        "statistics.interval.ms": 500,
        "log_level": 2,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def test_a_producer_at_one_megabyte_a_second(broker: brokers.Broker, wire: Wire) -> None:
    assert alter(wire, {"client-id": "fast"}, producer_byte_rate=MEGABYTE) == (0, None)
    seen = Statistics()
    acked: list[float] = []
    producer = Producer(
        client(
            broker,
            "fast",
            linger_ms=5,
            batch_size=50_000,
            max_in_flight=1,
            queue_buffering_max_messages=100,
        )
        | {"stats_cb": seen}
    )
    until = time.monotonic() + 8.5
    while time.monotonic() < until:
        try:
            producer.produce(
                "made", RECORD, on_delivery=lambda error, _: acked.append(time.monotonic())
            )
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()
    producer.flush(10)
    rate = rate_of(acked)
    assert rate == pytest.approx(MEGABYTE, rel=0.1)
    assert seen.longest_ms > 0


def rate_of(times: list[float]) -> float:
    """Bytes a second in the six seconds after the first two, which begin with a burst."""
    begin = times[0] + 2
    return sum(begin <= at < begin + 6 for at in times) * len(RECORD) / 6


def test_a_consumer_at_no_more_than_one_megabyte_a_second(
    broker: brokers.Broker, wire: Wire
) -> None:
    producer = Producer(client(broker, "filler"))
    for _ in range(2500):
        producer.produce("read", RECORD)
    assert producer.flush(20) == 0
    assert alter(wire, {"client-id": "reader"}, consumer_byte_rate=MEGABYTE) == (0, None)
    seen = Statistics()
    consumer = Consumer(
        client(broker, "reader", group_id="g", fetch_message_max_bytes=100_000)
        | {"stats_cb": seen, "fetch.wait.max.ms": 10}
    )
    consumer.assign([TopicPartition("read", 0, 0)])
    times: list[float] = []
    until = time.monotonic() + 8.5
    while time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            times.append(time.monotonic())
    consumer.close()
    # Answers that would be above the quota are empty and asked for again: with two windows that is less than allowed.
    assert 0.4 * MEGABYTE < rate_of(times) < 1.1 * MEGABYTE
    assert seen.longest_ms > 0


def test_a_client_that_asks_too_much(broker: brokers.Broker, wire: Wire) -> None:
    """A percent of one thread: the client has to wait for most of the time."""
    assert alter(wire, {"client-id": "asker"}, request_percentage=0.05) == (0, None)
    seen = Statistics()
    producer = Producer(client(broker, "asker") | {"stats_cb": seen})
    for _ in range(20):
        producer.produce("asked", b"x")
        assert producer.flush(10) == 0
    producer.poll(0.6)
    assert seen.longest_ms > 0


def test_neighbours_do_not_feel_it(broker: brokers.Broker, wire: Wire) -> None:
    producer = Producer(client(broker, "neighbour"))
    before = latencies(producer)
    assert alter(wire, {"client-id": "greedy"}, producer_byte_rate=MEGABYTE) == (0, None)
    greedy = Producer(client(broker, "greedy", batch_size=100_000))
    for _ in range(1000):
        greedy.produce("near", RECORD)
    greedy.poll(0.5)  # the burst that is allowed
    beside = latencies(producer)
    greedy.purge()
    greedy.flush(5)
    # Bounds for a busy machine: muted connections cost others nothing, waiting ones would cost seconds.
    assert beside < before + 0.1


def latencies(producer: Producer) -> float:
    """The p99 of 200 records one by one, in seconds."""
    took = []
    for _ in range(200):
        begin = time.perf_counter()
        producer.produce("asked", b"x")
        assert producer.flush(10) == 0
        took.append(time.perf_counter() - begin)
    return sorted(took)[197]


def described(wire: Wire, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=how, match=match)
            for kind, how, match in components
        ],
        strict=strict,
    )
    answer = wire.ask(request, 1)
    if answer.entries is None:
        return answer.error_code, answer.error_message
    return sorted(
        (
            sorted((each.entity_type, each.entity_name or "<default>") for each in entry.entity),
            sorted((each.key, each.value) for each in entry.values),
        )
        for entry in answer.entries
    )


def test_what_is_kept_and_refused(wire: Wire) -> None:
    """The same answers from Apache Kafka 3.9.1."""
    a, both = {"user": "a/ b"}, {"user": "a/ b", "client-id": None}
    assert alter(wire, a, producer_byte_rate=10.0, request_percentage=0.5) == (0, None)
    assert alter(wire, both, consumer_byte_rate=7.0) == (0, None)
    assert alter(wire, {"ip": "10.9.8.7"}, connection_creation_rate=3.0) == (0, None)
    of_a = ([("user", "a/ b")], [("producer_byte_rate", 10.0), ("request_percentage", 0.5)])
    of_both = ([("client-id", "<default>"), ("user", "a/ b")], [("consumer_byte_rate", 7.0)])
    assert described(wire, ("user", EXACT, "a/ b")) == [of_both, of_a]
    assert described(wire, ("user", EXACT, "a/ b"), strict=True) == [of_a]
    assert described(wire, ("user", SPECIFIED, None), ("client-id", DEFAULT, None)) == [of_both]
    assert described(wire, ("ip", SPECIFIED, None)) == [
        ([("ip", "10.9.8.7")], [("connection_creation_rate", 3.0)])
    ]
    for entity, values, said in (
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"x": "y"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: x"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        (a, {"bogus": 1.0}, "Invalid configuration key bogus"),
        (a, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        (a, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            a,
            {"producer_byte_rate": 1e19},
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": "not an address"},
            {"connection_creation_rate": 1.0},
            "not an address is not a valid IP or resolvable host.",
        ),
        (
            {"ip": "10.0.0.1", "user": "u"},
            {"connection_creation_rate": 1.0},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
    ):
        assert alter(wire, entity, **values) == (42, said)  # type: ignore[arg-type]
    assert alter(wire, a, producer_byte_rate=None, request_percentage=None, bogus=None) == (0, None)
    assert alter(wire, both, consumer_byte_rate=None) == (0, None)
    assert alter(wire, {"ip": "10.9.8.7"}, connection_creation_rate=None) == (0, None)
    assert described(wire, ("user", SPECIFIED, None)) == []


def test_a_client_that_makes_and_deletes_too_many_partitions(
    broker: brokers.Broker, wire: Wire
) -> None:
    """By ControllerMutationQuotaManager's source. A burst of eleven windows: 110 partitions, at ten a second."""

    def ask(request: Any, version: int) -> tuple[list[int], int]:
        other = Wire(broker.port)  # throttled connections are mute
        answer = other.ask(request, version)
        other.close()
        topics = getattr(answer, "topics", None) or answer.responses
        return [topic.error_code for topic in topics], answer.throttle_time_ms

    def create(validate_only: bool = False, **partitions: int) -> CreateTopicsRequest:
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in partitions.items()
        ]
        return CreateTopicsRequest(topics=topics, timeout_ms=20_000, validate_only=validate_only)

    entity = {"user": None, "client-id": "me"}
    assert alter(wire, entity, controller_mutation_rate=10) == (0, None)
    try:
        begin = time.monotonic()
        answer = wire.ask(create(many=135, more=1), 7)
        assert [topic.error_code for topic in answer.topics] == [0, THROTTLED]
        assert answer.topics[1].error_message is None
        assert 0 <= answer.throttle_time_ms <= 2500
        wire.ask(MetadataRequest(topics=[]), 9)
        assert time.monotonic() - begin > answer.throttle_time_ms / 1000 - 0.1
        codes, throttle_ms = ask(create(more=310, less=1, validate_only=True), 7)
        assert codes == [0, THROTTLED] and 15_000 < throttle_ms <= 31_000
        codes, throttle_ms = ask(create(more=10), 5)
        assert codes == [0] and throttle_ms > 5000
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="more")], timeout_ms=20_000)
        assert ask(delete, 6)[0] == [THROTTLED]
        old = DeleteTopicsRequest(topic_names=["more"], timeout_ms=20_000)
        assert ask(old, 5)[0] == [THROTTLED]
        codes, throttle_ms = ask(old, 4)
        assert codes == [0] and throttle_ms > 5000
    finally:
        last = Wire(broker.port)
        assert alter(last, entity, controller_mutation_rate=None) == (0, None)
        last.close()


def test_an_ip_that_connects_too_often(broker: brokers.Broker, wire: Wire) -> None:
    """By ConnectionQuotas' source: connections above the rate are closed after their throttle time."""
    assert alter(wire, {"ip": "127.0.0.1"}, connection_creation_rate=1) == (0, None)
    try:
        until = time.monotonic() + 20
        outcomes: list[Any] = []
        while CLOSED not in outcomes and time.monotonic() < until:
            others = [Wire(broker.port) for _ in range(5)]
            outcomes = [other.ask(MetadataRequest(topics=[]), 9) for other in others]
            for other in others:
                other.close()
        assert CLOSED in outcomes
        assert not isinstance(wire.ask(MetadataRequest(topics=[]), 9), str)
    finally:
        assert alter(wire, {"ip": "127.0.0.1"}, connection_creation_rate=None) == (0, None)


def test_connections_wait_for_a_place(tmp_path: Path) -> None:
    """The same from Apache Kafka 3.9.1."""
    keys = {**KEYS, "max.connections": "2"}
    broker = brokers.broker_class()(tmp_path, keys)
    broker.start()
    try:
        one, other, third = (Wire(broker.port) for _ in range(3))
        request = MetadataRequest(topics=[])
        assert not isinstance(one.ask(request, 9), str)
        assert not isinstance(other.ask(request, 9), str)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(third.ask, request, 9)
            assert not isinstance(one.ask(request, 9), str)
            assert not answer.done()
            other.close()
            assert not isinstance(answer.result(10), str)
        one.close()
        third.close()
    finally:
        broker.stop()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_kafka_configs(broker: brokers.Broker, version: str) -> None:
    from compat_tests.test_java_tools import Tools

    tools = Tools(version, broker.bootstrap_servers)
    for kind, values in (
        ("users", "producer_byte_rate=1024,request_percentage=12.5"),
        ("clients", "consumer_byte_rate=2048"),
        ("ips", "connection_creation_rate=5"),
    ):
        name = "10.1.2.3" if kind == "ips" else "somebody"
        entity = ("--entity-type", kind, "--entity-name", name)
        said = tools("kafka-configs", "--alter", *entity, "--add-config", values)
        assert f"Completed updating config for {kind[:-1]} {name}." in said
        said = tools("kafka-configs", "--describe", *entity)
        for value in values.split(","):
            key, _, number = value.partition("=")
            assert f"{key}={float(number)}" in said
        keys = ",".join(value.partition("=")[0] for value in values.split(","))
        tools("kafka-configs", "--alter", *entity, "--delete-config", keys)
        assert keys.partition(",")[0] not in tools("kafka-configs", "--describe", *entity)
