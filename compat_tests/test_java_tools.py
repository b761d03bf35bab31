"""Apache Kafka's own command line tools of three releases: old, the judged one, and newest."""

import json
import random
import string
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compat_tests import tooling
from compat_tests.brokers import Broker
from compat_tests.cases import START_MS, numbered_records
from compat_tests.clients import ALL_CODECS, Client, Record, eventually

pytestmark = pytest.mark.timeout(280)

TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-console-producer": f"{TOOLS}.ConsoleProducer",
    "kafka-console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-get-offsets": f"{TOOLS}.GetOffsetShell",
    "kafka-delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "kafka-producer-perf-test": f"{TOOLS}.ProducerPerformance",
}
OLD_CLASSES = {
    "kafka-topics": "kafka.admin.TopicCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "kafka.tools.ConsoleConsumer",
    "kafka-consumer-groups": "kafka.admin.ConsumerGroupCommand",
    "kafka-get-offsets": "kafka.tools.GetOffsetShell",
    "kafka-delete-records": "kafka.admin.DeleteRecordsCommand",
}
BY_VERSION = {
    "2.8.2": {**CLASSES, **OLD_CLASSES},
    "3.9.1": {**CLASSES, "kafka-console-producer": "kafka.tools.ConsoleProducer"},
    "4.3.1": CLASSES,
}


class Tools:
    """The tools of one release against one broker; `tools("kafka-topics", …)` gives what it printed."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version = version
        self.bootstrap = bootstrap
        tooling.kafka_jars(version)
        tooling.java()

    def argv(self, tool: str, *arguments: str) -> list[str]:
        if tool != "kafka-producer-perf-test":
            arguments = ("--bootstrap-server", self.bootstrap, *arguments)
        if tool == "kafka-get-offsets" and self.version == "2.8.2":
            arguments = ("--broker-list", *arguments[1:])
        return tooling.java_argv(self.version, BY_VERSION[self.version][tool], *arguments)

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> str:
        argv = self.argv(tool, *arguments)
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{tool} {arguments}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def knows_headers(self) -> bool:
        return self.version != "2.8.2"


def at_once(*works: Callable[[], str]) -> list[str]:
    """Runs a few tools side by side: most of a tool's time is the start of its Java."""
    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]


@pytest.fixture(params=BY_VERSION)
def tools(request: pytest.FixtureRequest, broker: Broker) -> Tools:
    return Tools(request.param, broker.bootstrap_servers)


def test_the_tools_of_a_release(tools: Tools, fresh: Callable[[str], str], tmp_path: Path) -> None:
    topic, group = fresh("java"), fresh("java-group")

    # kafka-topics: create with a configuration
    tools("kafka-topics", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1",
          "--config", "max.message.bytes=1000000")  # fmt: skip

    # kafka-console-producer: keys, headers where the tool has them, a codec
    lines = [f"key-{n}:value {n}" for n in range(20)]
    sent, extra = lines, ["--property", "parse.key=true", "--property", "key.separator=:"]
    if tools.knows_headers:
        sent = [f"trace#{n}\t{line}" for n, line in enumerate(lines)]
        extra += ["--property", "parse.headers=true", "--property", "headers.key.separator=#"]
    produce = ("--topic", topic, *extra, "--compression-codec", "lz4")
    tools("kafka-console-producer", *produce, stdin="\n".join(sent) + "\n")

    # kafka-console-consumer in a group, then what the group committed
    show = ["--property", "print.key=true", "--property", "key.separator=:"]
    if tools.knows_headers:
        show += ["--property", "print.headers=true"]
    read = tools("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning",
                 "--max-messages", "20", *show)  # fmt: skip
    shown = [f"trace:{n}:{line}" for n, line in enumerate(lines)] if tools.knows_headers else lines
    printed = [line for line in read.splitlines() if not line.startswith("Option --property is")]
    assert [line.replace("\t", ":") for line in printed] == shown

    described, groups, altered = at_once(
        lambda: tools("kafka-consumer-groups", "--describe", "--group", group),
        lambda: tools("kafka-consumer-groups", "--list"),
        lambda: tools("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", topic,
                      "--add-config", "retention.ms=3600000"),
    )  # fmt: skip
    row = next(line.split() for line in described.splitlines() if topic in line)
    assert row[:6] == [group, topic, "0", "20", "20", "0"]
    assert group in groups.split()
    assert "Completed updating config" in altered

    # kafka-configs, kafka-get-offsets, kafka-producer-perf-test
    configs, offsets, performance = at_once(
        lambda: tools("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", topic),
        lambda: tools("kafka-get-offsets", "--topic", topic),
        lambda: tools("kafka-producer-perf-test", "--topic", topic, "--num-records", "5000",
                      "--record-size", "200", "--throughput", "-1", "--producer-props",
                      f"bootstrap.servers={tools.bootstrap}", "compression.type=snappy"),
    )  # fmt: skip
    assert "retention.ms=3600000" in configs
    assert "max.message.bytes=1000000" in configs
    assert offsets.strip().startswith(f"{topic}:0:")
    assert "5000 records sent" in performance

    # kafka-delete-records, more partitions, the reset of a group
    wanted = tmp_path / "delete.json"
    partition = {"topic": topic, "partition": 0, "offset": 5015}
    wanted.write_text(json.dumps({"partitions": [partition], "version": 1}))
    deleted, _grown = at_once(
        lambda: tools("kafka-delete-records", "--offset-json-file", str(wanted)),
        lambda: tools("kafka-topics", "--alter", "--topic", topic, "--partitions", "3"),
    )
    assert "low_watermark: 5015" in deleted
    reset, shape, earliest = at_once(
        lambda: tools("kafka-consumer-groups", "--group", group, "--topic", f"{topic}:0",
                      "--reset-offsets", "--to-earliest", "--execute"),
        lambda: tools("kafka-topics", "--describe", "--topic", topic),
        lambda: tools("kafka-get-offsets", "--topic", topic, "--time", "-2"),
    )  # fmt: skip
    assert reset.split()[-1] == "5015"
    assert "PartitionCount: 3" in shape
    assert f"{topic}:0:5015" in earliest.split()

    # the reset group reads from there; then everything goes
    rest = tools(
        "kafka-console-consumer", "--topic", topic, "--group", group, "--max-messages", "5"
    )
    assert [len(line) for line in rest.splitlines()] == [200] * 5
    at_once(
        lambda: tools("kafka-consumer-groups", "--delete", "--group", group),
        lambda: tools("kafka-topics", "--delete", "--topic", topic),
    )
    groups, topics = at_once(
        lambda: tools("kafka-consumer-groups", "--list"), lambda: tools("kafka-topics", "--list")
    )
    assert group not in groups.split()
    assert topic not in topics.split()


