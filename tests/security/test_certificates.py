"""`tls=True` and `mtls=True`, `kwire up --tls`: certificates that are made, and clients that are given them."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from kwire import Cluster
from kwire.errors import ConfigurationError
from kwire.security.certificates import PASSWORD, Certificates
from kwire.security.options import with_logins
from kwire.server.tls import stores

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def library() -> None:
    """What certificates are made with."""
    pytest.importorskip("cryptography")


def write(cluster: Cluster, user: str | None = None) -> None:
    producer = Producer(cluster.client_config("librdkafka", user))
    producer.produce("orders", b"x")
    assert producer.flush(20) == 0


def test_every_client_is_configured(library: None) -> None:
    with Cluster(tls=True, topics=["orders"]) as cluster:
        write(cluster)
        with closing(KafkaProducer(**cluster.client_config("kafka-python"))) as producer:
            assert producer.send("orders", b"x").get(20).offset == 1

        async def asynchronously() -> int:
            from aiokafka import AIOKafkaProducer

            producer = AIOKafkaProducer(**cluster.client_config("aiokafka"))
            await producer.start()
            try:
                return int((await producer.send_and_wait("orders", b"x")).offset)
            finally:
                await producer.stop()

        assert asyncio.run(asynchronously()) == 2
        assert cluster.partition("orders", 0).high_watermark == 3
        java = cluster.client_config("java")
        assert java["security.protocol"] == "SSL" and java["ssl.truststore.type"] == "PKCS12"
        assert not any("keystore" in key for key in java)
        files = Path(java["ssl.truststore.location"]).parent
        assert "bootstrap.servers" not in (files / "client.properties").read_text()
    assert not files.exists()


def test_clients_with_certificates_that_log_in(
    library: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    users = {"alice": "secret-of-alice", "bob": "hush"}
    with Cluster(mtls=True, sasl="scram-sha-256", users=users, topics=["orders"]) as cluster:
        config = cluster.client_config("librdkafka", "bob")
        assert config["security.protocol"] == "SASL_SSL"
        write(cluster, "bob")
        for key in ("ssl.certificate.location", "ssl.key.location"):
            del config[key]
        with pytest.raises(KafkaException):
            AdminClient({**config, "log_level": 0}).list_topics(timeout=0.5)
        files = Path(config["ssl.ca.location"]).parent
        key = (files / "client.pem").read_text().splitlines()[1]
    assert "secret-of-alice" not in caplog.text and key not in caplog.text
    assert "certificates are in" in caplog.text and "User:bob" in caplog.text


def test_a_certificate_says_who_a_client_is(
    library: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kwire")
    with Cluster(mtls=True, topics=["orders"]) as cluster:
        write(cluster)
    assert "User:CN=client" in caplog.text


def certificate_at(address: str, ca: str) -> dict[str, object]:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname=host) as client,
    ):
        return client.getpeercert()  # type: ignore[return-value]


def test_each_of_several_brokers_has_its_own_and_the_authority_stays(
    library: None, tmp_path: Path
) -> None:
    authorities = []
    for isolation in ("thread", "process"):
        with Cluster(2, tls=True, data_dir=tmp_path, isolation=isolation) as cluster:
            ca = str(tmp_path / "tls" / "ca.pem")
            authorities.append(Path(ca).read_text())
            found = [certificate_at(each, ca) for each in cluster.bootstrap_servers.split(",")]
            names = [dict(each["subject"][0])["commonName"] for each in found]  # type: ignore[index]
            assert names == ["broker-1", "broker-2"]
            alternatives = found[0]["subjectAltName"]
            assert {("DNS", "localhost"), ("IP Address", "127.0.0.1")} <= set(alternatives)  # type: ignore[call-overload]
    assert authorities[0] == authorities[1]
    for path in (tmp_path / "tls").iterdir():
        is_public = path.name == "ca.pem" or path.name.startswith("truststore")
        assert stat.S_IMODE(path.stat().st_mode) == (0o644 if is_public else 0o600), path


def test_stores_are_read_as_they_are_written(library: None, tmp_path: Path) -> None:
    from kwire.server.tls.authority import make_certificates

    files = Certificates(str(tmp_path / "tls"), mutual=True)
    make_certificates(files, {7: ["kafka"]}, None)
    for ending in ("jks", "p12"):
        own = Path(f"{files.broker(7)}.{ending}").read_bytes()
        pem = Path(f"{files.broker(7)}.pem").read_text()
        assert "".join(stores.own_pem(own, PASSWORD, "").split()) == "".join(pem.split())
        trusted = stores.trusted_pem(Path(f"{files.truststore}.{ending}").read_bytes(), PASSWORD)
        assert "".join(trusted.split()) == "".join(Path(files.ca).read_text().split())
    before = Path(files.ca).read_bytes()
    Path(files.ca_key).unlink()
    make_certificates(files, {7: []}, None)
    assert Path(files.ca).read_bytes() != before


def test_without_the_library_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "cryptography.hazmat.primitives.serialization.pkcs12"
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"pip install 'kwire\[tls\]'") as caught:
        Cluster(tls=True).start()
    assert "\n" not in str(caught.value)


# --- kwire up


@contextmanager
def up(*options: str) -> Iterator[str]:
    """The ready line of a `kwire up`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kwire", "up", "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def kwire(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kwire", *words], capture_output=True, text=True, cwd=ROOT
    )


