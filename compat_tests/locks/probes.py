"""The clients that are tried at locked listeners, by name: how the process of each starts, or what stands for one."""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from compat_tests import tooling
from compat_tests.clients import Client
from compat_tests.test_java_tools import BY_VERSION

HERE = Path(__file__).resolve().parent
IN = "in"
MODULES = "org.apache.kafka.common.security"
JAVA_VERSIONS = tooling.KAFKA_TOOLS
_TOOL_SECONDS = 60
_MESSAGES = (
    "SSL handshake failed",
    "Failed to process post-handshake messages",
    "Authentication failed",
    "not enabled in the server",
)
STORE_PASSWORD = "changeit"


@functools.cache
def pkcs12_of(path: str) -> str:
    """A key and its certificate in PEM as a store: Kafka 2.8 reads no key in PEM that is not enciphered."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509 import load_pem_x509_certificate

    data = Path(path).read_bytes()
    key: Any = serialization.load_pem_private_key(data, None)
    certificate = load_pem_x509_certificate(data[data.index(b"-----BEGIN CERTIFICATE") :])
    cipher = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    made = pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, cipher)
    store = Path(tempfile.mkdtemp(prefix="kwire-locks-")) / f"{Path(path).stem}.p12"
    store.write_bytes(made)
    atexit.register(shutil.rmtree, store.parent, ignore_errors=True)
    return str(store)


@dataclass(frozen=True)
class Attempt:
    """What a client tries (compat_tests/locks/__init__.py); `own` and `mechanism` "": none."""

    servers: str
    ca: str
    own: str
    mechanism: str
    user: str
    password: str
    topic: str
    value: str

    def properties(self) -> dict[str, str]:
        """As Java's clients and console tools have it, but for the address."""
        found = {
            "security.protocol": "SASL_SSL" if self.mechanism else "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }
        if self.own:
            found |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": pkcs12_of(self.own)}
            found |= {"ssl.keystore.password": STORE_PASSWORD, "ssl.key.password": STORE_PASSWORD}
        if self.mechanism:
            module = (
                "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
            )
            found["sasl.mechanism"] = self.mechanism
            found["sasl.jaas.config"] = (
                f'{MODULES}.{module} required username="{self.user}" password="{self.password}";'
            )
        return found


@dataclass(frozen=True)
class Outcome:
    """`kind`: IN, or the kind of the client's error; `text`: what it says."""

    kind: str
    text: str


class Probe(Protocol):
    def attempt(self, wanted: Attempt) -> Outcome: ...

    def close(self) -> None: ...


class Process:
    """A client that stays for all attempts."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self._client = Client(argv, environment, "")

    def attempt(self, wanted: Attempt) -> Outcome:
        self._client.send("", **asdict(wanted), properties=wanted.properties())
        return Outcome(**self._client.receive(100.0))

    def close(self) -> None:
        self._client.close()


class Kcat:
    """kcat: one run to write, one to read."""

    def __init__(self) -> None:
        self._program = tooling.kcat()

    def attempt(self, wanted: Attempt) -> Outcome:
        config = {
            "security.protocol": "sasl_ssl" if wanted.mechanism else "ssl",
            "ssl.ca.location": wanted.ca,
            "message.timeout.ms": "8000",
        }
        if wanted.own:
            config |= {"ssl.certificate.location": wanted.own, "ssl.key.location": wanted.own}
        if wanted.mechanism:
            config |= {"sasl.mechanism": wanted.mechanism, "sasl.username": wanted.user}
            config["sasl.password"] = wanted.password
        common = [self._program, "-b", wanted.servers, "-t", wanted.topic]
        common += [word for key, value in config.items() for word in ("-X", f"{key}={value}")]
        status, said = _run([*common, "-P"], wanted.value)
        if status == 0:
            status, said = _run([*common, "-C", "-o", "beginning", "-e", "-q"])
        if status == 0:
            assert wanted.value in said.split(), said
            return Outcome(IN, "")
        lines = re.findall(r"\|FAIL\|[^\n]*?(?:/bootstrap|/\d+): ([^\n]*)", said)
        reason = lines[0] if lines else said
        # librdkafka sometimes leaves out that it is the handshake which has failed.
        words = (word for word in ("certificate verify failed", "alert") if word in reason)
        return Outcome(next(words, reason.partition(":")[0].strip()), reason)

    def close(self) -> None: ...


class ConsoleTools:
    """kafka-topics, kafka-console-producer and kafka-console-consumer of one release, with a file of properties."""

    def __init__(self, version: str) -> None:
        self._version = version
        tooling.java()
        tooling.kafka_jars(version)

    def attempt(self, wanted: Attempt) -> Outcome:
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
            file.writelines(f"{key}={value}\n" for key, value in wanted.properties().items())
            file.write("default.api.timeout.ms=8000\nrequest.timeout.ms=7000\n")
            file.flush()
            given: tuple[str, ...] = ("--command-config", file.name)
            status, said = self._run("kafka-topics", wanted, *given, "--list")
            if status == 0:
                given = ("--producer.config", file.name, "--topic", wanted.topic)
                status, said = self._run("kafka-console-producer", wanted, *given)
            if status == 0:
                given = ("--consumer.config", file.name, "--topic", wanted.topic)
                given = (*given, "--from-beginning", "--timeout-ms", "3000")
                status, said = self._run("kafka-console-consumer", wanted, *given)
                assert wanted.value in said.split(), said
                return Outcome(IN, "")
        found = re.findall(r"org\.apache\.kafka\.common\.errors\.(\w+): ([^\n]*)", said)
        if not found:  # since Kafka 4 kafka-topics shows the message alone
            found = [(word, said) for word in _MESSAGES if word in said]
        kind, text = found[0] if found else (f"exit status {status}", said)
        return Outcome(kind, text)

    def _run(self, tool: str, wanted: Attempt, *given: str) -> tuple[int, str]:
        main = BY_VERSION[self._version][tool]
        argv = tooling.java_argv(self._version, main, "--bootstrap-server", wanted.servers, *given)
        return _run(argv, f"{wanted.value}\n" if tool == "kafka-console-producer" else "")

    def close(self) -> None: ...


def _run(argv: list[str], stdin: str = "") -> tuple[int, str]:
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
    )
    return done.returncode, done.stdout + done.stderr


def _python(library: str) -> Process:
    argv = [sys.executable, str(HERE / "attempt.py"), library]
    return Process(argv, {"PYTHONPATH": tooling.python_path(library), "PYTHONSAFEPATH": ""})


def _go(library: str) -> Process:
    return Process([tooling.go_program(HERE / "go", ".", "locks"), library], {})


def _kafkajs() -> Process:
    environment = {"NODE_PATH": str(tooling.node_modules())}
    return Process([tooling.node(), str(HERE / "attempt.js")], environment)


def _java(version: str) -> Process:
    source = HERE / "Attempts.java"
    classes = tooling.java_program(source, JAVA_VERSIONS[0]).partition(":")[0]
    jars = f"{classes}:{tooling.kafka_jars(version)}"
    fast = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx128m"]
    return Process([tooling.java(), *fast, *tooling.QUIET, "-cp", jars, source.stem], {})


def _of(start: Callable[..., Any], *arguments: str) -> Callable[[], Probe]:
    return lambda: start(*arguments)


PROBES: dict[str, Callable[[], Probe]] = {
    **{
        name: _of(_python, name)
        for name in ("confluent-kafka", "kafka-python-2", "kafka-python-3", "aiokafka")
    },
    "kcat": Kcat,
    "franz-go": _of(_go, "franz-go"),
    "sarama": _of(_go, "sarama"),
    "kafkajs": _kafkajs,
    **{f"java {version}": _of(_java, version) for version in JAVA_VERSIONS},
    **{f"console tools {version}": _of(ConsoleTools, version) for version in JAVA_VERSIONS},
}
