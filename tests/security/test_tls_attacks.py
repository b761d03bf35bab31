"""Clients with the wrong protocol, and TLS that is begun again: refused, with one line in the log."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
import subprocess

import pytest
from test_exchange import until
from test_tls import OF_SSL, STORES

from kwire import Cluster
from kwire.replication.config.broker_config import BrokerConfig
from kwire.server.tls.context import server_context

pytestmark = pytest.mark.timeout(60)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def address(cluster: Cluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return host, int(port)


def test_tls_at_a_port_for_log_ins_without_tls(caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.create_default_context(cafile=str(STORES / "ca.pem"))
    with Cluster(sasl="plain", users={"alice": "secret"}) as cluster:
        for _ in range(3):
            with (
                socket.create_connection(address(cluster), 10) as plain,
                pytest.raises((ssl.SSLError, ConnectionError)),
            ):
                context.wrap_socket(plain, server_hostname="localhost")
        until(lambda: bool(warnings_of(caplog)))
        (line,) = warnings_of(caplog)
    assert "speaks TLS: this listener is not encrypted" in line
    assert "security.protocol=SASL_PLAINTEXT" in line


def test_a_log_in_without_tls_at_a_port_with_tls(caplog: pytest.LogCaptureFixture) -> None:
    handshake = bytes.fromhex("0000001b 0011 0001 00000001 0002 6d65 0005") + b"PLAIN"
    with (
        Cluster(config=OF_SSL) as cluster,
        socket.create_connection(address(cluster), 10) as client,
    ):
        client.sendall(handshake)
        while client.recv(100):
            pass
        until(lambda: bool(warnings_of(caplog)))
    (line,) = warnings_of(caplog)
    assert "no TLS: the client speaks plaintext, listener SSL asks for TLS" in line


def test_tls_of_a_connection_cannot_be_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka (SslTransportLayer), whose users would be cut off in the middle; TLS 1.3 has no such thing."""
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(STORES / "broker.pem")}
    context = server_context(BrokerConfig({"node.id": "1", **keys}), "SSL", "SSL")
    assert context.options & ssl.OP_NO_RENEGOTIATION
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: only the option is looked at")
    with Cluster(config=OF_SSL) as cluster:
        words = ["openssl", "s_client", "-connect", cluster.bootstrap_servers, "-tls1_2"]
        client = subprocess.Popen(
            [*words, "-CAfile", str(STORES / "ca.pem")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said, _ = client.communicate(b"R\n", timeout=20)
        assert b"no renegotiation" in said, said
        until(lambda: bool(warnings_of(caplog)))
        (line,) = warnings_of(caplog)
    assert "TLS failed" in line