def test_kwire_up_and_the_commands(library: None, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    words = ("--mtls", "--sasl", "plain", "--user", "alice:secret", "--ready-file", str(ready))
    with up(*words, "--advertise", "localhost") as line:
        told = json.loads(ready.read_text())
        assert line.startswith("ready ") and f"tls={told['tls']}" in line
        port = told["bootstrap"].rpartition(":")[2]
        # as the registry knows it: nobody need say more than who logs in
        made = kwire("topics", "create", "orders", "--port", port, "--user", "alice:secret")
        assert made.returncode == 0, made.stderr
        files = Path(told["tls"])
        elsewhere = ("--bootstrap", told["bootstrap"], "--user", "alice:secret")
        own = ("--ca", str(files / "ca.pem"), "--cert", str(files / "client.pem"))
        assert "orders" in kwire("topics", *elsewhere, *own).stdout
        refused = kwire("topics", *elsewhere, "--ca", str(ROOT / "tests/data/tls/ca.pem"))
        assert "no TLS with" in refused.stderr and refused.stderr.count("\n") == 1
        told_why = kwire("topics", *elsewhere, "--ca", str(ready)).stderr
        assert "there is no certificate in PEM" in told_why
        properties = (files / "client.properties").read_text()
        assert "security.protocol=SASL_SSL" in properties and 'username="alice"' in properties
    assert not files.exists()


# --- keys


KEYS = {"listeners": "PLAINTEXT://127.0.0.1:0"}


@pytest.mark.parametrize(("kind", "auth"), [("tls", None), ("mtls", "required")])
def test_options_as_keys(kind: str, auth: str | None) -> None:
    found = with_logins(KEYS, None, {}, kind)
    assert found["listeners"] == "SSL://127.0.0.1:0,KWIRE_INTERNAL://127.0.0.1:0"
    assert found.get("listener.name.ssl.ssl.client.auth") == auth
    found = with_logins(KEYS, "plain", {"alice": "secret"}, kind)
    assert found["listeners"] == "SASL_SSL://127.0.0.1:0,KWIRE_INTERNAL://127.0.0.1:0"
    assert found.get("listener.name.sasl_ssl.ssl.client.auth") == auth


def test_listeners_that_ask_for_tls_are_left_as_they_are() -> None:
    own = {
        "listeners": "OUT://0.0.0.0:9093,IN://127.0.0.1:0",
        "listener.security.protocol.map": "OUT:SSL,IN:PLAINTEXT",
    }
    found = with_logins(own, None, {}, "mtls")
    more = {"kwire.tls": "mtls", "listener.name.out.ssl.client.auth": "required"}
    assert found == {**own, **more}


def test_a_key_store_is_used_in_place_of_certificates_that_are_made() -> None:
    store = str(ROOT / "tests/data/tls/broker.pem")
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": store}
    with Cluster(tls=True, config=keys) as cluster:
        ca = str(ROOT / "tests/data/tls/ca.pem")
        assert certificate_at(cluster.bootstrap_servers, ca)
        with pytest.raises(ConfigurationError, match="did not make the certificates"):
            cluster.client_config("java")


@pytest.mark.parametrize(
    "options", [{"tls": "yes"}, {"tls": True, "config": {"listeners": "A://:1,B://:2"}}]
)
def test_options_that_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="tls"):
        Cluster(**options)  # type: ignore[arg-type]
