"""java/ControlDriver.java against a broker, and Apache Kafka's own answers: `python -m compat_tests.java_control`.

The driver plays a controller with Kafka's request classes; what Kafka 3.9.1 in ZooKeeper mode answered to it stands in
tests/data/kafka-3.9-control.jsonl.gz, which this module writes anew when it is run.
"""

import gzip
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from compat_tests import tooling
from compat_tests.brokers import Broker
from compat_tests.mixed.processes import KafkaOnZooKeeper, Registry, ZooKeeper

ANSWERS = Path(__file__).parent.parent / "tests" / "data" / "kafka-3.9-control.jsonl.gz"
BROKER_ID = 1
_TIMEOUT_S = 100


def converse(broker: Broker, broker_epoch: int) -> list[dict[str, Any]]:
    """All steps of the driver with the broker's answers; lists in one order (Kafka's come out of hash maps)."""
    classes = tooling.java_program(tooling.HERE / "java" / "ControlDriver.java")
    argv = tooling.java_argv(tooling.KAFKA_BROKER, "ControlDriver", str(broker.port))
    argv[argv.index("-cp") + 1] = classes
    argv += [str(BROKER_ID), str(broker_epoch)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr}\n{broker.log_tail()}"
    return [_sorted(json.loads(line)) for line in done.stdout.splitlines()]


def _sorted(said: Any) -> Any:
    if isinstance(said, list):
        return sorted(map(_sorted, said), key=json.dumps)
    if isinstance(said, dict):
        return {key: _sorted(value) for key, value in said.items()}
    return said


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(ANSWERS.read_bytes()).splitlines()]


def ask_kafka(folder: Path) -> list[dict[str, Any]]:
    """Starts Apache Kafka in ZooKeeper mode and talks over its head: with a newer controller epoch than its own."""
    zookeeper = ZooKeeper(folder / "zookeeper")
    zookeeper.start()
    try:
        registry = Registry(zookeeper)
        kafka = KafkaOnZooKeeper(folder / "kafka", BROKER_ID, registry)
        try:
            kafka.start()
            return converse(kafka, registry.broker_epoch(BROKER_ID))
        finally:
            kafka.kill9()
            registry.close()
    finally:
        zookeeper.kill9()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        heard = ask_kafka(Path(folder))
    lines = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in heard)
    ANSWERS.write_bytes(gzip.compress(lines.encode(), mtime=0))
    print(f"{len(heard)} answers in {ANSWERS}")


if __name__ == "__main__":
    main()
