"""SIGUSR1: how every node is, in the log."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from server_harness import kwire_up

from kwire.control.status import lines, log_snapshot
from kwire.server import logs


@contextmanager
def node(
    role: str, node_id: int, folder: Path, controller: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """`kwire node`."""
    more = ["--data-dir", str(folder)]
    if controller:
        more += ["--controller", controller]
    process = subprocess.Popen(
        [sys.executable, "-m", "kwire", "node", "--roles", role, "--id", str(node_id), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> str:
    """The ready line."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line.startswith("ready id=")
    return line


def lines_until(process: subprocess.Popen[str], *wanted: str) -> list[str]:
    """What is logged, until each of `wanted` was."""
    assert process.stderr is not None
    found: list[str] = []
    while not all(any(text in line for line in found) for text in wanted):
        line = process.stderr.readline()
        assert line, found
        found.append(line)
    return found


@pytest.mark.timeout(30)
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_cluster_tells_of_every_node(isolation: str) -> None:
    arguments = ("--brokers", "3", "--isolation", isolation, "--topic", "orders:3:3")
    with kwire_up(*arguments) as (process, _):
        process.send_signal(signal.SIGUSR1)
        led = [f"orders-{index} leads, leader epoch 0, ISR 1,2,3" for index in range(3)]
        found = lines_until(process, "ActiveBrokerCount=3", *led, "node_id=3")
        assert any("orders-0 follows " in line for line in found)
        process.send_signal(signal.SIGUSR1)  # and it can be asked again
        lines_until(process, "ActiveBrokerCount=3", *led)


@pytest.mark.timeout(30)
def test_a_node_by_hand_tells_of_itself_also_while_it_starts(tmp_path: Path) -> None:
    with node("controller", 1000, tmp_path / "c") as controller:
        address = ready(controller).partition("bootstrap=")[2]
        with node("broker", 1, tmp_path / "1", f"1000@{address}") as broker:
            ready(broker)
            broker.send_signal(signal.SIGUSR1)
            lines_until(broker, "PartitionCount=0 LeaderCount=0", "FetchErrors=0")
        controller.send_signal(signal.SIGUSR1)
        lines_until(controller, "controller 1000 is active with epoch 1", "ActiveControllerCount=1")
    with node("broker", 2, tmp_path / "2", "1000@127.0.0.1:1") as broker:
        lines_until(broker, "waiting for the controller")
        broker.send_signal(signal.SIGUSR1)
        lines_until(broker, "is starting")
        assert broker.poll() is None


@pytest.mark.timeout(30)
def test_a_broker_whose_id_is_taken_says_so(tmp_path: Path) -> None:
    with node("controller", 1000, tmp_path / "c") as controller:
        address = f"1000@{ready(controller).partition('bootstrap=')[2]}"
        with node("broker", 1, tmp_path / "1", address) as broker:
            ready(broker)
            with node("broker", 1, tmp_path / "again", address) as second:
                lines_until(second, "DUPLICATE_BROKER_REGISTRATION; is another broker 1 alive?")
        with node("broker", 1000, tmp_path / "1000", address) as broker:
            lines_until(broker, "kwire node: the controller takes no broker of id 1000")
            assert broker.wait(20) == 1


@pytest.mark.timeout(30)
def test_a_broker_alone_tells_of_itself() -> None:
    with kwire_up("--topic", "orders") as (process, _):
        process.send_signal(signal.SIGUSR1)
        lines_until(
            process,
            "PartitionCount=1 LeaderCount=1",
            "orders-0 leads, leader epoch 0, ISR 1: offsets 0 to 0, high watermark 0, 0 bytes",
        )


def test_status_as_json_has_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", as_json=True)
    log_snapshot(3, {"counts": {"MaxLag": 4}, "failed": ["u-3"], "truncations": ["u-1 cut"]})
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    texts = ["MaxLag=4", "not followed any more: u-3", "u-1 cut"]
    assert [each["message"] for each in told] == texts
    assert {each["event"] for each in told} == {"NODE_STATUS"}
    assert told[0]["counts"] == {"MaxLag": 4}
    assert told[1]["failed"] == ["u-3"]
    assert {each["node_id"] for each in told} == {3}


def test_lags_and_proposals_are_told() -> None:
    partition = {
        "topic": "t",
        "partition": 0,
        "leads": True,
        "leader_epoch": 3,
        "isr": [1, 2],
        "pending_isr": [1, 2, 3],
        "log_start_offset": 5,
        "log_end_offset": 20,
        "high_watermark": 18,
        "size_bytes": 777,
        "followers": [
            {"broker_id": 2, "lag": 2, "caught_up_ms_ago": 40, "in_isr": True},
            {"broker_id": 3, "lag": -1, "caught_up_ms_ago": -1, "in_isr": False},
            {"broker_id": 4, "lag": 0, "caught_up_ms_ago": 120, "in_isr": True},
        ],
    }
    offsets = {name: partition[name] for name in partition if "offset" in name or "_" in name}
    follows = {**offsets, "topic": "t", "leads": False, "leader_id": 2}
    behind = {**follows, "partition": 1, "lag": 3, "lag_ms": 700}
    caught_up = {**follows, "partition": 2, "lag": 0, "lag_ms": 0}
    fresh = {**follows, "partition": 3, "lag": None, "lag_ms": None}
    fetcher = {
        "leader": 2,
        "id": 0,
        "partitions": 7,
        "requests_per_second": 2.04,
        "bytes_per_second": 99.6,
        "answers": 12,
        "failures": 1,
        "latency_ms": 470.4,
        "latency_max_ms": 503,
        "answered_ms_ago": 17,
    }
    partitions = [partition, behind, caught_up, fresh]
    status = {"counts": {"MaxLag": 4}, "partitions": partitions, "fetchers": [fetcher]}
    more = {"failed": ["u-3", "u-4"], "truncations": ["u-1 cut from 3 to 2: why"]}
    assert lines({**status, **more}) == [
        "MaxLag=4",
        "t-0 leads, leader epoch 3, ISR 1,2 (proposed: 1,2,3): offsets 5 to 20, high watermark 18, 777 bytes; "
        "lag of 2: 2, caught up 40 ms ago; lag of 3: not known, caught up never, not in sync; lag of 4: 0",
        "t-1 follows 2, leader epoch 3: offsets 5 to 20, high watermark 18, 777 bytes; lag: 3 for 700 ms",
        "t-2 follows 2, leader epoch 3: offsets 5 to 20, high watermark 18, 777 bytes; lag: 0",
        "t-3 follows 2, leader epoch 3: offsets 5 to 20, high watermark 18, 777 bytes",
        "fetches from 2 (fetcher 0): 7 partitions, 2.0 requests/s, 100 bytes/s, 12 answered after 470 ms"
        " (at most 503 ms), the last 17 ms ago, 1 failed",
        "not followed any more: u-3, u-4",
        "u-1 cut from 3 to 2: why",
    ]
