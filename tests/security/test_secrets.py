"""Secrets are behind no door: whatever a cluster with log-ins and TLS shows or writes is searched for them.

The secrets are told to a `kwire up` in every way, right and wrong: users, JAAS lines, passwords of key stores, the key
of delegation tokens, passwords that clients get wrong, values that are refused."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from test_access_options import kwire
from test_certificates import ROOT
from test_exchange import until

from kwire import Cluster
from kwire.control.routes import ROUTES

pytestmark = pytest.mark.timeout(120)
quiet = logging.getLogger("librdkafka of this test")
quiet.disabled = True

STORES = ROOT / "tests" / "data" / "tls"
USERS = {"admin": "Gibraltar-admin", "alice": "Gibraltar-alice"}
SECRETS = {
    **USERS,
    "scram": "Gibraltar-scram",
    "wrong": "Gibraltar-wrong",
    "unknown": "Gibraltar-unknown",
    "token key": "Gibraltar-token-key",
    "store": "hush-hush",
    "key": "other-hush",
    "refused": "Gibraltar-refused",
}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PREFIX = "listener.name.sasl_ssl."
KEYS = {
    "listeners": "SASL_SSL://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{_PREFIX}plain.sasl.jaas.config": f'{_PLAIN} required username="admin" password="{USERS["admin"]}"'
    + "".join(f' user_{name}="{secret}"' for name, secret in USERS.items())
    + ";",
    f"{_PREFIX}scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
    "ssl.keystore.location": str(STORES / "broker.jks"),
    "ssl.keystore.password": SECRETS["store"],
    "ssl.key.password": SECRETS["key"],
    "ssl.truststore.location": str(STORES / "ca.jks"),
    "ssl.truststore.password": SECRETS["store"],
    "delegation.token.secret.key": SECRETS["token key"],
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def config(bootstrap: str, user: str, secret: str, mechanism: str = "PLAIN") -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": secret,
        "ssl.ca.location": str(STORES / "ca.pem"),
        "logger": quiet,
    }


def use(bootstrap: str) -> list[str]:
    """What clients do with their secrets; what the broker has told them."""
    told: list[str] = []
    admin = AdminClient(config(bootstrap, "admin", USERS["admin"]))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("bob", info, SECRETS["scram"].encode())
    (made,) = admin.alter_user_scram_credentials([upsertion]).values()
    made.result(20)
    attempts = [
        ("alice", USERS["alice"], "PLAIN"),
        ("bob", SECRETS["scram"], "SCRAM-SHA-256"),
        ("alice", SECRETS["wrong"], "PLAIN"),
        ("bob", SECRETS["wrong"], "SCRAM-SHA-256"),
        ("nobody", SECRETS["unknown"], "PLAIN"),
    ]
    for user, secret, mechanism in attempts:
        errors: list[str] = []
        producer = Producer(
            {
                **config(bootstrap, user, secret, mechanism),
                "error_cb": lambda e, said=errors: said.append(str(e)),
            }
        )
        producer.produce("orders", b"tea", on_delivery=lambda e, _, s=errors: s.append(str(e)))
        until(lambda p=producer, said=errors: bool(p.poll(0.05)) or bool(said))
        producer.purge()
        told += errors
    again = {f"{_PREFIX}ssl.keystore.password": SECRETS["store"]}
    wrong = {f"{_PREFIX}ssl.keystore.password": SECRETS["refused"]}
    listed = {
        f"{_PREFIX}plain.sasl.jaas.config": f'{_PLAIN} required user_a="{SECRETS["refused"]}"'
    }
    for values in (again, wrong, listed):
        told.append(alter(admin, values))
    assert told[-3] == "" and all(told[-2:]), told
    assert "Gibraltar-7" in alter(
        admin, {"num.io.threads": "Gibraltar-7"}
    )  # no secret: it is shown
    resource = ConfigResource(ResourceType.BROKER, "1")
    found = admin.describe_configs([resource])[resource].result(20)
    told += [f"{each.name}={each.value}" for each in found.values()]
    told += [str(other) for each in found.values() for other in each.synonyms.values()]
    assert found["ssl.keystore.password"].value is None
    return told


def alter(admin: AdminClient, values: dict[str, str]) -> str:
    """The refusal of an alteration of broker 1, "" if there is none."""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in values.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    try:
        admin.incremental_alter_configs([resource])[resource].result(20)
    except KafkaException as error:
        return str(error)
    return ""


@contextmanager
def up(folder: Path) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """A `kwire up` of two brokers that logs all it can; its ready file. Its output is in `folder`."""
    properties, ready = folder / "server.properties", folder / "ready"
    properties.write_text("".join(f"{key}={value}\n" for key, value in KEYS.items()))
    words = ["up", "--brokers", "2", "--config", str(properties), "--ready-file", str(ready)]
    words += ["--log-level", "debug", "--log-json", "--data-dir", str(folder / "data")]
    words += ["--topic", "orders", "--recent-requests", "--isolation", "process"]
    with open(folder / "out", "w") as out, open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kwire", *words], stdout=out, stderr=log, text=True, cwd=ROOT
        )
        try:
            until(lambda: ready.exists() or process.poll() is not None)
            yield json.loads(ready.read_text()), process
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def doors(control: str) -> Iterator[tuple[str, str]]:
    """Every GET of the control API, with what it answers."""
    place, _, token = control.removeprefix("http://kwire:").partition("@")[::-1]
    found = {"id": "1", "topic": "orders", "n": "0", "group": "g", "transaction": "t", "name": "s"}
    paths = {route.path for route in ROUTES if route.method == "GET"}
    assert len(paths) > 20
    for path in sorted(paths):
        for name, value in found.items():
            path = path.replace("{" + name + "}", value)
        request = Request(f"http://{place}{path}", headers={"Authorization": f"Bearer {token}"})
        try:
            with urlopen(request, timeout=20) as answer:
                yield path, answer.read().decode()
        except OSError as error:  # an HTTPError: of a topic that is not there, for example
            yield path, str(error)


def test_no_door_shows_a_secret(tmp_path: Path) -> None:
    shown: dict[str, str] = {}
    with up(tmp_path) as (ready, process):
        control = ready["control"]
        token = control.partition("@")[0].rpartition(":")[2]
        shown["clients"] = "\n".join(use(ready["bootstrap"]))
        os.kill(process.pid, signal.SIGUSR1)
        shown |= dict(doors(control))
        port = control.rpartition(":")[2]
        for words in (
            ("status", "--json"),
            ("ctl", "status", "1"),
            ("ctl", "events"),
            ("ctl", "requests"),
            ("ctl", "snapshot", "save", "s"),
            ("report", "-o", str(tmp_path / "page.html")),
        ):
            own = () if words[0] == "status" else ("--port", port)
            done = kwire(*words, *own)
            assert done.returncode == 0, done.stderr
            shown[" ".join(words)] = done.stdout + done.stderr
        shown["page"] = (tmp_path / "page.html").read_text()
    for name in ("out", "log"):
        shown[name] = (tmp_path / name).read_text()
    assert "authentication failed" in shown["log"] and "alice" in shown["log"]
    for name, text in shown.items():
        for kind, secret in SECRETS.items():
            assert secret not in text, f"{kind} in {name}"
    # What is known to be told: the URL, to the user.
    told = {name for name, text in shown.items() if token in text}
    assert told <= {"out", "status --json"}


def test_what_a_cluster_says_of_itself_has_no_secret() -> None:
    with Cluster(sasl="plain", users=USERS, recent_requests=True) as cluster:
        config = cluster.client_config("librdkafka", "alice")
        producer = Producer({**config, "logger": quiet})
        producer.produce("orders", b"tea")
        assert producer.flush(10) == 0
        shown = [
            repr(cluster),
            str(cluster.describe()),
            str(cluster.requests()),
            repr(cluster.events()),
        ]
        for secret in USERS.values():
            assert not any(secret in text for text in shown)
