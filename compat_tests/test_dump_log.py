"""Logs written by kwire's log layer alone, read by Kafka's own DumpLogSegments: aborts, snapshots, recovery."""

import re
import subprocess
from pathlib import Path

import pytest

from compat_tests import tooling
from kwire.protocol.record_builder import build_batch, end_transaction_marker
from kwire.protocol.records import CONTROL_ABORT, CONTROL_COMMIT, Record
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.log_config import LogConfig
from kwire.replication.log.log import AppendOrigin, Log
from kwire.replication.log_dirs.manager import LogManager
from kwire.server.file_log_store import FileLogStore

pytestmark = [pytest.mark.timeout(180), pytest.mark.kwire_only]

NOW_MS = 1_700_000_000_000
FAULT = re.compile(
    r"isvalid: false|mismatch|out of order|out-of-order|Found|corrupt|invalid|Exception|not found"
    r"|Failed|Could not",
    re.IGNORECASE,
)


def dump(files: list[Path], *options: str) -> str:
    """What DumpLogSegments says of the files; it may find no fault."""
    names = ",".join(map(str, files))
    argv = tooling.java_argv("3.9.1", "kafka.tools.DumpLogSegments", "--files", names, *options)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    faults = [line for line in said.splitlines() if FAULT.search(line) and "SLF4J" not in line]
    assert faults == []
    return said


def manager(folder: Path) -> tuple[FileLogStore, LogManager]:
    store = FileLogStore(str(folder))
    logs = LogManager(
        store,
        Clock(0, NOW_MS),
        Timers(),
        BrokerConfig(),
        cluster_id="dump-log",
        node_id=1,
        topic_config=lambda _: CONFIG,
    )
    logs.load()
    return store, logs


CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=300)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def fill(log: Log, first: int, batches: int) -> None:
    """Batches of every codec, of plain, idempotent and transactional producers; every third transaction aborts."""
    sequences = dict.fromkeys(range(4), 0)
    for number in range(first, first + batches):
        producer = number % 4
        count = number % 5 + 1
        records = [
            Record(-1, NOW_MS + 10 * number + n, b"key-%d" % n, b"value-%d " % number * 20, ())
            for n in range(count)
        ]
        kind = number % 3
        epoch = first // 100
        data = build_batch(
            records,
            compression=CODECS[number % 5],
            producer_id=100 + producer if kind else -1,
            producer_epoch=epoch if kind else -1,
            base_sequence=sequences[producer] if kind else -1,
            is_transactional=kind == 2,
        )
        if kind == 1:
            # An idempotent producer of its own id: it never opens a transaction.
            data = build_batch(
                records,
                compression=CODECS[number % 5],
                producer_id=200 + number,
                producer_epoch=0,
                base_sequence=0,
            )
        elif kind == 2:
            sequences[producer] += count
        log.append_as_leader(data, number // 40)
        if kind == 2:
            end = end_transaction_marker(
                CONTROL_ABORT if number % 9 == 2 else CONTROL_COMMIT,
                producer_id=100 + producer,
                producer_epoch=epoch,
                coordinator_epoch=0,
                timestamp=NOW_MS + 10 * number,
            )
            log.append_as_leader(end, number // 40, origin=AppendOrigin.COORDINATOR)
    log.maybe_increment_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("how", ["clean stop", "killed, recovered and truncated"])
def test_kafka_reads_every_file_of_a_log(tmp_path: Path, how: str) -> None:
    store, logs = manager(tmp_path / "data")
    log = logs.get_or_create("t", 0, bytes(range(16)), CONFIG)
    fill(log, 0, 150)
    if how != "clean stop":
        log.active.release()
        store.close()  # no clean stop, no mark
        with (tmp_path / "data/t-0" / f"{log.active.base_offset:020d}.log").open("ab") as file:
            file.write(b"\0" * 7 + b"torn")
        store, logs = manager(tmp_path / "data")
        found = logs.get("t", 0)
        assert found is not None and found.log_end_offset == log.log_end_offset
        log = found
        log.truncate_to(log.segments[-2].base_offset + 5)
        fill(log, 200, 60)
    end = log.log_end_offset
    aborted = log.aborted_transactions(0, end)
    assert len(aborted) > 5
    logs.close()
    store.close()

    folder = tmp_path / "data/t-0"
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 2
    said = dump(segments, "--deep-iteration", "--print-data-log")
    offsets = [int(number) for number in re.findall(r"^\| offset: (\d+)", said, re.MULTILINE)]
    assert offsets == sorted(set(offsets)) and offsets[-1] == end - 1
    indexes = [*folder.glob("*.index"), *folder.glob("*.timeindex")]
    assert len(indexes) == 2 * len(segments)
    assert any(path.stat().st_size for path in indexes)
    dump(indexes)
    dump(indexes, "--index-sanity-check")
    dump(indexes, "--verify-index-only")
    said = dump(sorted(folder.glob("*.txnindex")))
    for txn in aborted:
        assert (
            f"producerId: {txn.producer_id} firstOffset: {txn.first_offset}"
            f" lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
        ) in said
    snapshots = sorted(folder.glob("*.snapshot"))
    assert snapshots[-1].name == f"{end:020d}.snapshot"
    assert "producerId: 100 " in dump(snapshots)


def test_a_log_directory_goes_from_kafka_to_kwire_and_back(tmp_path: Path) -> None:
    """Kafka writes and is killed; kwire recovers, appends and stops cleanly; Kafka starts on that and reads it all."""
    from compat_tests.brokers import RealKafka

    kafka = RealKafka(tmp_path, {"log.segment.bytes": "10000", "log.index.interval.bytes": "500"})
    kafka.start()
    try:
        values = _produce_transactions(kafka.bootstrap_servers)
        assert _consume(kafka.bootstrap_servers) == values
    finally:
        kafka.kill9()

    logged: list[str] = []
    store = FileLogStore(str(kafka.data))
    logs = LogManager(
        store,
        Clock(0, NOW_MS),
        Timers(),
        BrokerConfig(),
        log_event=lambda event, /, **fields: logged.append(event.text(fields)),
    )
    logs.load()
    log = logs.get("t", 0)
    assert log is not None
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    assert len(log.segments) > 2
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 10
    assert not any("cut" in line for line in logged)
    epoch = log.leader_epochs.latest_epoch
    for number in range(100):
        value = b"of kwire %d" % number
        log.append_as_leader(build_batch([Record(-1, NOW_MS, None, value, ())]), epoch)
        values.append(value)
    logs.close()
    store.close()

    kafka.restart()
    try:
        assert _consume(kafka.bootstrap_servers) == values
        values += _produce_transactions(kafka.bootstrap_servers, create=False)
        assert _consume(kafka.bootstrap_servers) == values
        assert not re.search(r"corrupt|Found invalid|rebuilding", kafka.log_tail(2000))
    finally:
        kafka.stop()


def _produce_transactions(bootstrap: str, *, create: bool = True) -> list[bytes]:
    """Twenty transactions of ten records, every second one aborted; the values that were committed."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    if create:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (created,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
        created.result(30)
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "x"}
    producer = Producer(settings)
    producer.init_transactions(60)
    committed = []
    for number in range(20):
        producer.begin_transaction()
        values = [b"%d.%d " % (number, n) * 50 for n in range(10)]
        for value in values:
            producer.produce("t", value, partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += values
    return committed


def _consume(bootstrap: str) -> list[bytes]:
    """Everything read_committed sees."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "g",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "no end of the partition in 30 s"
        if message.error() is None:
            values.append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            break
        else:
            raise AssertionError(message.error())
    consumer.close()
    return values
