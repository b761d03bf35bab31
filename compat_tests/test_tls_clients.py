"""Certificates right and wrong: what stock clients make of them, beside kwire and Apache Kafka 3.9.1 (REAL=1)."""

import asyncio
import logging
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from compat_tests import brokers

pytestmark = pytest.mark.timeout(120)
STORES = Path(__file__).resolve().parents[1] / "tests" / "data" / "tls"
LISTENERS = {  # the broker's certificate, and who signs those of clients
    "RIGHT": ("broker", None),
    "EXPIRED": ("expired-broker", None),
    "OTHERHOST": ("other-host", None),
    "MUTUAL": ("broker", "ca"),
    "MUTUALX": ("broker", "expired-ca"),
}
quiet = logging.getLogger("librdkafka of these tests")
quiet.disabled = True


def keys_of(ports: dict[str, int]) -> dict[str, str]:
    found = {
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(
            ["PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", *(f"{name}:SSL" for name in LISTENERS)]
        ),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
    }
    for name, (own, trusted) in LISTENERS.items():
        prefix = f"listener.name.{name.lower()}.ssl"
        found[f"{prefix}.keystore.type"] = "PEM"
        found[f"{prefix}.keystore.location"] = str(STORES / f"{own}.pem")
        if trusted is not None:
            found[f"{prefix}.client.auth"] = "required"
            found[f"{prefix}.truststore.type"] = "PEM"
            found[f"{prefix}.truststore.location"] = str(STORES / f"{trusted}.pem")
    return found


class KwireWithTls(brokers.KwireBroker):
    ports: dict[str, int]

    def _command(self) -> list[str]:
        self.ports = {"PLAINTEXT": self.port, **{name: brokers.free_port() for name in LISTENERS}}
        self.config = keys_of(self.ports)
        command = super()._command()
        at = command.index("--port")
        return command[:at] + command[at + 2 :]


class KafkaWithTls(brokers.RealKafka):
    ports: dict[str, int]

    def _properties(self, controller_port: int) -> str:
        self.ports = {"PLAINTEXT": self.port, **{name: brokers.free_port() for name in LISTENERS}}
        keys = keys_of(self.ports)
        own = keys["listeners"]
        keys["listeners"] = f"{own},CONTROLLER://127.0.0.1:{controller_port}"
        self.config = {**keys, "advertised.listeners": own}
        return super()._properties(controller_port)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    real = os.environ.get("REAL") == "1"
    broker = (KafkaWithTls if real else KwireWithTls)(tmp_path_factory.mktemp("tls"))
    if not real:
        broker.port = brokers.free_port()
    broker.start()
    yield broker
    broker.stop()


def of_librdkafka(address: str, ca: str, own: str | None) -> str | None:
    """The reason that the client gives; None: it gets an answer."""
    said: list[str] = []
    config: dict[str, Any] = {
        "bootstrap.servers": address,
        "security.protocol": "SSL",
        "ssl.ca.location": ca,
        "logger": quiet,
        "error_cb": lambda error: said.append(error.str()),
    }
    if own:
        config |= {"ssl.certificate.location": own, "ssl.key.location": own}
    admin = AdminClient(config)
    for _ in range(100):
        try:
            admin.list_topics(timeout=0.2)
            return None
        except Exception:
            admin.poll(0)
            if said:
                return said[0]
    return "no answer"


def of_kafka_python(address: str, ca: str, own: str | None) -> str | None:
    more = {"ssl_certfile": own, "ssl_keyfile": own} if own else {}
    try:
        KafkaAdminClient(
            bootstrap_servers=address,
            security_protocol="SSL",
            ssl_cafile=ca,
            bootstrap_timeout_ms=3000,
            request_timeout_ms=3000,
            **more,
        ).close()
    except Exception as error:
        return type(error).__name__
    return None


def of_aiokafka(address: str, ca: str, own: str | None) -> str | None:
    context = ssl.create_default_context(cafile=ca)
    if own:
        context.load_cert_chain(own)

    async def ask() -> None:
        admin = AIOKafkaAdminClient(
            bootstrap_servers=address,
            security_protocol="SSL",
            ssl_context=context,
            request_timeout_ms=3000,
        )
        try:
            await admin.start()
        finally:
            await admin.close()

    try:
        asyncio.run(ask())
    except Exception as error:
        return type(error).__name__
    return None


@pytest.mark.parametrize("client", [of_librdkafka, of_kafka_python, of_aiokafka])
@pytest.mark.parametrize(
    ("listener", "ca", "own", "said"),
    [
        ("RIGHT", "ca", None, None),
        ("RIGHT", "foreign-ca", None, "certificate verify failed"),
        ("EXPIRED", "expired-ca", None, "certificate verify failed"),
        ("OTHERHOST", "ca", None, "certificate verify failed"),
        ("MUTUAL", "ca", "client", None),
        ("MUTUAL", "ca", None, ""),
        ("MUTUAL", "ca", "foreign-client", ""),
        ("MUTUALX", "ca", "expired-client", ""),
    ],
)
def test_certificates(
    guarded: Any, client: Any, listener: str, ca: str, own: str | None, said: str | None
) -> None:
    address = f"127.0.0.1:{guarded.ports[listener]}"
    found = client(
        address, str(STORES / f"{ca}.pem"), None if own is None else str(STORES / f"{own}.pem")
    )
    if said is None:
        assert found is None
        return
    assert found is not None
    if client is of_librdkafka:
        assert said in found
    else:
        assert found in ("KafkaConnectionError", "NoBrokersAvailable", "KafkaTimeoutError"), found
