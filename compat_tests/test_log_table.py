"""`kwire-log` beside Kafka's readers: DumpLogSegments on golden segments; a real cluster's consumer and followers."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from compat_tests import tooling
from compat_tests.cluster import until
from compat_tests.kafka_nodes import KafkaNodes
from kwire.pipeline import planning, reading, remote
from kwire.pipeline.options import parse
from kwire.tools import dump_log

pytestmark = [pytest.mark.timeout(180), pytest.mark.kwire_only]

GOLDEN = Path(__file__).parents[1] / "tests" / "data" / "golden-batches.jsonl.gz"
ROOT = datetime(1970, 1, 1, tzinfo=UTC)
TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
Rows = list[dict[str, Any]]


def rows(**given: object) -> Rows:
    """What kwire-log reads with these options, without Spark."""
    options = parse({name: str(value) for name, value in given.items()})
    parts: Any = remote.plan(options) if options.bootstrap else planning.plan(options)
    columns = tuple(reading.columns_of(options))
    return [row for p in parts for t in reading.read(p, columns, options) for row in t.to_pylist()]


def milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - ROOT) // timedelta(milliseconds=1)


# --- golden segments


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory: a partition for each golden case, of every codec, format and kind of damage."""
    folder = tmp_path_factory.mktemp("golden")
    with gzip.open(GOLDEN, "rt") as lines:
        for line in lines:
            case = json.loads(line)
            path = folder / f"{case['case']}-0" / f"{0:020d}.log"
            path.parent.mkdir()
            path.write_bytes(bytes.fromhex(case["hex"]))
    return folder


