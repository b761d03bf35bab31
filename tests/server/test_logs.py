"""Log lines as text and as JSON."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kwire.replication.core.events import DEBUG, INFO, Event, EventType
from kwire.replication.core.outbox import Log
from kwire.server import logs

_log = logging.getLogger("kwire.test")


class Sample:
    HAPPENED = EventType(INFO, "something happened[ to {whom}]", "peer", "why", "none", "absent")
    UNSEEN = EventType(DEBUG, "not shown")
    COUNTED = EventType(DEBUG, "it", "count", "other", "time")


ISR_UPDATED = {
    "topic": "t",
    "partition": 0,
    "previous_isr": [1],
    "isr": [1, 2],
    "leader_epoch": 4,
    "partition_epoch": 5,
}


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    logger = logging.getLogger("kwire")
    saved = logger.handlers[:], logger.propagate, logger.level
    yield io.StringIO()
    logger.handlers[:], logger.propagate = saved[0], saved[1]
    logger.setLevel(saved[2])


def test_fields_stand_behind_the_event_as_text(stream: io.StringIO) -> None:
    logs.configure("info", stream=stream)
    fields = {"peer": "1.2.3.4:5", "why": 'a "b"\nc', "none": "", "absent": None}
    logs.event(_log, Sample.HAPPENED, whom="me", **fields)
    logs.event(_log, Sample.UNSEEN)
    (line,) = stream.getvalue().splitlines()
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert rest == (
        'INFO    kwire.test: something happened to me peer=1.2.3.4:5 why="a \\"b\\"\\nc" none=""'
    )


def test_the_node_stands_in_front(stream: io.StringIO) -> None:
    logs.configure("info", stream=stream)
    logs.event(_log, Sample.HAPPENED, None, "broker 1", whom=None, peer="p", node_id=1)
    logs.write(Log(Event.ISR_UPDATED, ISR_UPDATED, 17), 3, "controller 3")
    happened, updated = (line.split(" ", 1)[1] for line in stream.getvalue().splitlines())
    assert happened == "INFO    kwire.test: broker 1: something happened peer=p"
    assert updated == (
        "INFO    kwire.events: controller 3: t-0: ISR updated to 1,2, partition epoch 5 node_id=3"
    )


def test_handlers_of_others_get_the_whole_line_and_the_place_of_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "kwire"):
        logs.event(_log, Sample.HAPPENED, None, "broker 1", whom="me", peer="p", why="a b")
        logs.write(Log(Event.ISR_UPDATED, ISR_UPDATED, 17), 3, "broker 3")
        logs.write(Log(Event.ISR_UPDATED, ISR_UPDATED, 17), 3)
    assert [record.getMessage() for record in caplog.records] == [
        'broker 1: something happened to me peer=p why="a b"',
        "broker 3: t-0: ISR updated to 1,2, partition epoch 5",
        "t-0: ISR updated to 1,2, partition epoch 5 node_id=3",
    ]
    assert {record.filename for record in caplog.records} == {"test_logs.py"}


def test_a_script_without_logging_sees_errors_only() -> None:
    script = """
import logging
import subprocess
import sys
from kwire.replication.core.events import ERROR, WARNING, EventType
from kwire.server import logs
class Sample:
    BAD = EventType(WARNING, "worth a look")
    WORSE = EventType(ERROR, "not served any more")
for logger in (logging.getLogger("kwire.x"),):
    logs.event(logger, Sample.BAD)
    logs.event(logger, Sample.WORSE, None, "broker 1")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == "broker 1: not served any more\n"


def test_fields_are_keys_of_their_own_as_json(stream: io.StringIO) -> None:
    logs.configure("debug", as_json=True, stream=stream)
    logs.event(_log, Sample.COUNTED, count=3, time="ignored", other={1})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["event"]) == ("debug", "kwire.test", "COUNTED")
    assert line["message"] == "it" and line["time_ms"] > 1_700_000_000_000
    assert (line["count"], line["other"]) == (3, "{1}")
    assert line["time"] != "ignored"


def test_an_event_of_the_core_is_a_sentence_as_text(stream: io.StringIO) -> None:
    logs.configure("info", stream=stream)
    logs.write(Log(Event.ISR_UPDATED, ISR_UPDATED, 17), 3)
    logs.write(Log(Event.FOLLOWER_FETCHER_STARTED, {}, 17), 3)  # is not logged at this level
    (line,) = stream.getvalue().splitlines()
    assert line.split(" ", 1)[1] == (
        "INFO    kwire.events: t-0: ISR updated to 1,2, partition epoch 5 node_id=3"
    )


def test_an_event_of_the_core_has_all_fields_as_json(stream: io.StringIO) -> None:
    logs.configure("info", as_json=True, stream=stream)
    logs.write(Log(Event.ISR_UPDATED, ISR_UPDATED, 17), 3)
    created = {"topic": "t", "topic_id": bytes(15) + b"\1", "partitions": 1}
    created |= {"replication_factor": 1, "controller_epoch": 2}
    logs.write(Log(Event.TOPIC_CREATED, created, 18), 1000)
    updated, created = map(json.loads, stream.getvalue().splitlines())
    assert updated["event"] == "ISR_UPDATED" and updated["level"] == "info"
    assert updated["message"] == "t-0: ISR updated to 1,2, partition epoch 5"
    assert (updated["node_id"], updated["time_ms"]) == (3, 17)
    assert {name: updated[name] for name in ISR_UPDATED} == ISR_UPDATED
    assert created["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAQ"  # as Kafka writes it


@pytest.mark.parametrize("as_json", [False, True])
def test_a_traceback_comes_with_its_line(stream: io.StringIO, as_json: bool) -> None:
    logs.configure("error", as_json=as_json, stream=stream)
    try:
        raise ValueError("a bug")
    except ValueError as error:
        _log.error("internal error", exc_info=error)
    text = stream.getvalue()
    assert "ValueError: a bug" in text
    if as_json:
        assert "Traceback" in json.loads(text)["traceback"]
