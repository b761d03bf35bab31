"""`kwire up` parses usual command lines without click: with click's result, or leaves them to click."""

from __future__ import annotations

import pytest

from kwire.cli.quick import quickly_parsed
from kwire.cli.up import up

USUAL = [
    "",
    "--port 0",
    "--port=0",
    "--port 9093 --port 9094",
    "--brokers 3 --controllers 2 --isolation process --recent-requests",
    "--topic a --topic b:3 --topic c:4:2",
    "-c a=b -c c=d=e -c a=f",
    "-c log.retention.ms=60000 --data-dir /a,/b",
    "--data-dir=/x --ready-file r --control-port 0",
    "--log-level debug --log-json",
    "--as-version 2.8",
    "--fast",
]
FOR_CLICK = [
    "--help",
    "--port",
    "--open",
    "--port x",
    "--port 65536",
    "--port -1",
    "--port ²",
    "--port= --fast",
    "--topic",
    "--topic a:0",
    "--topic a:10001",
    "--topic a:1:1:1",
    "-c a",
    "-c =b",
    "-ca=b",
    "-c=a=b",
    "--brokers 0",
    "--brokers 2 --brokers 3",
    "--isolation docker",
    "--log-level loud",
    "--log-level DEBUG",
    "--log-json --log-json",
    "--fast=true",
    "--detach",
    "--host ::1",
    "--rack a",
    "--config f",
    "--no-such",
    "--temporary",
    "--node-id 3",
    "word",
    "--",
    "--data-dir --fast",
]


def split(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("line", USUAL)
def test_usual_command_lines_are_parsed_as_by_click(line: str) -> None:
    expected = up.make_context("up", split(line)).params
    assert expected.pop("detach") is False
    assert quickly_parsed(split(line)) == expected


@pytest.mark.parametrize("line", FOR_CLICK)
def test_unusual_ones_are_left_to_click(line: str) -> None:
    assert quickly_parsed(split(line)) is None


def test_completion_is_clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_KWIRE_COMPLETE", "bash_source")
    assert quickly_parsed([]) is None
