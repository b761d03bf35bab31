"""TLS and HTTP on a Kafka port, Kafka and TLS on the control API's port: named, and not over and over."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import re
import socket
import ssl
import struct
import subprocess
import sys
from typing import Any

import pytest
from cluster_harness import until
from server_harness import Client, running_node

from kwire.client.streams import ask
from kwire.control.socket import ControlSocket
from kwire.protocol.errors import ErrorCode
from kwire.protocol.frame import FrameReader
from kwire.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kwire.server.connection_log import QUIET_MS, Repetitions, foreign_protocol

KAFKA = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # ApiVersions, as librdkafka begins


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def tls_hello(port: int) -> None:
    context = ssl.create_default_context()
    with socket.create_connection(("127.0.0.1", port), 10) as plain, pytest.raises(OSError):
        context.wrap_socket(plain, server_hostname="localhost")


def http_get(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.request("GET", "/v1/cluster")
        connection.getresponse()


def test_a_tls_client_is_named_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kwire"), running_node() as running:
        tls_hello(running.port)
        until(lambda: warnings_of(caplog))
    (line,) = warnings_of(caplog)
    assert re.fullmatch(
        r"broker 1: connection closed: 127.0.0.1:\d+ speaks TLS: this listener is plaintext;"
        r" set security.protocol=PLAINTEXT in the client listener=PLAINTEXT",
        line,
    )


def test_a_sasl_client_is_refused_as_by_kafka_and_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kwire"), running_node() as running:
        for request, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=b"secret"), 2),
        ):
            answer = asyncio.run(ask(("127.0.0.1", running.port), request, version=version))
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        until(lambda: warnings_of(caplog) and not running.node.connections)
    (line,) = warnings_of(caplog)  # the second within a minute is not said again
    assert re.fullmatch(
        r"broker 1: connection closed: 127.0.0.1:\d+ speaks SASL: this listener is plaintext;"
        r" set security.protocol=PLAINTEXT in the client listener=PLAINTEXT",
        line,
    )


def test_an_http_client_is_named_and_shown_the_control_api(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "kwire"), running_node() as running:
        http_get(running.port)
        until(lambda: warnings_of(caplog))
        running.node.connection_log.control_url = "http://127.0.0.1:7"
        running.node.connection_log._foreign = Repetitions()
        http_get(running.port)
        until(lambda: len(warnings_of(caplog)) == 2)
    first, second = (line.partition(" speaks ")[2] for line in warnings_of(caplog))
    assert first == "HTTP: this port speaks Kafka's protocol listener=PLAINTEXT"
    assert "; the control API is at http://127.0.0.1:7 " in second


def test_a_client_that_retries_has_a_line_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.DEBUG, "kwire"), running_node() as running:
        for _ in range(4):
            tls_hello(running.port)
        http_get(running.port)  # another protocol is another line
        until(lambda: len(warnings_of(caplog)) == 2 and not running.node.connections)
        again = [r for r in caplog.records if "TLS again" in r.getMessage()]
        assert len(again) == 3 and {r.levelname for r in again} == {"DEBUG"}
        monkeypatch.setattr(running.node.connection_log._foreign, "_quiet_ms", 0)
        tls_hello(running.port)
        until(lambda: len(warnings_of(caplog)) == 3)
    assert " speaks TLS, as 3 connections before: " in warnings_of(caplog)[-1]


def test_repetitions_are_counted_by_key_and_forgotten_in_the_end() -> None:
    repetitions = Repetitions()
    times = [0, 10, QUIET_MS - 1, QUIET_MS, QUIET_MS + 1]
    assert [repetitions.count(("a", "TLS"), t) for t in times] == [0, None, None, 2, None]
    assert repetitions.count(("b", "TLS"), 5) == 0
    for number in range(5000):
        repetitions.count((str(number), "TLS"), 10)
    assert len(repetitions._last) <= 1000


@pytest.mark.parametrize(
    ("head", "protocol"),
    [
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"GET / HT", "HTTP"),
        (b"PRI * HT", "HTTP"),
        (b"DELETE /", "HTTP"),
        (KAFKA[:8], None),
        (b"SSH-2.0-", None),
        (b"", None),
    ],
)
def test_the_first_bytes_show_the_protocol(head: bytes, protocol: str | None) -> None:
    assert foreign_protocol(head) == protocol


def test_a_reader_shows_its_first_bytes_once_they_are_there() -> None:
    reader = FrameReader()
    assert reader.head() == b""
    reader.feed(b"\0\0\0\1x\0\0")
    assert reader.head() == b"\0\0\0\1x\0\0"
    reader.next_frame()
    assert reader.head() == b"\0\0"


async def _never(method: str, path: str, body: dict[str, Any]) -> Any:
    raise AssertionError(method)


@pytest.mark.asyncio
async def test_the_control_api_names_kafka_and_tls(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once a minute for an address: what other tests have sent from here does not count.
    monkeypatch.setattr("kwire.control.http._refused", Repetitions())
    control = ControlSocket(lambda: _never)
    await control.open("127.0.0.1", 0)
    port = int(control.url.rpartition(":")[2])
    answers = []
    with caplog.at_level(logging.WARNING, "kwire"):
        for data in (KAFKA, b"\x16\x03\x01\x02\x00\x01\x00", b"nonsense\r\n\r\n", KAFKA):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            answers.append((await asyncio.wait_for(reader.read(), 10)).decode())
            writer.close()
    await control.close()
    assert all(answer.startswith("HTTP/1.1 400 ") for answer in answers)
    messages = [json.loads(answer.partition("\r\n\r\n")[2])["message"] for answer in answers]
    kafka = "Kafka's protocol: this is the control API, not a broker"
    tls = "TLS: the control API has no TLS, its addresses begin with http://"
    assert messages[:2] == [kafka, tls] and messages[3] == kafka
    assert messages[2].startswith("no HTTP: ")
    found = [re.sub(r"127.0.0.1:\d+ ", "PEER ", line) for line in warnings_of(caplog)]
    assert found == [f"control API: PEER speaks {text}" for text in (kafka, tls)]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_http_on_a_port_of_a_cluster_is_shown_its_control_api(isolation: str) -> None:
    command = [sys.executable, "-m", "kwire", "up", "--brokers", "2", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--isolation", isolation, "--log-level", "warning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        words = dict(item.split("=", 1) for item in process.stdout.readline().split()[1:])
        with Client(int(words["bootstrap"].split(",")[1].rpartition(":")[2])) as client:
            client.send(b"GET /v1/cluster HTTP/1.1\r\n\r\n")
            assert client.is_closed()
        line = process.stderr.readline()
        assert "broker 2: connection closed: " in line and "speaks HTTP" in line
        assert f"; the control API is at {words['control']}" in line
    finally:
        process.terminate()
        process.communicate(timeout=30)
