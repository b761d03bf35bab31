"""A broker with one listener for each kind of lock: kwire's or Kafka's, with the same `server.properties`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from compat_tests import brokers
from compat_tests.test_security import MODULES, Wire, altered, scram_upsertion
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

STORES = Path(__file__).resolve().parents[2] / "tests" / "data" / "tls"
TOPIC = "locked"
USER, PASSWORD = "alice", "secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS = {
    # name: (protocol, the broker's certificate, who signs those of clients)
    "TLS": ("SSL", "broker", None),
    "EXPIRED": ("SSL", "expired-broker", None),
    "OTHERHOST": ("SSL", "other-host", None),
    "MUTUAL": ("SSL", "broker", "ca"),
    "MUTUALX": ("SSL", "broker", "expired-ca"),
    "LOGIN": ("SASL_SSL", "broker", None),
    "PLAINONLY": ("SASL_SSL", "broker", None),
    "BOTH": ("SASL_SSL", "broker", "ca"),
}


def keys_of(ports: dict[str, int]) -> dict[str, str]:
    """The keys of the broker's listeners, at these ports."""
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    protocols |= {name: protocol for name, (protocol, _, _) in LISTENERS.items()}
    found = {
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
    }
    for name, (protocol, own, trusted) in LISTENERS.items():
        prefix = f"listener.name.{name.lower()}"
        found[f"{prefix}.ssl.keystore.type"] = "PEM"
        found[f"{prefix}.ssl.keystore.location"] = str(STORES / f"{own}.pem")
        if trusted is not None:
            found[f"{prefix}.ssl.client.auth"] = "required"
            found[f"{prefix}.ssl.truststore.type"] = "PEM"
            found[f"{prefix}.ssl.truststore.location"] = str(STORES / f"{trusted}.pem")
        if protocol == "SASL_SSL":
            mechanisms = MECHANISMS[:1] if name == "PLAINONLY" else MECHANISMS
            found[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(mechanisms)
            plain = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            found[f"{prefix}.plain.sasl.jaas.config"] = plain
            for mechanism in mechanisms[1:]:
                module = f"{MODULES}.scram.ScramLoginModule required;"
                found[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = module
    return found


class _Locked(brokers.Broker):
    """What both have: a port for each listener, a topic, and a user of both SCRAM mechanisms."""

    ports: dict[str, int]

    def _choose_ports(self) -> dict[str, str]:
        self.ports = {"PLAINTEXT": self.port}
        self.ports |= {name: brokers.free_port() for name in LISTENERS}
        return keys_of(self.ports)

    def open_up(self) -> None:
        """Make the topic and the user."""
        wire = Wire(self.port, 30.0)
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        answer = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert answer.topics[0].error_code == 0
        for mechanism in (1, 2):
            upsertion = scram_upsertion(USER, PASSWORD, mechanism)
            assert altered(wire, upsertion) == [(USER, 0, None)]
        wire.close()


Locked = TypeVar("Locked", bound=_Locked)


class LockedKwire(_Locked, brokers.KwireBroker):
    def _command(self) -> list[str]:
        self.config = self._choose_ports()
        command = super()._command()
        at = command.index("--port")
        return command[:at] + command[at + 2 :]


class LockedKafka(_Locked, brokers.RealKafka):
    def _properties(self, controller_port: int) -> str:
        keys = self._choose_ports()
        own = keys["listeners"]
        keys["listeners"] = f"{own},CONTROLLER://127.0.0.1:{controller_port}"
        self.config = {**keys, "advertised.listeners": own}
        return super()._properties(controller_port)


def started(broker: Locked) -> Locked:
    """The broker after its start, with the topic and the user; the caller stops it."""
    if isinstance(broker, LockedKwire):
        broker.port = brokers.free_port()
    broker.start()
    broker.open_up()
    return broker


def locked_broker(folder: Path) -> LockedKwire | LockedKafka:
    """Started, of the kind that REAL asks for."""
    return started(LockedKafka(folder) if os.environ.get("REAL") == "1" else LockedKwire(folder))
