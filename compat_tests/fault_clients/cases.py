"""What is set, and what clients do with it: the rows of the table in docs/faults.md, and its words.

The words are made from what was seen: the client's outcome, how many requests were hit, how often the record is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat_tests import tooling
from compat_tests.clients import Client
from kwire import Cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
BEGIN, END = (
    "<!-- what clients do: written by compat_tests/fault_clients/page.py -->",
    "<!-- end -->",
)
TOPIC = "orders"
CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "replica.lag.time.max.ms": 500,
    "broker.session.timeout.ms": 3000,
}


def _python(library: str) -> tuple[list[str], dict[str, str]]:
    import sys

    return [sys.executable, str(Path(__file__).with_name("attempt.py")), library], {}


CLIENTS: dict[str, Callable[[], tuple[list[str], dict[str, str]]]] = {
    "kafka-python": lambda: _python("kafka-python"),
    "librdkafka": lambda: _python("librdkafka"),
    "Java": lambda: (tooling.java_program_argv(tooling.HERE / "java" / "FaultDriver.java"), {}),
    "franz-go": lambda: ([tooling.go_program(tooling.HERE / "go", "./faults", "faults")], {}),
}


def start(client: str) -> Client:
    """The process of a client, which is asked for one attempt after the other. ToolMissing."""
    argv, environment = CLIENTS[client]()
    return Client(argv, environment, "")


Set = Callable[[Cluster, int], "AbstractContextManager[Any]"]
"""Sets a fault; takes the leader of the partition."""


def on_requests(api: str, **given: Any) -> Set:
    return lambda cluster, _: cluster.faults.inject(api, topic=TOPIC, partition=0, **given)


@dataclass(frozen=True)
class Case:
    """A row. `waits_ms`: how long the client has to wait at least; `waits`: what for, if it tries again then."""

    text: str
    set: Set
    act: str = "send"
    idempotent: bool = True
    waits_ms: int = 0
    waits: str = ""
    count: int = 1
    breaks: bool = False
    """A broker has to be started again afterwards."""


CASES = {
    "error": Case(
        'Produce, `error="NOT_ENOUGH_REPLICAS"`, twice',
        on_requests("Produce", error="NOT_ENOUGH_REPLICAS", times=2),
    ),
    "refused": Case(
        'Produce, `error="MESSAGE_TOO_LARGE"`', on_requests("Produce", error="MESSAGE_TOO_LARGE")
    ),
    "before": Case(
        'Produce, `drop="before"`, once',
        on_requests("Produce", drop="before", times=1),
        waits_ms=1000,
        waits="its time-out",
    ),
    "after": Case(
        'Produce, `drop="after"`, once, idempotent',
        on_requests("Produce", drop="after", times=1),
        waits_ms=1000,
        waits="its time-out",
    ),
    "duplicate": Case(
        'Produce, `drop="after"`, once, not idempotent',
        on_requests("Produce", drop="after", times=1),
        idempotent=False,
        waits_ms=1000,
        waits="its time-out",
    ),
    "close": Case("Produce, `close=True`, once", on_requests("Produce", close=True, times=1)),
    "delay": Case(
        "Produce, `delay=300`, once", on_requests("Produce", delay=300, times=1), waits_ms=300
    ),
    "throttle": Case(
        "Produce, `throttle=300`, once, and another",
        on_requests("Produce", throttle=300, times=1),
        count=2,
        waits_ms=300,
    ),
    "corrupt": Case(
        "Fetch, `corrupt=True`, once", on_requests("Fetch", corrupt=True, times=1), act="read"
    ),
    "range": Case(
        'Fetch, `error="OFFSET_OUT_OF_RANGE"`, once',
        on_requests("Fetch", error="OFFSET_OUT_OF_RANGE", times=1),
        act="read",
    ),
    "fetch": Case(
        'Fetch, `error="KAFKA_STORAGE_ERROR"`, once',
        on_requests("Fetch", error="KAFKA_STORAGE_ERROR", times=1),
        act="read",
    ),
    "disk": Case(
        'the leader\'s `disk.fail("append")`',
        lambda cluster, leader: cluster.broker(leader).disk.fail("append", topic=TOPIC),
        breaks=True,
    ),
    "full": Case(
        "the leader's `disk.full()`",
        lambda cluster, leader: cluster.broker(leader).disk.full(),
        breaks=True,
    ),
    "slow": Case(
        'the leader\'s `disk.slow(300, "append")`',
        lambda cluster, leader: cluster.broker(leader).disk.slow(300, "append", topic=TOPIC),
        waits_ms=300,
    ),
    "slow-read": Case(
        'the leader\'s `disk.slow(300, "read")`',
        lambda cluster, leader: cluster.broker(leader).disk.slow(300, "read", topic=TOPIC),
        act="read",
        waits_ms=300,
    ),
    "one-way": Case(
        "`network.cut(follower, leader, one_way=True)`",
        lambda cluster, leader: cluster.network.cut(3 - leader, leader, one_way=True),
        waits_ms=100,
    ),
}


@dataclass(frozen=True)
class Seen:
    """What was seen of an attempt. `hits`: None where they are not counted."""

    kind: str
    text: str
    hits: int | None
    copies: int
    ms: float


def attempt(cluster: Cluster, process: Client, client: str, name: str) -> Seen:
    """Let a client meet a fault; afterwards the cluster is as it was."""
    case = CASES[name]
    leader = cluster.partition(TOPIC, 0).leader
    value = f"{client} {name} {time.time_ns()}"
    request = {"servers": cluster.bootstrap_servers, "topic": TOPIC, "partition": 0}
    request |= {"act": case.act, "value": value, "idempotent": case.idempotent, "count": case.count}
    if case.act == "read":
        cluster.produce(TOPIC, "something", partition=0)
    fault = case.set(cluster, leader)
    with fault as entered:
        began = time.monotonic()
        process.send(case.act, **request)
        said = process.receive()
        ms = (time.monotonic() - began) * 1000
        if case.breaks:
            cluster.wait_for(lambda c: entered.hits and not c.broker(leader).running, timeout=20)
        hits = getattr(entered, "hits", None)
    if case.breaks:
        cluster.broker(leader).start()
    cluster.wait_in_sync(TOPIC, timeout=30)
    copies = sum(record.value == value.encode() for record in cluster.records(TOPIC, partition=0))
    return Seen(said["kind"], said["text"], hits, copies, ms)


def words(case: Case, seen: Seen) -> str:
    """What a client has done, for the table."""
    if seen.kind != "ok":
        return f"raises `{seen.kind}`"
    again = f"after {case.waits} tries again" if case.waits else "tries again"
    if case.waits_ms and not case.waits:
        again = "waits"
    if case.act == "read":
        return f"{again}, reads it"
    if seen.copies == case.count:
        return f"{again}, succeeds"
    return f"{again}, succeeds: there are {seen.copies} records"


def table(found: dict[tuple[str, str], str]) -> str:
    """The table of the page, from the words of each case and client."""
    lines = [f"| fault | {' | '.join(CLIENTS)} |", "|---" * (len(CLIENTS) + 1) + "|"]
    for name, case in CASES.items():
        cells = [found.get((name, client), "not tried") for client in CLIENTS]
        lines.append(f"| {case.text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def documented() -> dict[tuple[str, str], str]:
    """The words of the page, by case and client."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    by_text = {case.text: name for name, case in CASES.items()}
    found = {}
    for case_text, *cells in rows[2:]:
        for client, cell in zip(rows[0][1:], cells, strict=True):
            found[by_text[case_text], client] = cell
    return found
