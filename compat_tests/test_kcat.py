"""kcat (librdkafka from a shell): codecs, keys, headers, a group, times, an auto-created topic."""

import json
import subprocess
from collections.abc import Callable

import pytest

from compat_tests import tooling
from compat_tests.brokers import Broker
from compat_tests.cases import START_MS
from compat_tests.clients import ALL_CODECS, Client, Record, eventually

pytestmark = pytest.mark.timeout(90)
Fresh = Callable[[str], str]


@pytest.fixture
def kcat(broker: Broker) -> Callable[..., str]:
    """Runs kcat against the broker: `kcat("-P", "-t", topic, stdin=…)` gives what it printed."""

    def run(*arguments: str, stdin: bytes = b"") -> str:
        argv = [
            tooling.kcat(),
            "-b",
            broker.bootstrap_servers,
            "-X",
            "broker.address.family=v4",
            *arguments,
        ]
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return run


def consumed(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_kcat_reads_the_lines_it_produced(
    kcat: Callable[..., str], fresh: Fresh, codec: str
) -> None:
    topic = fresh(f"kcat-{codec}")
    lines = [f"key-{n}:value {n} of {codec}" for n in range(200)]

    kcat(
        "-P",
        "-t",
        topic,
        "-K",
        ":",
        "-z",
        codec,
        "-p",
        "0",
        "-H",
        "a=b",
        stdin="\n".join(lines).encode(),
    )
    read = consumed(kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J"))

    assert [f"{r['key']}:{r['payload']}" for r in read] == lines
    assert [r["offset"] for r in read] == list(range(200))
    assert all(r["headers"] == ["a", "b"] for r in read)


def test_kcat_lists_the_topic_it_created_by_producing(
    kcat: Callable[..., str], fresh: Fresh
) -> None:
    topic = fresh("kcat-auto")
    kcat("-P", "-t", topic, stdin=b"one\n")
    listed = json.loads(kcat("-L", "-J", "-t", topic))
    assert [t["topic"] for t in listed["topics"]] == [topic]
    assert listed["topics"][0]["partitions"][0]["leader"] == listed["brokers"][0]["id"]


def test_kcat_resumes_where_its_group_committed(kcat: Callable[..., str], fresh: Fresh) -> None:
    topic, group = fresh("kcat-group-topic"), fresh("kcat-group")
    kcat("-P", "-t", topic, "-p", "0", stdin=b"a\nb\nc\n")
    arguments = ["-G", group, "-q", "-X", "auto.offset.reset=earliest", topic]
    assert kcat("-c", "2", *arguments).split() == ["a", "b"]
    assert kcat("-c", "1", *arguments).split() == ["c"]


def test_two_kcats_share_a_group_until_one_leaves(
    broker: Broker, client_pool: Callable[[str], Client], fresh: Fresh
) -> None:
    topic, group = fresh("kcat-pair"), fresh("kcat-pair-group")
    client_pool("kafka-python-3").call("create", topic=topic, partitions=2, config={})

    def member() -> "subprocess.Popen[str]":
        argv = [tooling.kcat(), "-b", broker.bootstrap_servers, "-G", group, topic]
        argv += ["-X", "heartbeat.interval.ms=200", "-X", "session.timeout.ms=6000"]
        return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def assigned(process: "subprocess.Popen[str]") -> list[str]:
        """The partitions of the next assignment that kcat tells of."""
        assert process.stderr is not None
        line = next(line for line in process.stderr if "assigned: " in line)
        return sorted(part.strip() for part in line.split("assigned: ")[1].split(","))

    both = [f"{topic} [0]", f"{topic} [1]"]
    with member() as first:
        try:
            assert assigned(first) == both
            with member() as second:
                try:
                    assert sorted(assigned(first) + assigned(second)) == both
                finally:
                    second.terminate()
            assert assigned(first) == both
        finally:
            first.terminate()


def test_kcat_finds_offsets_by_time(
    kcat: Callable[..., str], client_pool: Callable[[str], Client], fresh: Fresh
) -> None:
    topic, client = fresh("kcat-time"), client_pool("kafka-python-3")
    client.call("create", topic=topic, partitions=1, config={})
    client.produce(topic, [Record(b"t", timestamp=START_MS + 100 * n) for n in range(10)], "gzip")

    assert kcat("-Q", "-t", f"{topic}:0:{START_MS + 250}").split()[-1] == "3"
    from_time = kcat(
        "-C", "-t", topic, "-p", "0", "-o", f"s@{START_MS + 700}", "-e", "-q", "-f", "%o "
    )
    assert from_time.split() == ["7", "8", "9"]


def test_kcat_and_a_library_read_each_other(
    kcat: Callable[..., str], client_pool: Callable[[str], Client], fresh: Fresh
) -> None:
    topic, client = fresh("kcat-cross"), client_pool("kafka-python-3")
    client.call("create", topic=topic, partitions=1, config={})
    for codec in ALL_CODECS:
        client.produce(topic, [Record(f"library {codec}".encode())], codec)
        kcat("-P", "-t", topic, "-p", "0", "-z", codec, stdin=f"kcat {codec}\n".encode())
    expected = [f"{who} {codec}" for codec in ALL_CODECS for who in ("library", "kcat")]

    assert (
        kcat("-C", "-t", topic, "-p", "0", "-e", "-q", "-o", "beginning").splitlines() == expected
    )
    assert [(r.value or b"").decode() for r in client.fetch(topic, len(expected))] == expected


def test_kcat_is_told_of_records_deleted_under_it(
    kcat: Callable[..., str], client_pool: Callable[[str], Client], fresh: Fresh
) -> None:
    topic, client = fresh("kcat-deleted"), client_pool("kafka-python-3")
    client.call("create", topic=topic, partitions=1, config={})
    kcat("-P", "-t", topic, "-p", "0", stdin=b"0\n1\n2\n3\n4\n")
    eventually(lambda: client.call("delete_records", topic=topic, partition=0, before=3))
    assert kcat("-C", "-t", topic, "-p", "0", "-e", "-q", "-o", "beginning").split() == ["3", "4"]
