"""Events in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.replication.core.events import Event, EventType
from kwire.replication.core.outbox import Log
from kwire.report.words import _WORDS, words
from kwire.server.event_history import event_object
from kwire.server.events import NodeEvent

CHANGE = {"topic": "orders", "partition": 0, "leader": 2, "leader_epoch": 5, "partition_epoch": 9}
CUT = {"topic": "orders", "partition": 0, "previous_log_end_offset": 120, "log_end_offset": 118}


def said(kind: EventType, **fields: Any) -> str:
    return words(event_object(Log(kind, {**dict.fromkeys(kind.fields), **fields}, 0), 1, 1))


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (Event.LEADER_ELECTED, CHANGE | {"isr": [2]}, "orders-0: broker 2 leads in epoch 5"),
        (
            Event.UNCLEAN_LEADER_ELECTED,
            CHANGE | {"isr": [2]},
            "orders-0: broker 2, which was not in sync, leads in epoch 5: records may be lost",
        ),
        (
            Event.PARTITION_OFFLINE,
            CHANGE | {"leader": None, "isr": [1, 3]},
            "orders-0: nobody leads, none of the ISR 1,3 is up",
        ),
        (
            Event.ISR_SHRUNK,
            CHANGE | {"previous_isr": [2, 1, 3], "isr": [2]},
            "orders-0: broker 1,3 out of the ISR, which is 2",
        ),
        (
            Event.ISR_EXPANDED,
            CHANGE | {"previous_isr": [2], "isr": [2, 3]},
            "orders-0: broker 3 in sync again, the ISR is 2,3",
        ),
        (Event.LOG_TRUNCATED, CUT, "orders-0: broker 1 truncated from 120 to 118"),
        (Event.BROKER_REGISTERED, {"broker_id": 2}, "broker 2 is up"),
        (NodeEvent.KILL_REQUESTED, {"role": "broker", "node_id": 2}, "kill broker 2"),
        (Event.LEADER_REACHABLE, {"leader": 3}, "broker 3 is fetched from again"),
    ],
)
def test_words(kind: EventType, fields: dict[str, Any], expected: str) -> None:
    assert said(kind, **fields) == expected


@pytest.mark.parametrize("name", _WORDS)
def test_words_name_fields_that_the_event_has(name: str) -> None:
    kind = getattr(Event, name)
    assert said(kind, isr=[1]) and kind.name == name
