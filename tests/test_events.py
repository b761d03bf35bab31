"""Events: their page is current, each is logged somewhere and with its fields, and how they read."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_source import SOURCES, TREES

from kwire.coordinator.events import GroupEvent
from kwire.replication.core.clock import Clock
from kwire.replication.core.events import INFO, Event, EventType, ignore
from kwire.replication.core.outbox import Log, Outbox
from kwire.replication.replica.events import ReplicaEvent
from kwire.server.events import NodeEvent
from kwire.transactions.events import TransactionEvent

ROOT = Path(__file__).resolve().parents[1]
DEFINITIONS = (
    Path("replication/core/events.py"),
    Path("kwire/coordinator/events.py"),
    Path("replication/replica/events.py"),
    Path("kwire/server/events.py"),
    Path("kwire/transactions/events.py"),
)
REGISTRIES: dict[str, type] = {
    "Event": Event,
    "GroupEvent": GroupEvent,
    "NodeEvent": NodeEvent,
    "ReplicaEvent": ReplicaEvent,
    "TransactionEvent": TransactionEvent,
}
# Fields that the `log_event` of a folder's components adds to every event.
ADDED = {
    "replication/controller": {"controller_epoch"},
    "replication/controller/brokers": {"controller_epoch"},
    "replication/controller/security": {"controller_epoch"},
    "replication/log": {"log", "topic", "partition"},
}


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("events_tool", ROOT / "tools" / "events.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def defined() -> set[str]:
    return {
        f"{registry}.{name}"
        for registry, events in REGISTRIES.items()
        for name, value in vars(events).items()
        if isinstance(value, EventType)
    }


def mentions(node: ast.AST) -> Iterator[str]:
    """`Event.X`, wherever it stands below a node."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            name = f"{each.value.id}.{each.attr}"
            if name in defined():
                yield name


def event_of(name: str) -> EventType:
    registry, _, attribute = name.partition(".")
    found = getattr(REGISTRIES[registry], attribute)
    assert isinstance(found, EventType)
    return found


def calls() -> Iterator[tuple[str, str, set[str]]]:
    """Where, event and fields of each call that logs an event by its name."""
    for path in SOURCES:
        for node in ast.walk(TREES[path]):
            if not isinstance(node, ast.Call) or any(k.arg is None for k in node.keywords):
                continue
            function = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if isinstance(node.func, ast.Name):
                function = node.func.id
            if function not in ("log", "log_event", "_log_event", "event"):
                continue
            names = {str(keyword.arg) for keyword in node.keywords}
            for argument in node.args:
                for name in mentions(argument):
                    yield f"{path}:{node.lineno}", name, names


def test_the_page_is_current() -> None:
    events = tool()
    text = events.PAGE.read_text(encoding="utf-8")
    assert events.page(text) == text, "run: .venv/bin/python tools/events.py"


def test_each_event_is_logged_somewhere() -> None:
    used = {name for path in SOURCES if path not in DEFINITIONS for name in mentions(TREES[path])}
    assert not defined() - used, f"never logged: {sorted(defined() - used)}"


def test_each_call_gives_the_fields_of_its_event() -> None:
    found = list(calls())
    assert len(found) > 40
    wrong = []
    for where, name, given in found:
        folder = str(Path(where.partition(":")[0]).parent)
        fields = set(event_of(name).fields)
        lacks = fields - ADDED.get(folder, set()) - given
        if lacks or given - fields:
            wrong.append(f"{where} {name} lacks {sorted(lacks)}, unknown {sorted(given - fields)}")
    assert not wrong, "\n".join(wrong)


def test_names_are_in_capitals_and_levels_are_known() -> None:
    for name in defined():
        event = event_of(name)
        assert name.endswith(f".{event.name}") and event.name.isupper()
        assert event.level in (10, 20, 30, 40)


class Sample:
    SAMPLE = EventType(
        INFO,
        "{topic}: [leader {previous_leader} -> {leader}, ][{recovering}, ][at {offset}, ]({reason})",
        "detail",
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "t: (some reason)"),
        ({"leader": 2}, "t: leader 1 -> 2, (some reason)"),
        ({"leader": None}, "t: leader 1 -> none, (some reason)"),
        ({"recovering": True}, "t: recovering, (some reason)"),
        ({"offset": 0}, "t: at 0, (some reason)"),
        ({"offset": [3, 1]}, "t: at 3,1, (some reason)"),
        ({"offset": []}, "t: at none, (some reason)"),
        ({"topic": "a\n{b}[c]"}, "a\\n{b}[c]: (some reason)"),
    ],
)
def test_a_sentence_leaves_out_what_says_nothing(changes: dict[str, object], text: str) -> None:
    event = Sample.SAMPLE
    fields: dict[str, object] = {
        "topic": "t",
        "previous_leader": 1,
        "leader": 1,
        "recovering": False,
        "offset": None,
        "reason": "some_reason",
        "detail": "not shown",
    }
    assert set(fields) == set(event.fields)
    assert event.text(fields | changes) == text


def test_an_outbox_stamps_events_and_keeps_their_place() -> None:
    clock = Clock(5, 1_700_000_000_000)
    outbox = Outbox(clock)
    outbox.close(1, "why")
    outbox.log(Event.LEADER_REACHABLE, leader=3)
    clock.wall_ms += 7
    _, logged = outbox.drain()
    assert isinstance(logged, Log)
    assert (logged.event, logged.fields) == (Event.LEADER_REACHABLE, {"leader": 3})
    assert (logged.time_ms, logged.text) == (1_700_000_000_000, "broker 3 is fetched from again")
    ignore(Event.LEADER_REACHABLE, leader=3)
    assert outbox.drain() == []
