"""Several log directories, by Kafka's own tools: a replica moves from one to the other while it is written to."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from compat_tests import tooling
from compat_tests.cluster import Cluster, running, until
from compat_tests.stock import Writer, read
from compat_tests.test_disk import dump, faults

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(240)]

TOOLS = "org.apache.kafka.tools"


def tool(name: str, cluster: Cluster, *arguments: str) -> str:
    argv = tooling.java_argv(
        "3.9.1", f"{TOOLS}.{name}", "--bootstrap-server", cluster.bootstrap, *arguments
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def log_dirs(cluster: Cluster) -> dict[str, dict[str, dict[str, Any]]]:
    """Directory → topic-partition → what kafka-log-dirs says of it."""
    said = tool("LogDirsCommand", cluster, "--describe", "--topic-list", "t")
    brokers = json.loads(said.splitlines()[-1])["brokers"]
    return {
        found["logDir"]: {each["partition"]: each for each in found["partitions"]}
        for broker in brokers
        for found in broker["logDirs"]
    }


def test_kafkas_tools_move_a_replica_between_directories(tmp_path: Path) -> None:
    with running(tmp_path, brokers=2, dirs=2) as cluster:
        cluster.create("t", [[1, 2], [1, 2]], {"segment.bytes": "20000"})
        writer = Writer(cluster.bootstrap)
        values = [f"{number:05}" * 100 for number in range(400)]
        for value in values[:300]:
            writer.send("t", value)
        source = cluster.directory(1, "t", 0).parent
        target = cluster.directory(1, "t", 1).parent
        assert source != target
        plan = tmp_path / "plan.json"
        wanted = {
            "topic": "t",
            "partition": 0,
            "replicas": [1, 2],
            "log_dirs": [str(target), "any"],
        }
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        options = ("--reassignment-json-file", str(plan))
        said = tool("reassign.ReassignPartitionsCommand", cluster, *options, "--execute")
        assert "Successfully started moving log directory" in said
        for value in values[300:]:
            writer.send("t", value)
        until(lambda: (target / "t-0").is_dir() and not (source / "t-0").exists())
        said = tool("reassign.ReassignPartitionsCommand", cluster, *options, "--verify")
        assert "Reassignment of replica t-0-1 completed successfully" in said
        found = log_dirs(cluster)
        assert set(found[str(target)]) == {"t-0", "t-1"} and found[str(source)] == {}
        moved = found[str(target)]["t-0"]
        assert (moved["offsetLag"], moved["isFuture"]) == (0, False) and moved["size"] > 200_000
        assert writer.errors == [] and read(cluster.bootstrap, "t") == values
        cluster.await_equal_logs("t", 1, 2)
        cluster.stop(1)
        cluster.start(1)
        cluster.await_isr("t", 1, 2, by=2)
        assert read(cluster.bootstrap, "t") == values
        files = sorted((target / "t-0").glob("*.log")) + sorted((target / "t-0").glob("*.index"))
        assert len(files) > 10
        assert faults(dump(files, "--deep-iteration")) == []
