"""Listeners with TLS: stock clients, certificates that are not trusted, mistakes that people make."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from kwire import Cluster
from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import STANDALONE, NodeSpec
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.server.errors import SettingsError
from kwire.server.tls import stores
from kwire.server.tls.ciphers import openssl_names
from kwire.server.tls.context import principal_of

STORES = Path(__file__).resolve().parents[1] / "data" / "tls"
KEYS = {
    "listener.security.protocol.map": "SSL:SSL,SASL_SSL:SASL_SSL,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": str(STORES / "broker.pem"),
}
OF_SSL = {**KEYS, "listeners": "SSL://127.0.0.1:0,INTERNAL://127.0.0.1:0"}
MUTUAL = {
    **OF_SSL,
    "ssl.client.auth": "required",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": str(STORES / "ca.pem"),
}
CA = str(STORES / "ca.pem")
STORE = str(STORES / "broker.jks")
INLINE = {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}
SUITE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
pytestmark = pytest.mark.timeout(60)
quiet = logging.getLogger("librdkafka of this test")
quiet.disabled = True


def of_librdkafka(cluster: Cluster, **more: object) -> dict[str, object]:
    keys = {key.replace("_", "."): value for key, value in more.items()}
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": CA,
        "logger": quiet,
        **keys,
    }


def own_certificate(name: str) -> dict[str, object]:
    path = str(STORES / f"{name}.pem")
    return {"ssl_certificate_location": path, "ssl_key_location": path}


def wait_for(condition: Callable[[], bool], poll: Callable[[float], object]) -> None:
    while not condition():  # until the test's own limit
        poll(0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(config=OF_SSL, topics=["orders"]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mutual() -> Iterator[Cluster]:
    with Cluster(config=MUTUAL, topics=["orders"], recent_requests=True) as cluster:
        yield cluster


def test_librdkafka_writes_and_reads(cluster: Cluster) -> None:
    producer = Producer(of_librdkafka(cluster))
    for number in range(200):
        producer.produce("orders", b"%d" % number * 10_000)
        producer.poll(0)
    assert producer.flush(20) == 0
    consumer = Consumer(of_librdkafka(cluster, group_id="g", auto_offset_reset="earliest"))
    with closing(consumer):
        consumer.subscribe(["orders"])
        found: list[bytes] = []
        while len(found) < 200:
            found += [message.value() for message in consumer.consume(200, 1)]
    assert found == [b"%d" % number * 10_000 for number in range(200)]


def test_kafka_python_writes(cluster: Cluster) -> None:
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, security_protocol="SSL", ssl_cafile=CA
    )
    with closing(producer):
        assert producer.send("orders", b"x").get(20).offset >= 0


def test_aiokafka_writes(cluster: Cluster) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SSL",
            ssl_context=ssl.create_default_context(cafile=CA),
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("orders", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(write()) >= 0


def test_a_broker_in_a_process_of_its_own() -> None:
    """Which has started without Python's ssl."""
    with Cluster(config=OF_SSL, isolation="process", topics=["orders"]) as cluster:
        producer = Producer(of_librdkafka(cluster))
        producer.produce("orders", b"x" * 900_000)
        assert producer.flush(20) == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_each_version_of_tls(cluster: Cluster, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=CA)
    context.minimum_version = context.maximum_version = version
    with connected(cluster, context) as client:
        assert client.version() == version.name.replace("_", ".")


def connected(cluster: Cluster, context: ssl.SSLContext) -> ssl.SSLSocket:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    plain = socket.create_connection((host, int(port)), 10)
    return context.wrap_socket(plain, server_hostname="localhost")


def test_requests_that_came_while_reading_was_paused_are_answered(cluster: Cluster) -> None:
    """They are deciphered by then: nothing more arrives that would begin it."""
    partition = FetchPartition(partition=0, fetch_offset=10_000_000, partition_max_bytes=1)
    topic = FetchTopic(topic="orders", partitions=[partition])
    wait = FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=1, topics=[topic])
    partition.fetch_offset = end_of(cluster)
    frames = [b"".join(map(bytes, api.encode_request(ApiKey.FETCH, 4, 0, "me", wait)))]
    versions = ApiVersionsRequest()
    for number in range(1, 11):
        parts = api.encode_request(ApiKey.API_VERSIONS, 0, number, "c" * 10_000, versions)
        frames.append(b"".join(map(bytes, parts)))
    with connected(cluster, ssl.create_default_context(cafile=CA)) as client:
        client.settimeout(20)
        client.sendall(frames[1])
        stream = client.makefile("rb")
        stream.read(int.from_bytes(stream.read(4), "big"))
        cluster.broker(1).pause()  # so that it reads more at once than a connection may have ahead
        client.sendall(b"".join(frames))
        cluster.broker(1).resume()
        for number in range(11):
            size = int.from_bytes(stream.read(4), "big")
            assert int.from_bytes(stream.read(size)[:4], "big") == number


def end_of(cluster: Cluster) -> int:
    return cluster.partition("orders", 0).high_watermark


def lines(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if words in r.getMessage()]


