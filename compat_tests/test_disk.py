"""The files on disk, read by Kafka's own DumpLogSegments."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests import tooling
from compat_tests.brokers import Broker
from compat_tests.cases import numbered_records, varied_records
from compat_tests.clients import ALL_CODECS, Client

pytestmark = pytest.mark.timeout(120)


def dump(files: list[Path], *options: str) -> str:
    """What DumpLogSegments says; `files` of several kinds in one run (a Java start each is slow)."""
    names = ",".join(map(str, files))
    argv = tooling.java_argv("3.9.1", "kafka.tools.DumpLogSegments", "--files", names, *options)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def faults(said: str) -> list[str]:
    bad = re.compile(
        r"isvalid: false|[Mm]ismatch|out of order|Found|[Cc]orrupt|[Ii]nvalid|Exception"
    )
    return [line for line in said.splitlines() if bad.search(line)]


def test_kafka_finds_no_fault_in_segments_and_indexes(
    own_broker: Broker, start_client: Callable[..., Client]
) -> None:
    client = start_client("franz-go", own_broker.bootstrap_servers)
    small = {"segment.bytes": "20000", "index.interval.bytes": "200"}
    client.call("create", topic="t", partitions=1, config=small)
    for n in range(20):
        client.produce("t", varied_records(f"round {n}"), ALL_CODECS[n % 5])
        client.produce("t", numbered_records(0, 50, 1), ALL_CODECS[n % 5])
    client.call("join", group="g", topic="t")
    client.wait(1, 20 * 58)
    client.call("commit")
    client.call("leave")
    own_broker.stop()

    folder = own_broker.data / "t-0"
    logs = sorted(folder.glob("*.log"))
    indexes = [*folder.glob("*.index"), *folder.glob("*.timeindex")]
    assert len(logs) > 1, "the log has not rolled"
    assert len(indexes) == 2 * len(logs)

    said = dump(logs, "--deep-iteration", "--print-data-log")
    assert faults(said) == []
    offsets = [int(n) for n in re.findall(r"^\| offset: (\d+)", said, re.MULTILINE)]
    assert offsets == list(range(20 * 58))
    assert faults(dump(indexes, "--index-sanity-check")) == []
    assert faults(dump(indexes)) == []

    offsets_logs = sorted(own_broker.data.glob("__consumer_offsets-*/*.log"))
    said = dump([log for log in offsets_logs if log.stat().st_size], "--offsets-decoder")
    assert faults(said) == []
    assert '"group":"g","topic":"t","partition":0' in said
    assert f'"offset":{20 * 58}' in said


def test_kafka_reads_producer_snapshots(
    own_broker: Broker, start_client: Callable[..., Client]
) -> None:
    client = start_client("confluent-kafka", own_broker.bootstrap_servers)  # idempotent
    client.call("create", topic="t", partitions=1, config={})
    client.produce("t", numbered_records(0, 10, 1))
    own_broker.stop()

    (snapshot,) = sorted((own_broker.data / "t-0").glob("*.snapshot"))[-1:]
    said = dump([snapshot])
    assert "producerId: " in said
    assert "lastDataRecordOffset" in said or "lastOffset: 9" in said
