"""Log lines as text and as JSON."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from kwire.server import logs

_log = logging.getLogger("kwire.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    logger = logging.getLogger("kwire")
    saved = logger.handlers[:], logger.propagate, logger.level
    yield io.StringIO()
    logger.handlers[:], logger.propagate = saved[0], saved[1]
    logger.setLevel(saved[2])


def test_fields_stand_behind_the_event_as_text(stream: io.StringIO) -> None:
    logs.configure("info", stream=stream)
    logs.event(_log, logging.INFO, "something happened", peer="1.2.3.4:5", why='a "b"\nc', none="")
    logs.event(_log, logging.DEBUG, "not shown")
    (line,) = stream.getvalue().splitlines()
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert rest == (
        'INFO    kwire.test: something happened peer=1.2.3.4:5 why="a \\"b\\"\\nc" none=""'
    )


def test_fields_are_keys_of_their_own_as_json(stream: io.StringIO) -> None:
    logs.configure("debug", as_json=True, stream=stream)
    logs.event(_log, logging.DEBUG, "it", count=3, time="ignored", other={1})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["event"]) == ("debug", "kwire.test", "it")
    assert (line["count"], line["other"]) == (3, "{1}")
    assert line["time"] != "ignored"


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