def test_a_client_that_does_not_trust_the_broker(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[str] = []
    foreign = str(STORES / "foreign-ca.pem")
    more = {
        "ssl.ca.location": foreign,
        "error_cb": lambda error: failed.append(f"{error.name()} {error.str()}"),
    }
    admin = AdminClient(of_librdkafka(cluster) | more)
    with caplog.at_level(logging.WARNING, "kwire"):
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.1)
        wait_for(lambda: bool(failed and lines(caplog, "unknown ca")), admin.poll)
    assert "certificate verify failed" in failed[0]


def test_plaintext_at_a_port_with_tls(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    with caplog.at_level(logging.WARNING, "kwire"):
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(bytes.fromhex("0000001c 0012 0003 00000001 0002 6d65 00"))
            while client.recv(100):
                pass
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while client.recv(100):
                pass
    found = lines(caplog, "no TLS")
    assert any("speaks plaintext, listener SSL asks for TLS" in line for line in found)


def test_a_certificate_says_who_a_client_is(mutual: Cluster) -> None:
    producer = Producer(of_librdkafka(mutual, **own_certificate("client")))
    producer.produce("orders", b"x")
    assert producer.flush(20) == 0


@pytest.mark.parametrize("name", [None, "foreign-client"])
def test_a_client_without_a_certificate_that_is_trusted(
    mutual: Cluster, name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    more = own_certificate(name) if name else {}
    admin = AdminClient(of_librdkafka(mutual, **more))
    said = "certificate verify failed" if name else "peer did not return a certificate"
    with caplog.at_level(logging.DEBUG, "kwire"):
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.1)
        wait_for(lambda: bool(lines(caplog, said)), admin.poll)
    assert lines(caplog, "TLS handshake failed")


def test_a_log_in_over_tls(caplog: pytest.LogCaptureFixture) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config = {
        **KEYS,
        "listeners": "SASL_SSL://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} required user_alice="secret";',
        "ssl.client.auth": "required",  # Kafka: not of SASL_SSL, unless behind the listener's name
    }
    with Cluster(config=config, topics=["orders"]) as cluster:
        login = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        producer = Producer(of_librdkafka(cluster) | login)
        producer.produce("orders", b"x")
        assert producer.flush(20) == 0
        failed: list[str] = []
        admin = AdminClient(
            of_librdkafka(cluster)
            | login
            | {"sasl.password": "no", "error_cb": lambda error: failed.append(error.name())}
        )
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.1)
        wait_for(lambda: bool(failed), admin.poll)
        assert failed[0] == "_AUTHENTICATION"


def test_three_brokers_whose_clients_speak_tls() -> None:
    with Cluster(3, config=OF_SSL, topics=["orders:3:3"]) as cluster:
        producer = Producer(of_librdkafka(cluster, acks="all"))
        for partition in range(3):
            producer.produce("orders", b"x", partition=partition)
        assert producer.flush(20) == 0
        cluster.broker(1).kill()
        for partition in range(3):
            producer.produce("orders", b"y", partition=partition)
        assert producer.flush(30) == 0


# --- keys


def start(values: dict[str, str]) -> NodeRunner:
    """SettingsError when a standalone broker with these keys is refused."""
    return NodeRunner(NodeSpec(node_id=1, role=STANDALONE, values=values, data_dir="/nowhere"))