def kafka_dump(files: list[Path], *options: str) -> dict[str, list[str]]:
    """The lines of kafka-dump-log, by the name of the partition's folder."""
    names = ",".join(map(str, files))
    argv = tooling.java_argv(
        "3.9.1", "kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names, *options
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            lines = found.setdefault(Path(line.removeprefix("Dumping ")).parent.name, [])
        elif line.startswith(("| offset", "baseOffset", "offset")):
            lines.append(line)
    return found


def as_kafka_prints(record: dict[str, Any]) -> str:
    """A row of mode=records as DumpLogSegments prints the record, up to what only it knows."""
    kind = TYPES[record["timestamp_type"]]
    sizes = [-1 if record[each] is None else len(record[each]) for each in ("key", "value")]
    text = f"| offset: {record['offset']} {kind}: {milliseconds(record['timestamp'])}"
    text += f" keySize: {sizes[0]} valueSize: {sizes[1]}"
    if record["magic"] < 2:
        return f"{text} isValid: true"
    keys = ",".join(header["key"] for header in record["headers"] or ())
    text += f" sequence: {record['sequence']} headerKeys: [{keys}]"
    if record["control_type"] in ("commit", "abort"):
        text += f" endTxnMarker: {record['control_type'].upper()}"
    elif record["control_type"] == "2":
        text += " controlType: LEADER_CHANGE(2)"
    return text


def as_kafka_prints_batch(batch: dict[str, Any]) -> str:
    """A row of mode=batches, likewise; without its timestamp, of which DumpLogSegments prints the largest."""
    end = f"size: {batch['bytes']} magic: {batch['magic']} compresscodec: {batch['codec']}"
    end += f" crc: {batch['crc']} isvalid: {str(batch['crc_ok']).lower()}"
    if batch["magic"] < 2:
        return f"offset: {batch['last_offset']} position: {batch['position']} {end}"
    flags = [str(batch[each]).lower() for each in ("is_transactional", "is_control")]
    return (
        f"baseOffset: {batch['base_offset']} lastOffset: {batch['last_offset']} count: {batch['records']}"
        f" baseSequence: {batch['sequence']} producerId: {batch['producer_id']} producerEpoch:"
        f" {batch['producer_epoch']} partitionLeaderEpoch: {batch['leader_epoch']} isTransactional:"
        f" {flags[0]} isControl: {flags[1]} position: {batch['position']} {end}"
    )


_UNKNOWN = re.compile(
    r"(lastSequence|deleteHorizonMs|CreateTime|LogAppendTime|NoTimestampType): \S+ |"
    r" (coordinatorEpoch|crc): \d+}?$| (LeaderChange|payload|key): .*$"
)


def of_kafka(line: str) -> str:
    """A line of DumpLogSegments without what a row does not have."""
    if line.startswith("| "):
        return re.sub(r" (coordinatorEpoch: \d+|crc: \d+}|LeaderChange: .*)$", "", line)
    return _UNKNOWN.sub("", line)


def by_folder(found: Rows, to_text: Any) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for row in found:
        texts.setdefault(f"{row['topic']}-{row['partition']}", []).append(to_text(row))
    return texts


def test_golden_segments_are_what_kafka_dump_log_prints(golden: Path) -> None:
    said = kafka_dump(sorted(golden.glob("*/*.log")))
    assert len(said) == 146
    records = by_folder(rows(path=golden, verify="crc"), as_kafka_prints)
    batches = by_folder(
        [
            row
            for row in rows(path=golden, mode="batches", verify="crc")
            if row["magic"] is not None
        ],
        as_kafka_prints_batch,
    )
    for folder, lines in said.items():
        expected = [of_kafka(line) for line in lines if line.startswith("| ")]
        assert records.get(folder, []) == expected, folder
        expected = [of_kafka(line) for line in lines if not line.startswith("| ")]
        assert batches.get(folder, []) == expected, folder


def as_kwire_prints(record: dict[str, Any]) -> str:
    if record["is_control"]:
        kind = str(record["control_type"])
        return (
            f"  {record['offset']} end of transaction: {kind.upper() if kind.isalpha() else kind}"
        )
    text = f"  {record['offset']} at={milliseconds(record['timestamp'])}"
    text += f" key={dump_log._text(record['key'])} value={dump_log._text(record['value'])}"
    headers = (f" {h['key']}={dump_log._text(h['value'])}" for h in record["headers"] or ())
    return text + (f" headers:{''.join(headers)}" if record["headers"] else "")


def test_golden_segments_are_what_kwire_dump_log_prints(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of formats 0 and 1 it prints where a message is and how large, of a wrong checksum no records."""
    for path in sorted(golden.glob("*/*.log")):
        dump_log.dump_path(str(path), True)
    said: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("/"):
            lines = said[Path(line.rstrip(":")).parent.name] = []
        else:
            lines.append(line)
    found = [row for row in rows(path=golden, verify="crc") if row["magic"] == 2 and row["crc_ok"]]
    records = by_folder(found, as_kwire_prints)
    places = by_folder(
        [row for row in rows(path=golden, mode="batches") if row["magic"] is not None],
        lambda row: (row["position"], row["bytes"]),
    )
    for folder, lines in said.items():
        assert records.get(folder, []) == [line for line in lines if line.startswith("  ")], folder
        of_batches = [re.match(r"(\d+): .*?(?:size=(\d+)|, (\d+) bytes$)", line) for line in lines]
        expected = [
            (int(m[1]), int(m[2] or m[3])) for m in of_batches if m and "DAMAGED" not in m[0]
        ]
        assert places.get(folder, []) == expected, folder
    assert sum(map(len, records.values())) > 600


# --- a real cluster


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNodes]:
    config = {"min.insync.replicas": "2", "offsets.topic.replication.factor": "1"}
    nodes = KafkaNodes(tmp_path_factory.mktemp("kafka"), 3, config)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.kill9()


def fill(bootstrap: str) -> None:
    """Two partitions with three replicas: all codecs, nulls, headers, committed and aborted transactions."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1", "segment.bytes": "4096", "index.interval.bytes": "100"}
    admin.create_topics([NewTopic("orders", 2, 3, config=config)])["orders"].result(30)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "batch.num.messages": 9,
                "transactional.id": f"t-{codec}",
            }
        )
        producer.init_transactions(60)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for number in range(100):
                producer.produce(
                    "orders",
                    [None, b"", b"value %d " % number * 9][number % 3],
                    [None, b"key %d" % number][number // 2 % 2],
                    partition=number % 2,
                    headers=[None, [("h", b"1"), ("h", None)]][number // 5 % 2],
                )
            producer.flush(30)
            end(30)


def consumed(bootstrap: str, ends: dict[int, int]) -> Counter[tuple[Any, ...]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("orders", number, 0) for number in ends])
    found: Counter[tuple[Any, ...]] = Counter()
    ended: set[int] = set()
    while len(ended) < len(ends):
        message = consumer.poll(30)
        assert message is not None, "nothing for 30 s"
        if message.error():
            ended.add(message.partition())
            continue
        _, at = message.timestamp()
        headers = tuple(message.headers() or ())
        place = message.partition(), message.offset(), at, message.key(), message.value(), headers
        found[place] += 1
    consumer.close()
    return found


def as_consumed(row: dict[str, Any]) -> tuple[Any, ...]:
    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    at = milliseconds(row["timestamp"])
    return row["partition"], row["offset"], at, row["key"], row["value"], headers


def without(found: Rows, *names: str) -> Rows:
    return [{name: value for name, value in row.items() if name not in names} for row in found]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_real_kafkas_replicas_are_read_by_fetch_and_from_disk(kafka: KafkaNodes) -> None:
    """Kafka 3.9.1 answers a consumer's Fetch at followers without any setting (KIP-392): only what consumers are told
    of replicas near them needs replica.selector.class."""
    bootstrap = kafka.bootstrap_servers
    fill(bootstrap)
    ends = {0: 510, 1: 510}

    def high_watermarks(replica: int) -> dict[int, int]:
        options = parse({"bootstrap": bootstrap, "topic": "orders", "replica": str(replica)})
        return {each.where.partition: each.high_watermark for each in remote.replicas(options)}

    by_disk = {}
    for replica in kafka.brokers:
        until(lambda replica=replica: high_watermarks(replica) == ends, 30)
        fetched = rows(
            bootstrap=bootstrap, topic="orders", replica=replica, verify="crc", splitBytes=9000
        )
        on_disk = rows(path=kafka.brokers[replica].data, topic="orders", verify="crc")
        of_files = ("segment", "batch_position")
        assert without(fetched, *of_files) == without(on_disk, *of_files)
        assert len(fetched) == 1020 and {row["broker"] for row in fetched} == {replica}
        by_disk[replica] = on_disk
    assert (
        without(by_disk[1], "broker")
        == without(by_disk[2], "broker")
        == without(by_disk[3], "broker")
    )
    assert len({row["segment"] for row in by_disk[1]}) > 2
    read = Counter(as_consumed(row) for row in by_disk[2] if not row["is_control"])
    assert read == consumed(bootstrap, ends)
    leader = without(
        rows(bootstrap=bootstrap, topic="orders"), "broker", "segment", "batch_position", "crc_ok"
    )
    assert leader == without(by_disk[1], "broker", "segment", "batch_position", "crc_ok")
    young = milliseconds(by_disk[2][300]["timestamp"])
    some = rows(
        bootstrap=bootstrap, topic="orders", replica=2, partition=0, startingTimestamp=young
    )
    assert some and some[0]["offset"] == next(
        row["offset"] for row in by_disk[2] if milliseconds(row["timestamp"]) >= young
    )

    kafka.kill9()
    after = rows(path=kafka.brokers[3].data, topic="orders", verify="crc")
    assert after == by_disk[3]
    files = sorted((kafka.brokers[3].data / "orders-0").glob("*.log"))
    said = [of_kafka(line) for line in kafka_dump(files)["orders-0"] if line.startswith("| ")]
    assert said == [as_kafka_prints(row) for row in after if row["partition"] == 0]
