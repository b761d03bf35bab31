"""Key stores and trust stores that are exchanged while a broker runs (AlterConfigs): with stock clients."""

from __future__ import annotations

import datetime
import logging
import ssl
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kwire import Cluster

x509 = pytest.importorskip("cryptography.x509")
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402

pytestmark = pytest.mark.timeout(60)
quiet = logging.getLogger("librdkafka of this test")
quiet.disabled = True
PREFIX = "listener.name.ssl."
LOCATION, TRUST = f"{PREFIX}ssl.keystore.location", f"{PREFIX}ssl.truststore.location"


class Authority:
    """Makes certificates. `ca`: its own, a file."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.ca = str(folder / f"{name}.pem")
        own = self._signed(self._name, self._key, [], is_ca=True)
        Path(self.ca).write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def make(self, file: str, cn: str = "broker", names: tuple[str, ...] = ("localhost",)) -> str:
        """A certificate with its key; returns the file."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, cn)])
        known: list[Any] = [x509.DNSName(name) for name in names]
        found = self._signed(subject, key, [*known, x509.IPAddress(ip_address("127.0.0.1"))])
        path = self._folder / file
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + found.public_bytes(serialization.Encoding.PEM)
        )
        return str(path)

    def _signed(self, subject: Any, key: Any, names: list[Any], *, is_ca: bool = False) -> Any:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=9))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def keys(authority: Authority, store: str, **more: str) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def config_of(cluster: Cluster, authority: Authority, **more: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": authority.ca,
        "logger": quiet,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def served(cluster: Cluster) -> str:
    """The certificate that a new connection gets."""
    host, _, port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
    return "".join(ssl.get_server_certificate((host, int(port))).split())


def own(path: str) -> str:
    text = Path(path).read_text()
    return "".join(text[text.index("-----BEGIN CERTIFICATE") :].split())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def change(admin: AdminClient, values: dict[str, str], *, only: bool = False) -> None:
    """IncrementalAlterConfigs of broker 1. KafkaException. `only`: validate."""
    operation = AlterConfigOpType.SET
    entries = [ConfigEntry(k, v, incremental_operation=operation) for k, v in values.items()]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    admin.incremental_alter_configs([resource], validate_only=only)[resource].result(20)


def refusal(admin: AdminClient, values: dict[str, str], *, only: bool = False) -> str:
    with pytest.raises(KafkaException) as caught:
        change(admin, values, only=only)
    error = caught.value.args[0]
    assert error.code() == KafkaError.INVALID_REQUEST
    return str(error.str())


def test_new_connections_get_the_new_certificate_and_old_ones_go_on(authority: Authority) -> None:
    first, second = authority.make("first.pem"), authority.make("second.pem")
    with Cluster(config=keys(authority, first), topics=["orders"]) as cluster:
        config = config_of(cluster, authority)
        admin = AdminClient(config)
        lost: list[Any] = []
        producer = Producer({**config, "error_cb": lost.append})
        producer.produce("orders", b"tea")
        assert producer.flush(20) == 0
        assert served(cluster) == own(first)
        change(admin, {LOCATION: second}, only=True)
        change(admin, {LOCATION: second})
        until(lambda: served(cluster) == own(second))
        producer.produce("orders", b"tea")
        assert producer.flush(20) == 0 and lost == []
        assert AdminClient(config).list_topics(timeout=20).topics
        admin.alter_configs([ConfigResource(ResourceType.BROKER, "1")])  # back to the file's keys
        until(lambda: served(cluster) == own(first))


def test_the_same_location_is_a_file_to_be_read_again(authority: Authority) -> None:
    store = authority.make("own.pem")
    with Cluster(config=keys(authority, store)) as cluster:
        admin = AdminClient(config_of(cluster, authority))
        change(admin, {LOCATION: store})
        before = own(store)
        authority.make("own.pem")
        assert served(cluster) == before  # nobody has said so
        change(admin, {LOCATION: store}, only=True)
        assert served(cluster) == before
        change(admin, {LOCATION: store})
        until(lambda: served(cluster) == own(store))
        after = own(store)
        Path(store).write_text("no certificate")
        change(admin, {LOCATION: store})  # as in Kafka: its log says what is wrong
        assert served(cluster) == after


def test_what_cannot_be_used_is_refused(authority: Authority, tmp_path: Path) -> None:
    store = authority.make("own.pem", names=("localhost", "kafka"))
    with Cluster(config=keys(authority, store)) as cluster:
        admin = AdminClient(config_of(cluster, authority))
        (tmp_path / "wrong.pem").write_text("no certificate")
        for only in (True, False):
            assert "no such file" in refusal(admin, {LOCATION: "/no/store"}, only=only).lower()
        assert "no certificate and key" in refusal(admin, {LOCATION: str(tmp_path / "wrong.pem")})
        other = authority.make("other.pem", cn="other", names=("localhost", "kafka"))
        said = refusal(admin, {LOCATION: other})
        assert "Keystore DistinguishedName does not match: existing=CN=broker, new=CN=other" in said
        fewer = authority.make("fewer.pem")
        assert "the new one is without DNS:kafka" in refusal(admin, {LOCATION: fewer})
        assert "only per-listener" in refusal(admin, {"ssl.keystore.location": fewer})
        assert "reads it when it starts" in refusal(admin, {f"{PREFIX}ssl.client.auth": "none"})
        assert "Cannot add SSL truststore" in refusal(admin, {TRUST: authority.ca})
        more = authority.make("more.pem", names=("kafka", "localhost", "more"))
        change(admin, {LOCATION: more})
        until(lambda: served(cluster) == own(more))


def test_another_subject_where_that_is_allowed(authority: Authority) -> None:
    store = authority.make("own.pem", names=("localhost", "kafka"))
    more = {"ssl_allow_dn_changes": "true", f"{PREFIX}ssl.allow.san.changes": "true"}
    with Cluster(config=keys(authority, store, **more)) as cluster:
        other = authority.make("other.pem", cn="other")
        change(AdminClient(config_of(cluster, authority)), {LOCATION: other})
        until(lambda: served(cluster) == own(other))


def test_whom_a_broker_trusts_is_exchanged(authority: Authority, tmp_path: Path) -> None:
    store, stranger = authority.make("own.pem"), Authority(tmp_path, "stranger")
    more = {
        "ssl_client_auth": "required",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": authority.ca,
    }
    with Cluster(config=keys(authority, store, **more)) as cluster:
        files = {"ssl_certificate_location": store, "ssl_key_location": store}
        admin = AdminClient(config_of(cluster, authority, **files))
        theirs = stranger.make("theirs.pem")
        client = AdminClient(
            config_of(cluster, authority, ssl_certificate_location=theirs, ssl_key_location=theirs)
        )
        with pytest.raises(KafkaException):
            client.list_topics(timeout=1)
        both = tmp_path / "both.pem"
        both.write_text(Path(authority.ca).read_text() + Path(stranger.ca).read_text())
        change(admin, {TRUST: str(both)})
        assert client.list_topics(timeout=20).brokers


def test_brokers_have_to_trust_each_other_afterwards(authority: Authority, tmp_path: Path) -> None:
    store = authority.make("own.pem")
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.ca,
        "ssl.client.auth": "required",
    }
    with Cluster(2, config=config, topics=["orders:1:2"]) as cluster:
        files = {"ssl_certificate_location": store, "ssl_key_location": store}
        admin = AdminClient(config_of(cluster, authority, **files))
        strange = Authority(tmp_path, "stranger").make("strange.pem")
        assert "would not trust each other" in refusal(admin, {LOCATION: strange})
        second = authority.make("second.pem")
        change(admin, {LOCATION: second})
        until(lambda: served_mutually(cluster, store) == own(second))
        cluster.broker(2).kill()
        cluster.broker(2).start()
        cluster.wait_in_sync("orders")


def served_mutually(cluster: Cluster, store: str) -> str:
    """The certificate that a new connection with this client certificate gets."""
    import socket

    host, _, port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(store)
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        found = wrapped.getpeercert(binary_form=True)
    assert found is not None
    return "".join(ssl.DER_cert_to_PEM_cert(found).split())