def test_stores_in_the_configuration_and_keys_with_a_password() -> None:
    text = (STORES / "broker-encrypted.pem").read_text()
    end = text.index("-----BEGIN CERTIFICATE")
    inline = {
        "ssl.keystore.key": text[:end],
        "ssl.keystore.certificate.chain": text[end:],
        "ssl.key.password": "hush-hush",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": (STORES / "ca.pem").read_text(),
        "listener.name.ssl.ssl.client.auth": "requested",
    }
    values = {key: text for key, text in OF_SSL.items() if key != "ssl.keystore.location"}
    (first, second) = start({**values, **inline}).node.listeners
    assert first.tls is not None and first.tls.verify_mode is ssl.CERT_OPTIONAL
    assert second.tls is None and second.connection_type is None
    with pytest.raises(SettingsError) as caught:
        start({**values, **inline, "ssl.key.password": "wrong-one"})
    text = str(caught.value)
    assert "ssl.keystore.location" in text and "\n" not in text
    assert "wrong-one" not in text and "BEGIN" not in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ssl.keystore.type": "JKS"}, "it is of type PEM"),
        ({"ssl.keystore.type": "BKS"}, "kwire reads stores of types JKS, PKCS12, PEM"),
        ({"ssl.keystore.type": "JKS", "ssl.keystore.location": STORE}, "the password of the"),
        ({"ssl.keystore.type": "JKS", "ssl.keystore.location": "/no/x"}, "No such file"),
        ({"ssl.keystore.location": ""}, "a listener with TLS needs it"),
        (
            {"ssl.keystore.location": "", "ssl.keystore.type": "JKS", **INLINE},
            "a private key in the configuration is of type PEM",
        ),
        ({"ssl.keystore.location": "/nowhere/x.pem"}, "No such file"),
        ({"ssl.keystore.location": str(STORES / "ca.pem")}, "no certificate and key in PEM"),
        ({"ssl.client.auth": "required"}, "ssl.client.auth needs it"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "kwire speaks TLSv1.2 and TLSv1.3"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_NULL_MD5"}, "no cipher suite TLS_RSA_WITH_NULL_MD5"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "all suites of TLS 1.3 or none"),
        (
            {"ssl.cipher.suites": SUITE, "ssl.enabled.protocols": "TLSv1.3"},
            "no suite is of a version",
        ),
        ({"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1"}, "is no rule"),
        ({"ssl.keystore.password": "hush"}, "has its password by ssl.key.password"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_line(change: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        start({**OF_SSL, **change})
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)


def with_stores(kind: str, **more: str) -> dict[str, str]:
    """Keys of mutual TLS with stores of a type; made by openssl and keytool."""
    return {
        **OF_SSL,
        "ssl.client.auth": "required",
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(STORES / f"broker.{more.get('ending', kind.lower())}"),
        "ssl.keystore.password": "hush-hush",
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(STORES / f"ca.{more.get('ending', kind.lower())}"),
        "ssl.truststore.password": "hush-hush",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/U,DEFAULT",
    }


def jks() -> dict[str, str]:
    return {**with_stores("JKS"), "ssl.key.password": "other-hush"}


def pkcs12(kind: str = "PKCS12") -> dict[str, str]:
    pytest.importorskip("cryptography")
    return with_stores(kind, ending="p12")


@pytest.mark.parametrize("keys", [jks, pkcs12, lambda: pkcs12("JKS")])
def test_stores_of_java(
    keys: Callable[[], dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    """And rules that say who a client is."""
    caplog.set_level(logging.DEBUG, "kwire")
    with Cluster(config=keys(), topics=["orders"]) as cluster:
        producer = Producer(of_librdkafka(cluster, **own_certificate("client")))
        producer.produce("orders", b"x")
        assert producer.flush(20) == 0
    assert "User:ALICE" in caplog.text


@pytest.mark.parametrize("key", ["ssl.keystore.password", "ssl.truststore.password"])
@pytest.mark.parametrize("keys", [jks, pkcs12])
def test_wrong_passwords_of_stores(keys: Callable[[], dict[str, str]], key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        start({**keys(), key: "wrong-one"})
    assert "the password is wrong, or the store is damaged" in str(caught.value)
    assert "wrong-one" not in str(caught.value)


def test_a_client_whom_no_rule_is_for(caplog: pytest.LogCaptureFixture) -> None:
    config = {**MUTUAL, "ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=brewers$/$1/"}
    with Cluster(config=config) as cluster, caplog.at_level(logging.DEBUG, "kwire"):
        admin = AdminClient(of_librdkafka(cluster, **own_certificate("client")))
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.1)
        wait_for(lambda: bool(lines(caplog, "no rule of ssl.principal")), admin.poll)


def test_cipher_suites() -> None:
    names = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
    with Cluster(config={**OF_SSL, "ssl.cipher.suites": f"{SUITE},{names}"}) as cluster:
        context = ssl.create_default_context(cafile=CA)
        with connected(cluster, context) as client:
            assert client.version() == "TLSv1.3"
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with connected(cluster, context) as client:
            assert client.cipher()[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"  # type: ignore[index]
        context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
        with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
            connected(cluster, context)
    (first, _) = start({**OF_SSL, "ssl.cipher.suites": SUITE}).node.listeners
    assert first.tls is not None and first.tls.maximum_version is ssl.TLSVersion.TLSv1_2
    (first, _) = start({**OF_SSL, "ssl.cipher.suites": names}).node.listeners
    assert first.tls is not None and first.tls.minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ],
)
def test_names_of_cipher_suites(java: str, openssl: str) -> None:
    assert openssl_names([java]) == ([openssl], True, False)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def test_stores_that_are_cut_off_or_damaged() -> None:
    data = (STORES / "broker.jks").read_bytes()
    whole = stores.own_pem(data, "hush-hush", "other-hush")
    assert whole.count("BEGIN") == 2
    assert stores.own_pem(data, "", "other-hush") == whole  # unread: the digest of the store
    for size in range(4, len(data)):
        with pytest.raises(ValueError, match=r"\w"):
            stores.own_pem(data[:size], "hush-hush", "other-hush")
    for at in range(4, len(data)):
        with pytest.raises(ValueError, match=r"\w"):
            stores.own_pem(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :], "hush-hush", "")
    with pytest.raises(ValueError, match="no certificate in it"):
        stores.trusted_pem(data, "hush-hush")


def test_names_of_certificates_are_as_java_prints_them() -> None:
    subject = (
        (("organizationName", "Tea, Inc."),),
        (("organizationalUnitName", "sales"),),
        (("commonName", "alice"),),
    )
    assert principal_of({"subject": subject}) == "User:CN=alice,OU=sales,O=Tea\\, Inc."
    assert principal_of({"subject": ((("commonName", "#a "),),)}) == "User:CN=\\#a\\ "
    assert principal_of({}) is None and principal_of(None) is None
