"""Lines about connections that the node closes: not one for each of a thousand."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from server_harness import Client, running_node
from test_foreign_protocols import until

from kwire.server import connection_log
from kwire.server.connection_log import Repetitions


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[Any]:
    return [record for record in caplog.records if getattr(record, "event", None) == name]


def test_a_thousand_malformed_requests_are_one_line_and_a_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 1000
    monkeypatch.setattr(connection_log, "_now_ms", lambda: now_ms)
    with caplog.at_level(logging.DEBUG, "kwire.server.connection_log"), running_node() as running:
        for n in range(30):
            with Client(running.port) as client:
                client.send(b"\xff\xff\xff\xf0" + bytes([n]))
                assert client.is_closed()
        until(lambda: not running.node.connections)
        log = running.node.connection_log
        running.call(log.write_counts)
        assert not events(caplog, "CONNECTIONS_ABORTED"), "it may still be in the next line"
        now_ms += connection_log.ABORTED_QUIET_MS
        running.call(log.write_counts)
        running.call(log.write_counts)
    (line,) = events(caplog, "CONNECTION_ABORTED")
    assert "malformed request" in line.sentence
    assert len(events(caplog, "CONNECTION_CLOSED")) == 29
    (rest,) = events(caplog, "CONNECTIONS_ABORTED")
    assert rest.fields["repeated"] == 29
    assert rest.sentence == "29 more connections closed: malformed request"


def test_a_key_is_counted_until_it_may_be_logged_again() -> None:
    repetitions = Repetitions(100)
    key = "a", "b"
    assert [repetitions.count(key, ms) for ms in (0, 1, 99, 100, 150)] == [0, None, None, 2, None]
    assert repetitions.take_counts(199) == []
    assert repetitions.take_counts(200) == [(key, 1)]
    assert repetitions.take_counts(500) == []
