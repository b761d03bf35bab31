"""`kwire ctl`, `requests` and `top`: the requests that they send, and what they print of the answers."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import server_harness
from click.testing import CliRunner

from kwire.cli.main import cli
from kwire.control import ctl as control_ctl
from kwire.control.errors import ControlError
from kwire.control.route import find_route
from kwire.control.routes import OF_CLUSTER

TIMEOUT = 30
BROKER = {"id": 2, "address": "127.0.0.1:9093", "running": True, "paused": False}
CLUSTER = {
    "bootstrap": "127.0.0.1:9092",
    "brokers": [BROKER],
    "controllers": [{**BROKER, "id": 1000, "active": True}],
}
PARTITION = {"topic": "orders", "partition": 0, "leader": 2, "leader_epoch": 5, "isr": [1, 2]}
# Words, the request that they make, and the first line of what is printed.
FAULT = {
    "id": "fault-1",
    "rule": {"api": "Produce", "topic": "orders", "drop": "after", "times": 1},
    "hits": 1,
    "requests": [],
}
CLOCK = {"now_ms": 1_700_000_000_123, "offset_ms": 5_400_000, "frozen": True}
CLOCK_LINE = "2023-11-14T22:13:20.123+00:00  1h30m ahead of real time  frozen"
FAULT_LINE = "fault-1  Produce topic=orders: handled, never answered, 1 time; 1 request hit"
DISK = {
    "id": "disk-1",
    "node": 1,
    "rule": {"act": "fail", "operation": "append", "topic": "orders", "times": 1},
    "hits": 1,
}
DISK_LINE = "disk-1  node 1: append fails with EIO, topic=orders, 1 time; 1 operation hit"
SNAPSHOT = {"name": "base", "brokers": 2, "size_bytes": 2_500_000, "path": "/data/base"}
SNAPSHOT_LINE = "base  2 broker(s), 2.5 MB, /data/base"
VERBS: list[tuple[str, tuple[str, str, dict[str, Any] | None], str]] = [
    ("status", ("GET", "/v1/cluster", None), "controller 1000 127.0.0.1:9093 running active"),
    ("status 2", ("GET", "/v1/nodes/2/status", None), "MaxLag=3 DeadThreadCount=0"),
    ("cut 1 2,3", ("POST", "/v1/network/cuts", {"a": [1], "b": [2, 3]}), "cut 1 2,3"),
    (
        "delay 1 2 50",
        ("POST", "/v1/network/delays", {"a": [1], "b": [2], "milliseconds": 50.0}),
        "delay 1 2 50",
    ),
    ("heal", ("DELETE", "/v1/network/cuts", {}), "healed cut 1 2"),
    ("heal 1", ("DELETE", "/v1/network/cuts", {"a": [1]}), "healed cut 1 2"),
    ("heal 1 2", ("DELETE", "/v1/network/cuts", {"a": [1], "b": [2]}), "healed cut 1 2"),
    ("network", ("GET", "/v1/network", None), "cut 1 2"),
    ("network --json", ("GET", "/v1/network", None), "{"),
    (
        "fault add Produce --topic orders --drop after --times 1",
        (
            "POST",
            "/v1/faults",
            {"api": "Produce", "drop": "after", "topic": "orders", "times": 1},
        ),
        "fault-1",
    ),
    (
        "disk fail 1 append --topic orders --times 1",
        ("POST", "/v1/nodes/1/disk/fail", {"operation": "append", "topic": "orders", "times": 1}),
        "disk-1",
    ),
    ("disk full 2 --directory b", ("POST", "/v1/nodes/2/disk/full", {"directory": "b"}), "disk-1"),
    (
        "disk slow 2 20 --operation read",
        ("POST", "/v1/nodes/2/disk/slow", {"milliseconds": 20.0, "operation": "read"}),
        "disk-1",
    ),
    ("disk list", ("GET", "/v1/disks", None), DISK_LINE),
    ("disk list --json", ("GET", "/v1/disks", None), "{"),
    ("disk rm disk-1", ("DELETE", "/v1/disks/disk-1", None), DISK_LINE),
    ("disk heal", ("DELETE", "/v1/disks", None), DISK_LINE),
    ("disk heal 1", ("DELETE", "/v1/nodes/1/disk", None), DISK_LINE),
    (
        "cut 1 2 --one-way",
        ("POST", "/v1/network/cuts", {"a": [1], "b": [2], "one_way": True}),
        "cut 1 2 --one-way",
    ),
    (
        "delay 1 2 50 --one-way",
        (
            "POST",
            "/v1/network/delays",
            {"a": [1], "b": [2], "milliseconds": 50.0, "one_way": True},
        ),
        "delay 1 2 50 --one-way",
    ),
    ("fault list", ("GET", "/v1/faults", None), FAULT_LINE),
    ("fault list --json", ("GET", "/v1/faults", None), "{"),
    ("fault rm fault-1", ("DELETE", "/v1/faults/fault-1", None), FAULT_LINE),
    ("fault rm --all", ("DELETE", "/v1/faults", None), FAULT_LINE),
    ("snapshot save base", ("POST", "/v1/snapshots", {"name": "base"}), SNAPSHOT_LINE),
    ("snapshot save", ("POST", "/v1/snapshots", {}), SNAPSHOT_LINE),
    ("snapshot save --json", ("POST", "/v1/snapshots", {}), "{"),
    ("snapshot restore base", ("POST", "/v1/snapshots/base/restore", {}), "restored base"),
    ("snapshot list", ("GET", "/v1/snapshots", None), SNAPSHOT_LINE),
    ("snapshot list --json", ("GET", "/v1/snapshots", None), "{"),
    ("snapshot rm base", ("DELETE", "/v1/snapshots/base", None), "deleted base"),
    ("clock advance 1h30m", ("POST", "/v1/clock", {"milliseconds": 5_400_000}), CLOCK_LINE),
    ("clock freeze", ("POST", "/v1/clock/freeze", None), CLOCK_LINE),
    ("clock resume", ("POST", "/v1/clock/resume", None), CLOCK_LINE),
    ("clock now", ("GET", "/v1/clock", None), CLOCK_LINE),
    ("topics", ("GET", "/v1/topics", None), "orders 3"),
    ("topics --json", ("GET", "/v1/topics", None), "{"),
    ("partition orders 0", ("GET", "/v1/topics/orders/partitions/0", None), "{"),
    (
        "elect orders 0 2 --unclean",
        (
            "POST",
            "/v1/elections",
            {"topic": "orders", "partition": 0, "leader": 2, "unclean": True},
        ),
        "orders-0 leader 2 epoch 5 isr 1,2",
    ),
    (
        "elect orders 0",
        ("POST", "/v1/elections", {"topic": "orders", "partition": 0}),
        "orders-0 leader 2 epoch 5 isr 1,2",
    ),
    ("compact a/b", ("POST", "/v1/topics/a%2Fb/compact", {}), "compacted a/b"),
    ("retention", ("POST", "/v1/retention", {}), "retention of all topics: done"),
    (
        "retention orders",
        ("POST", "/v1/retention", {"topic": "orders"}),
        "retention of orders: done",
    ),
    ("reset", ("POST", "/v1/reset", {}), "reset"),
    ("reset --keep-clients", ("POST", "/v1/reset", {"keep_clients": True}), "reset"),
    ("events", ("GET", "/v1/events", {}), "no events"),
    (
        "events --name NODE_STOPPED --topic orders --broker 2 --json",
        ("GET", "/v1/events", {"name": "NODE_STOPPED", "topic": "orders", "broker": 2}),
        "{",
    ),
    ("requests", ("GET", "/v1/requests", None), "  -0.010 s  broker 2  app  Produce v9  ok"),
    ("requests --clear", ("DELETE", "/v1/requests", {}), "cleared"),
    ("clients", ("GET", "/v1/clients", None), "till (x 1) 127.0.0.1:5 at broker 2, group shop"),
    ("clients --json", ("GET", "/v1/clients", None), "{"),
    ("failures", ("GET", "/v1/failures", None), "Traceback"),
    *(
        (f"{kind} {verb} 2", ("POST", f"/v1/{kind}s/2/{verb}", None), f"{kind} 2 127.0.0.1:9093")
        for kind in ("broker", "controller")
        for verb in ("start", "stop", "kill", "pause", "resume")
    ),
]
RULES = {"cuts": [{"a": 1, "b": 2}], "delays": [{"a": 1, "b": 3, "milliseconds": 50}]}
ANSWERS: dict[str, Any] = {
    "/v1/cluster": CLUSTER,
    "/v1/nodes/2/status": {"counts": {"MaxLag": 3, "DeadThreadCount": 0}},
    "/v1/topics": {"topics": {"orders": 3}},
    "/v1/topics/orders/partitions/0": PARTITION,
    "/v1/elections": PARTITION,
    "/v1/network": RULES,
    "/v1/network/cuts": RULES,
    "/v1/faults": {"id": "fault-1", "faults": [FAULT]},
    "/v1/faults/fault-1": FAULT,
    "/v1/disks": {"faults": [DISK]},
    "/v1/disks/disk-1": DISK,
    "/v1/nodes/1/disk": {"faults": [DISK]},
    "/v1/nodes/1/disk/fail": DISK,
    "/v1/nodes/2/disk/full": DISK,
    "/v1/nodes/2/disk/slow": DISK,
    "/v1/snapshots": {**SNAPSHOT, "snapshots": [SNAPSHOT]},
    "/v1/snapshots/base": SNAPSHOT,
    "/v1/snapshots/base/restore": SNAPSHOT,
    "/v1/clock": CLOCK,
    "/v1/clock/freeze": CLOCK,
    "/v1/clock/resume": CLOCK,
    "/v1/clients": {
        "clients": [
            {
                "broker": 2,
                "address": "127.0.0.1:5",
                "client_id": "till",
                "software": "x 1",
                "group": "shop",
                "api": "",
                "idle_ms": 3,
            }
        ]
    },
    "/v1/failures": {"failures": ["Traceback\n  x"]},
    "/v1/events": {"events": []},
    "/v1/requests": {
        "requests": [
            {
                "broker": broker,
                "milliseconds_ago": 5 * broker,
                "client_id": client,
                "api": api,
                "outcome": "ok",
            }
            for broker, client, api in ((2, "app", "Produce v9"), (1, "app", "Fetch v12"))
        ]
    },
}
# Routes without a verb of `kwire ctl`, and why.
ELSEWHERE = {
    ("GET", "/healthz"): "for health checks",
    ("GET", "/"): "lists the others",
    ("GET", "/v1"): "lists the others",
    ("GET", "/v1/openapi.json"): "for generators of clients",
    ("GET", "/metrics"): "for Prometheus",
    ("GET", "/v1/live"): "for the page",
    ("GET", "/v1/report"): "kwire report",
    ("DELETE", "/v1/network/delays"): "heal",
    ("GET", "/v1/faults/{id}"): "fault list",
    ("GET", "/v1/snapshots/{name}"): "snapshot list",
    ("POST", "/v1/topics"): "kwire topics create",
    ("GET", "/v1/topics/{topic}"): "kwire partitions",
    ("DELETE", "/v1/topics/{topic}"): "kwire topics delete",
    ("GET", "/v1/topics/{topic}/partitions"): "kwire partitions",
    ("GET", "/v1/topics/{topic}/records"): "kwire consume",
    ("POST", "/v1/topics/{topic}/records"): "kwire produce",
    ("GET", "/v1/groups"): "kwire groups",
    ("GET", "/v1/groups/{group}"): "kwire groups",
    ("GET", "/v1/transactions"): "kwire transactions",
    ("POST", "/v1/transactions/{transaction}/fence"): "kwire transactions fence",
    ("GET", "/v1/transactions/{transaction}"): "kwire transactions describe",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    """The requests that are made; they are answered from ANSWERS."""
    requests: list[tuple[str, str, Any]] = []

    def call(url: str, method: str, path: str, body: Any = None, seconds: float = 0) -> Any:
        assert url == "http://x:1"
        requests.append((method, path, body))
        if path.startswith(("/v1/brokers/", "/v1/controllers/")):
            return BROKER
        return ANSWERS.get(path, {})

    monkeypatch.setattr(control_ctl, "call", call)
    monkeypatch.setenv("KWIRE_CONTROL", "http://x:1")
    return requests


def run(words: str) -> str:
    done = CliRunner().invoke(cli, words.split(), prog_name="kwire")
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("words", "request_", "line"), VERBS, ids=lambda it: str(it)[:30])
def test_a_verb(
    words: str, request_: tuple[str, str, Any], line: str, asked: list[tuple[str, str, Any]]
) -> None:
    assert run(f"ctl {words}").splitlines()[0].startswith(line)
    assert asked == [request_]


def test_nodes_are_named_by_their_ids_alone(asked: list[tuple[str, str, Any]]) -> None:
    assert run("ctl kill 2 1000") == (
        "broker 2 127.0.0.1:9093 running\ncontroller 2 127.0.0.1:9093 running\n"
    )
    changes = [request[:2] for request in asked if request[0] == "POST"]
    assert changes == [("POST", "/v1/brokers/2/kill"), ("POST", "/v1/controllers/1000/kill")]


def test_the_network_as_text() -> None:
    assert control_ctl.network_text(ANSWERS["/v1/network"]) == "cut 1 2\ndelay 1 3 50"
    assert control_ctl.network_text({"cuts": [], "delays": []}) == "no cuts or delays"
    assert control_ctl.healed_text(ANSWERS["/v1/network"]) == "healed cut 1 2\nhealed delay 1 3 50"
    assert control_ctl.healed_text({"cuts": [], "delays": []}) == "nothing to heal"
    of_container = {"rules": [{"to": 2, "delay_ms": None}, {"to": 3, "delay_ms": 5}]}
    assert control_ctl.network_text(of_container) == "cut 2\ndelay 3 5"


def test_every_route_of_a_cluster_has_a_verb() -> None:
    found = set()
    for _, (method, path, _), _ in VERBS:
        try:
            route, _ = find_route(OF_CLUSTER, method, path)
        except ControlError:
            continue  # not served yet
        found.add((route.method, route.path))
    missing = {(route.method, route.path) for route in OF_CLUSTER} - found - ELSEWHERE.keys()
    assert not missing


def test_requests_are_selected(asked: list[tuple[str, str, Any]]) -> None:
    for words, apis in (
        ("--api fetch", ["Fetch v12"]),
        ("--broker 2", ["Produce v9"]),
        ("--client app", ["Produce v9", "Fetch v12"]),
        ("--client other", []),
    ):
        found = json.loads(run(f"requests {words} --json"))["requests"]
        assert [each["api"] for each in found] == apis, words
    assert run("requests --client other") == "no requests\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("cut 1 x", "expected node ids, 2 or 2,3, not 'x'"),
        ("delay 1 2 -5", "'MILLISECONDS': expected milliseconds of 0 or more, not -5 (try"),
        ("delay 1 2 nan", "expected milliseconds of 0 or more, not nan (try"),
        ("kill", "Missing argument 'ID…'"),
        (
            "clock advance 8x",
            "expected an amount of time such as 8d, 1h30m, 45s or 250ms, not '8x'",
        ),
        ("fault rm", "expected ids of faults, or --all"),
        ("fault add Produce --times x", "'--times'"),
        ("statu", "Did you mean"),
        ("events --name leader_elect", "no event leader_elect; did you mean LEADER_ELECTED?"),
        ("events --name foo", "there is no event foo (try"),
        ("--port 99999 status", "'--port': expected a number from 1 to 65535, not 99999 (try"),
        ("elect orders x", "'PARTITION': expected a whole number, not 'x' (try"),
        ("elect orders 9999999999", "expected a number from 0 to 2147483647, not 9999999999 (try"),
    ],
)
def test_a_mistake_is_one_line(words: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kwire", "ctl", *words.split()],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
    assert said in done.stderr


def test_requests_of_an_unknown_api_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kwire", "requests", "--api", "Fetsh"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
    assert "there is no API Fetsh; did you mean Fetch?" in done.stderr


# --- a running one


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    """The first port of a cluster that runs, with kept requests."""
    options = ["--brokers", "2", "--topic", "orders:1:2", "--recent-requests"]
    with server_harness.kwire_up(*options) as (_, ready):
        yield ready.split()[1].rpartition(":")[2]


def kwire(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kwire", *words], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ctl_finds_the_running_cluster(running: str) -> None:
    assert len(kwire("ctl", "status").splitlines()) == 3
    assert kwire("ctl", "topics", "--port", running) == "orders 1\n"
    leader = json.loads(kwire("ctl", "partition", "orders", "0"))["leader"]
    other = 3 - leader
    elected = kwire("ctl", "elect", "orders", "0", str(other))
    assert elected.startswith(f"orders-0 leader {other} epoch ")


def test_events_are_listed_and_followed(running: str) -> None:
    words = ["ctl", "events", "--name", "CUT_REQUESTED"]
    following = subprocess.Popen(
        [sys.executable, "-m", "kwire", *words, "--follow"], stdout=subprocess.PIPE, text=True
    )
    assert following.stdout is not None
    try:
        kwire("ctl", "cut", "1", "2")
        kwire("ctl", "heal")
        line = following.stdout.readline()
        assert line.endswith("  cluster  control: cut 1 | 2\n")
        assert line in kwire(*words)
    finally:
        following.kill()
        following.communicate()


def test_requests_of_a_client(running: str) -> None:
    kwire("produce", "orders", "tea")
    found = kwire("requests", "--api", "Produce", "--client", "kwire")
    assert "Produce v" in found and "orders-0: ok" in found


def test_top_once_and_on_a_terminal(running: str) -> None:
    kwire("produce", "orders", "tea")
    text = kwire("top", "--once")
    assert "broker 2 127.0.0.1:" in text and "last requests:" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("orders ")]
    assert row[1] == "1" and int(row[2]) >= 1
    shell, screen = pty.openpty()
    watch = subprocess.Popen(
        [sys.executable, "-m", "kwire", "top", "--interval", "0.1"],
        stdout=screen,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(screen)
    try:
        seen = b""
        while seen.count(b"kwire top") < 2:  # it is drawn again, in place
            seen += os.read(shell, 65536)
        assert b"\x1b[H" in seen and b"orders" in seen
    finally:
        watch.terminate()
        assert watch.communicate(timeout=TIMEOUT)[1] == b""
        os.close(shell)


def test_top_of_nothing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kwire", "top", "--bootstrap", "127.0.0.1:1", "--once"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.stdout.count("no broker answers") == 1


def test_a_single_broker_has_a_control_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KWIRE_RUNTIME_DIR", str(tmp_path))
    with server_harness.kwire_up():
        assert " running" in kwire("ctl", "status")
        assert "broker 1 127.0.0.1:" in kwire("top", "--once")


def test_a_cluster_without_a_control_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without KWIRE_CONTROL_PORT."""
    from kwire.launch import registry

    monkeypatch.setenv("KWIRE_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("KWIRE_CONTROL", "")
    entry = {"ready_ms": 1, "bootstrap": "x:1", "addresses": "x:1", "control": None, "log": None}
    registration = registry.register(entry)
    try:
        done = CliRunner().invoke(cli, ["ctl", "status"], prog_name="kwire")
    finally:
        registration.remove()
    assert done.exit_code == 1
    said = f"kwire up at x:1 (pid {os.getpid()}) has no control API: a container needs"
    assert said in done.stderr