def test_times_and_a_large_message(
    tools: Tools, client_pool: Callable[[str], Client], fresh: Callable[[str], str]
) -> None:
    topic, client = fresh("java-time"), client_pool("confluent-kafka")
    client.call("create", topic=topic, partitions=1, config={})
    client.produce(topic, [Record(b"t", timestamp=START_MS + 100 * n) for n in range(10)], "zstd")
    large = "".join(random.Random(7).choices(string.ascii_letters, k=900_000))

    offsets, _ = at_once(
        lambda: tools("kafka-get-offsets", "--topic", topic, "--time", str(START_MS + 250)),
        lambda: tools("kafka-console-producer", "--topic", topic, stdin=large + "\n"),
    )
    assert offsets.strip() == f"{topic}:0:3"
    assert [r.value for r in client.fetch(topic, 1, offset=10)] == [large.encode()]
    printed = tools("kafka-console-consumer", "--topic", topic, "--partition", "0", "--offset", "9",
                    "--max-messages", "2")  # fmt: skip
    assert printed == f"t\n{large}\n"


def test_two_consoles_share_a_group(
    tools: Tools, client_pool: Callable[[str], Client], fresh: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group, client = (
        fresh("java-pair"),
        fresh("java-pair-group"),
        client_pool("confluent-kafka"),
    )
    client.call("create", topic=topic, partitions=2, config={})
    written = 0

    def console(name: str) -> "subprocess.Popen[bytes]":
        timing = ["--consumer-property", "heartbeat.interval.ms=200"]
        argv = tools.argv(
            "kafka-console-consumer",
            "--topic",
            topic,
            "--group",
            group,
            "--from-beginning",
            *timing,
        )
        with (tmp_path / name).open("wb") as out, (tmp_path / f"{name}.err").open("wb") as errors:
            return subprocess.Popen(argv, stdout=out, stderr=errors)

    def read(name: str) -> set[int]:
        return {int(line) for line in (tmp_path / name).read_text().splitlines() if line.isdigit()}

    def written_until(condition: Callable[[], bool]) -> None:
        """Writes to both partitions until the condition holds."""
        nonlocal written

        def more() -> bool:
            nonlocal written
            client.produce(topic, numbered_records(written, written + 2, 2))
            written += 2
            return condition()

        eventually(more, 40)

    first = console("first")
    second = None
    try:
        written_until(lambda: {0, 1} <= read("first"))
        second = console("second")
        written_until(lambda: bool(read("second")))
        theirs = read("second")
        assert len({number % 2 for number in theirs}) == 1, "each member holds one partition"
        second.terminate()  # its shutdown hook says goodbye
        second.wait(20)
        left_at = written
        partition = next(iter(theirs)) % 2
        written_until(lambda: any(n >= left_at and n % 2 == partition for n in read("first")))
        eventually(lambda: read("first") | read("second") == set(range(written)))
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_java_and_a_library_read_each_other(
    broker: Broker, client_pool: Callable[[str], Client], fresh: Callable[[str], str], codec: str
) -> None:
    java, client, topic = (
        Tools("3.9.1", broker.bootstrap_servers),
        client_pool("confluent-kafka"),
        fresh("java-x"),
    )
    client.call("create", topic=topic, partitions=1, config={})
    lines = [f"line {n} of {codec}" for n in range(50)]

    java(
        "kafka-console-producer",
        "--topic",
        topic,
        "--compression-codec",
        codec,
        stdin="\n".join(lines) + "\n",
    )
    read = client.fetch(topic, len(lines))
    assert [(r.value or b"").decode() for r in read] == lines

    client.produce(topic, read, codec)
    printed = java(
        "kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "100"
    )
    assert printed.splitlines() == lines * 2


@pytest.mark.kwire_only
def test_there_is_no_quorum_and_transactions_are_the_only_feature(broker: Broker) -> None:
    """Said as such: a metadata.version would promise what kwire does not have."""

    def run(tool: str, *arguments: str) -> tuple[int, str]:
        argv = tooling.java_argv("3.9.1", f"{TOOLS}.{tool}", "--bootstrap-server")
        argv += [broker.bootstrap_servers, *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    code, text = run("FeatureCommand", "describe")
    (feature,) = text.splitlines()
    assert code == 0 and feature.startswith("Feature: transaction.version\t")
    code, text = run("FeatureCommand", "upgrade", "--feature", "metadata.version=20")
    assert code == 1 and "The node does not support UPDATE_FEATURES" in text
    code, text = run("MetadataQuorumCommand", "describe", "--status")
    assert code == 1 and "The node does not support DESCRIBE_QUORUM" in text
