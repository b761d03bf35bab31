"""`kwire-events`: a cluster's event log as a table, and as a stream that follows it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from kwire.pipeline import event_lines
from spark_it.support import until

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(300)]


@pytest.fixture
def source(spark: Any) -> str:
    if spark.version.startswith("3."):
        pytest.skip("the Python data source is PySpark 4's")
    from kwire.pipeline.source import register

    register(spark)
    return "kwire-events"


def test_a_stream_of_events_goes_on_after_a_restart(
    spark: Any,
    source: str,
    brokers: Cluster,
    sink: Any,
    tmp_path: Path,
    fresh: Callable[[str], str],
) -> None:
    topic, path = fresh("told"), tmp_path / "events.json"
    before = event_lines.write(brokers.events(), tmp_path / "before.json")

    def run_until_read() -> None:
        stream = spark.readStream.format(source).load(str(path))
        query = (
            stream.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        query.stop()

    brokers.create_topic(topic, partitions=1, replication_factor=3)
    last = event_lines.write(brokers.events(since=before), path)
    with path.open("a") as file:
        file.write("a line of another program\n")
    run_until_read()
    leader = brokers.partition(topic, 0).leader
    brokers.broker(leader).kill()
    until(lambda: any(e.name == "LEADER_ELECTED" for e in brokers.events(since=last)))
    brokers.broker(leader).start()
    brokers.wait_in_sync()
    event_lines.write(brokers.events(since=last), path)
    run_until_read()

    rows = spark.read.format(source).load(str(path)).orderBy("number").collect()
    assert [row.number for row in sink.rows] == [row.number for row in rows]
    assert len(sink.sizes) == 2
    (elected,) = [row for row in rows if row.event == "LEADER_ELECTED" and row.topic == topic]
    assert elected.leader != leader and leader not in elected.isr
    assert elected.time.timestamp() > 1_700_000_000
    (foreign,) = [row for row in rows if row.level is None]
    assert foreign.message == "a line of another program" and foreign.event is None
    asked = spark.read.format(source).load(str(path)).where("event = 'KILL_REQUESTED'").first()
    assert (asked.node, asked.broker) == (None, leader)
