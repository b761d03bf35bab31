"""Delegation tokens, in bytes and with Kafka's own tools, as docs/security.md says; REAL=1: Apache Kafka 3.9.1."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from compat_tests import brokers, test_security, tooling
from compat_tests.clients import Client, eventually
from compat_tests.test_security import CLOSED, MODULES, Wire, brokers_known, shake
from kwire.protocol.schemas.acls import AclCreation, CreateAclsRequest
from kwire.protocol.schemas.sasl import SaslAuthenticateRequest
from kwire.protocol.schemas.tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.replication.core.acls import (
    ALL,
    ALLOW,
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DESCRIBE,
    DESCRIBE_TOKENS,
    GROUP,
    LITERAL,
    TOPIC,
    USER,
)
from kwire.security.scram import ScramClient

pytestmark = pytest.mark.timeout(280)

LOCKS = Path(__file__).resolve().parent / "locks"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "security.md"
PASSWORDS = {
    "admin": "hush",
    "alice": "secret",
    "bob": "secret",
    "carol": "secret",
    "erin": "secret",
}
USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
PLAIN_MODULE, SCRAM_MODULE = (
    f"{MODULES}.plain.PlainLoginModule",
    f"{MODULES}.scram.ScramLoginModule",
)
SECRET = "a key that nobody learns"
KEYS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",  # ANONYMOUS: between the brokers of the plain listener
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {USERS};",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "delegation.token.secret.key": SECRET,
}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DISABLED, NOT_FOUND, MISMATCH, NOT_ALLOWED, NO_RIGHT, EXPIRED, BAD_TYPE = 61, 62, 63, 64, 65, 66, 67


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    is_real = os.environ.get("REAL") == "1"
    kind = test_security.KafkaWithLogins if is_real else test_security.KwireWithLogins
    with pytest.MonkeyPatch.context() as patch:
        for key, value in KEYS.items():
            patch.setitem(test_security.KEYS, key, value)
        broker = kind(tmp_path_factory.mktemp("tokens"))
        if not is_real:
            broker.port = brokers.free_port()
        broker.start()
        yield broker
        broker.stop()


class ByToken(ScramClient):
    """A client that shows a token, as Java's."""

    def __init__(
        self, token: Any, mechanism: str = MECHANISMS[0], extension: str = ",tokenauth=true"
    ) -> None:
        password = b64encode(token.hmac).decode()
        super().__init__(mechanism, token.token_id, password, Random())
        self._bare += extension


def by(broker: Any, exchange: ScramClient) -> tuple[Wire, Any]:
    """A connection after a log-in, and the last answer to it."""
    wire = Wire(broker.login_port)
    assert shake(wire, exchange.mechanism)[0] == 0
    token: bytes | None = exchange.first()
    answer: Any = None
    while token is not None:
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if isinstance(answer, str) or answer.error_code:
            break
        token = exchange.evaluate(bytes(answer.auth_bytes))
    return wire, answer


@pytest.fixture
def user(broker: Any) -> Iterator[Callable[[str], Wire]]:
    """A connection of a user."""
    wires: list[Wire] = []

    def connected(name: str) -> Wire:
        wire = Wire(broker.login_port)
        wires.append(wire)
        assert shake(wire)[0] == 0
        data = f"\0{name}\0{PASSWORDS[name]}".encode()
        assert wire.ask(SaslAuthenticateRequest(auth_bytes=data), 2).error_code == 0
        return wire

    yield connected
    for wire in wires:
        wire.close()


def create(
    wire: Wire,
    *,
    renewers: tuple[str, ...] = (),
    owner: tuple[str | None, str | None] | None = None,
    max_ms: int = -1,
    version: int = 3,
) -> Any:
    request = CreateDelegationTokenRequest(
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, _, name in (each.partition(":") for each in renewers)
        ],
        max_lifetime_ms=max_ms,
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = owner
    return wire.ask(request, version)


def known(wire: Wire, token: Any) -> Any:
    """The token once the broker knows it: Kafka's brokers learn of it a little later."""
    assert token.error_code == 0
    admin_sees = eventually(
        lambda: any(each.token_id == token.token_id for each in describe(wire).tokens)
    )
    assert admin_sees
    return token


def describe(wire: Wire, owners: list[str] | None = None, version: int = 3) -> Any:
    named = owners and [
        DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners
    ]
    return wire.ask(DescribeDelegationTokenRequest(owners=[] if owners == [] else named), version)


def renew(wire: Wire, key: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    answer = wire.ask(RenewDelegationTokenRequest(hmac=key, renew_period_ms=period_ms), version)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(wire: Wire, key: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    request = ExpireDelegationTokenRequest(hmac=key, expiry_time_period_ms=period_ms)
    answer = wire.ask(request, version)
    return answer.error_code, answer.expiry_timestamp_ms


def allow(broker: Any, operation: int, kind: int, name: str, principal: str) -> None:
    wire = Wire(broker.port)
    rule = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )
    (result,) = wire.ask(CreateAclsRequest(creations=[rule]), 3).results
    assert result.error_code == 0
    wire.close()


# --- requests


@pytest.mark.parametrize("version", range(4))
def test_a_token_in_every_version(user: Callable[[str], Wire], version: int) -> None:
    alice = user("alice")
    made = known(user("admin"), create(alice, renewers=("User:bob",), version=version))
    owner = made.principal_type, made.principal_name
    requester = made.token_requester_principal_type, made.token_requester_principal_name
    assert owner == ("User", "alice")
    assert requester == (("User", "alice") if version == 3 else ("", ""))
    assert len(made.hmac) == 64 and re.fullmatch(r"[\w-]{22}", made.token_id)
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == DAY_MS
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 7 * DAY_MS
    found = {each.token_id: each for each in describe(alice, version=version).tokens}
    shown = found[made.token_id]
    assert (shown.principal_type, shown.principal_name) == owner
    shown_requester = shown.token_requester_principal_type, shown.token_requester_principal_name
    assert shown_requester == requester
    assert (shown.hmac, shown.issue_timestamp) == (made.hmac, made.issue_timestamp_ms)
    assert [(r.principal_type, r.principal_name) for r in shown.renewers] == [("User", "bob")]
    older = min(version, 2)
    code, expiry_ms = renew(alice, made.hmac, 1000, older)
    assert code == 0 and expiry_ms < made.expiry_timestamp_ms
    code, later_ms = expire(alice, made.hmac, HOUR_MS, older)
    assert code == 0 and later_ms > expiry_ms


def test_who_may_not_ask_at_all(broker: Any, user: Callable[[str], Wire]) -> None:
    alice = user("alice")
    token = known(user("admin"), create(alice))
    by_token, _ = by(broker, ByToken(token))
    for wire, name in ((Wire(broker.port), "ANONYMOUS"), (by_token, "alice")):
        for version in (1, 3):
            refused = create(wire, version=version)
            assert (refused.error_code, refused.principal_name) == (NOT_ALLOWED, name)
            assert refused.token_requester_principal_name == (name if version == 3 else "")
            times = refused.issue_timestamp_ms, refused.expiry_timestamp_ms
            assert (*times, refused.max_timestamp_ms) == (-1, -1, -1)
            assert (refused.token_id, refused.hmac) == ("", b"")
        other = create(wire, owner=("User", "bob"), renewers=("Group:x",))
        assert (other.error_code, other.principal_name) == (NOT_ALLOWED, "bob")
        assert renew(wire, token.hmac) == expire(wire, token.hmac) == (NOT_ALLOWED, -1)
        answer = describe(wire)
        assert (answer.error_code, answer.tokens) == (NOT_ALLOWED, [])
        wire.close()


def test_creations_that_are_refused(broker: Any, user: Callable[[str], Wire]) -> None:
    alice = user("alice")
    refused = create(alice, renewers=("User:bob", "Group:x"))
    assert (refused.error_code, refused.principal_name) == (BAD_TYPE, "alice")
    assert (refused.max_timestamp_ms, refused.token_id, refused.hmac) == (-1, "", b"")
    refused = create(alice, owner=("User", "bob"), renewers=("Group:x",))
    assert (refused.error_code, refused.principal_name) == (NO_RIGHT, "bob")
    assert (refused.token_requester_principal_name, refused.issue_timestamp_ms) == ("alice", -1)
    assert create(alice, owner=("User", "alice")).error_code == 0
    assert create(alice, owner=("User", "")).principal_name == "alice"
    odd = create(user("admin"), owner=("Group", "x"))
    assert (odd.error_code, odd.principal_type) == (0, "Group")
    allow(broker, CREATE_TOKENS, USER, "User:bob", "User:alice")
    made = eventually(
        lambda: (made := create(alice, owner=("User", "bob"))).error_code == 0 and made
    )
    assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")
    known(user("admin"), made)
    assert renew(alice, made.hmac) == (MISMATCH, 0)
    assert renew(user("bob"), made.hmac)[0] == 0


@pytest.mark.parametrize(("max_ms", "lifetime_ms"), [(0, 7 * DAY_MS), (5, 5), (10**15, 7 * DAY_MS)])
def test_how_long_a_token_lasts(user: Callable[[str], Wire], max_ms: int, lifetime_ms: int) -> None:
    made = create(user("alice"), max_ms=max_ms)
    assert made.max_timestamp_ms - made.issue_timestamp_ms == lifetime_ms
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == min(lifetime_ms, DAY_MS)


def test_renewal_and_expiry(user: Callable[[str], Wire]) -> None:
    admin, alice, bob, carol = map(user, ("admin", "alice", "bob", "carol"))
    made = known(admin, create(alice, renewers=("User:bob",), max_ms=3 * DAY_MS))
    key = made.hmac
    for wrong in (b"", b"x" * 64, key[:-1]):
        assert renew(alice, wrong) == expire(alice, wrong) == (NOT_FOUND, 0)
    assert renew(carol, key) == expire(carol, key) == (MISMATCH, 0)
    assert renew(admin, key) == (MISMATCH, 0)  # super users have no right to it, either
    for wire, period_ms, expected_ms in (
        (bob, 1000, 1000),
        (alice, 2 * DAY_MS, DAY_MS),
        (alice, 0, DAY_MS),
    ):
        code, expiry_ms = renew(wire, key, period_ms)
        since_ms = expiry_ms - made.issue_timestamp_ms - expected_ms
        assert code == 0 and 0 <= since_ms < 60_000
    assert expire(bob, key, 10**15) == (0, made.max_timestamp_ms)
    assert renew(alice, key, DAY_MS)[0] == 0
    code, at_ms = expire(bob, key)
    assert code == 0 and 0 <= at_ms - made.issue_timestamp_ms < 60_000
    assert eventually(lambda: renew(alice, key) == (NOT_FOUND, 0))
    assert expire(alice, key) == (NOT_FOUND, 0)


def test_a_token_that_is_over(broker: Any, user: Callable[[str], Wire]) -> None:
    admin, alice, carol = map(user, ("admin", "alice", "carol"))
    made = known(admin, create(alice, max_ms=5))
    assert eventually(lambda: renew(alice, made.hmac) == (EXPIRED, 0))
    assert renew(carol, made.hmac) == (EXPIRED, 0)
    assert expire(carol, made.hmac, 5) == (MISMATCH, 0)
    assert expire(alice, made.hmac, 5) == (EXPIRED, 0)
    # It is shown, and lets its owner in, until it is deleted; the session is over at once.
    assert made.token_id in {each.token_id for each in describe(alice).tokens}
    wire, answer = by(broker, ByToken(made))
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert brokers_known(wire) == CLOSED
    assert expire(alice, made.hmac)[0] == 0


def test_which_tokens_are_described(broker: Any, user: Callable[[str], Wire]) -> None:
    admin, bob, carol = map(user, ("admin", "bob", "carol"))
    made = {
        "renewed": create(admin, owner=("User", "dora"), renewers=("User:carol",)),
        "dora's": create(admin, owner=("User", "dora")),
        "bob's": create(bob),
        "own": create(carol),
    }
    for token in made.values():
        known(admin, token)

    def seen(wire: Wire, owners: list[str] | None = None) -> set[str]:
        ids = {each.token_id for each in describe(wire, owners).tokens}
        return {name for name, token in made.items() if token.token_id in ids}

    assert seen(carol) == {"renewed", "own"}
    assert seen(carol, ["dora", "bob"]) == {"renewed"}
    assert seen(carol, ["carol"]) == {"renewed", "own"}
    assert describe(carol, []).tokens == describe(carol, ["nobody"]).tokens == []
    assert seen(admin) == set(made)
    assert seen(admin, ["dora"]) == {"renewed", "dora's"}
    allow(broker, CREATE_TOKENS, USER, "User:frank", "User:carol")
    made["asked for"] = eventually(
        lambda: (token := create(carol, owner=("User", "frank"))).error_code == 0 and token
    )
    known(admin, made["asked for"])
    assert seen(carol) == {"renewed", "own", "asked for"} == seen(carol, ["carol"])
    assert renew(carol, made["asked for"].hmac) == (MISMATCH, 0)
    allow(broker, DESCRIBE, DELEGATION_TOKEN, made["bob's"].token_id, "User:carol")
    assert eventually(lambda: seen(carol) == {"renewed", "own", "asked for", "bob's"})
    allow(broker, DESCRIBE_TOKENS, USER, "User:dora", "User:carol")
    assert eventually(lambda: seen(carol) == set(made))


def test_an_owner_without_a_type(user: Callable[[str], Wire]) -> None:
    refused = create(user("admin"), owner=(None, "bob"))
    assert (refused.error_code, refused.principal_name) == (-1, "ANONYMOUS")
    assert (refused.issue_timestamp_ms, refused.hmac) == (-1, b"")


# --- log-ins


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_log_in_by_a_token(broker: Any, user: Callable[[str], Wire], mechanism: str) -> None:
    alice = user("alice")
    token = known(user("admin"), create(alice))
    for extension in (",tokenauth=true", ",tokenauth=TRUE", ",a=b,tokenauth=true"):
        wire, answer = by(broker, ByToken(token, mechanism, extension))
        assert answer.error_code == 0
        assert DAY_MS - 60_000 < answer.session_lifetime_ms <= DAY_MS
        assert brokers_known(wire) == 1
        wire.close()


def test_log_ins_that_fail(broker: Any, user: Callable[[str], Wire]) -> None:
    admin, alice = user("admin"), user("alice")
    token, other = known(admin, create(alice)), known(admin, create(alice))
    gone = known(admin, create(alice))
    assert expire(alice, gone.hmac)[0] == 0
    assert eventually(lambda: renew(alice, gone.hmac) == (NOT_FOUND, 0))
    named = ByToken(token)
    named._bare = named._bare.replace(token.token_id, "alice")
    wrong = ByToken(other)
    wrong._bare = wrong._bare.replace(other.token_id, token.token_id)
    for exchange in (
        wrong,
        named,
        ByToken(gone),
        ByToken(token, extension=""),
        ByToken(token, extension=",tokenauth=false"),
        ByToken(token, extension=",Tokenauth=true"),
    ):
        wire, answer = by(broker, exchange)
        assert (answer.error_code, answer.error_message) == test_security.failed(MECHANISMS[0])
        assert wire.closes() == CLOSED


def test_a_session_ends_with_its_token(broker: Any, user: Callable[[str], Wire]) -> None:
    alice = user("alice")
    token = known(user("admin"), create(alice, max_ms=4000))
    wire, answer = by(broker, ByToken(token))
    assert 0 < answer.session_lifetime_ms <= 4000
    assert brokers_known(wire) == 1
    assert eventually(lambda: brokers_known(wire) == CLOSED)


def test_franz_go_comes_in(broker: Any, user: Callable[[str], Wire]) -> None:
    admin, alice = user("admin"), user("alice")
    token = known(admin, create(alice))
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="franz", num_partitions=1, replication_factor=1)],
        timeout_ms=10_000,
    )
    assert admin.ask(request, 7).topics[0].error_code == 0
    allow(broker, ALL, TOPIC, "franz", "User:alice")
    client = Client([tooling.go_program(LOCKS / "go", ".", "locks"), "franz-go"], {}, "")

    def attempt(key: bytes) -> str:
        client.send(
            "",
            servers=f"127.0.0.1:{broker.login_port}",
            mechanism=MECHANISMS[1],
            user=token.token_id,
            password=b64encode(key).decode(),
            topic="franz",
            value="tea",
            token=True,
        )
        return str(client.receive(60.0)["kind"])

    try:
        assert eventually(lambda: attempt(token.hmac) == "in")
        assert attempt(b"wrong") == "SASL_AUTHENTICATION_FAILED"
    finally:
        client.close()


# --- Kafka's tools, as the page says

MAIN = {
    "kafka-delegation-tokens.sh": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-console-producer.sh": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}


class Tools:
    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address

    def run(self, line: str, stdin: str = "", *, fails: bool = False) -> str:
        """What a command line of the page prints."""
        tool, *arguments = shlex.split(line.replace("localhost:9092", self.address))
        argv = tooling.java_argv(tooling.KAFKA_BROKER, MAIN[tool], *arguments)
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=120, cwd=self.folder
        )
        said = f"{done.stdout}\n{done.stderr}"
        assert (done.returncode != 0 or "ERROR" in said) is fails, said
        return said


def page_block(language: str, word: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (found,) = (each for each in blocks if word in each)
    return str(found)


def row(text: str) -> tuple[str, str]:
    """Token id and HMAC of the only token that the tool shows."""
    (found,) = re.findall(r"^(\S{22})\s+([\w+/]{86}==)\s", text, re.MULTILINE)
    return found  # type: ignore[no-any-return]


def test_the_commands_of_the_page(broker: Any, tmp_path: Path) -> None:
    login = f'{PLAIN_MODULE} required username="erin" password="secret";'
    (tmp_path / "alice.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
    )
    allow(broker, ALL, TOPIC, "by-token", "User:erin")
    allow(broker, ALL, GROUP, "g", "User:erin")
    commands = page_block("console", "kafka-delegation-tokens.sh").splitlines()
    creation, description, renewal, expiry = (line.removeprefix("$ ") for line in commands)
    tools = Tools(tmp_path, f"127.0.0.1:{broker.login_port}")
    token_id, key = row(tools.run(creation))
    assert "Total number of tokens : 0" in tools.run(description.partition(" --owner")[0])
    shown = tools.run(description.replace("User:alice", "User:erin"))
    assert row(shown) == (token_id, key)
    assert re.search(r"User:erin\s+User:erin\s+\[?User:bob", shown)
    config = page_block("properties", "TOKENID").replace("TOKENID", token_id).replace("HMAC", key)
    (tmp_path / "job.properties").write_text(config)
    at = "--bootstrap-server localhost:9092 --topic by-token"
    tools.run(f"kafka-console-producer.sh {at} --producer.config job.properties", "tea\n")
    consume = f"kafka-console-consumer.sh {at} --consumer.config job.properties --group g"
    assert "tea" in tools.run(f"{consume} --from-beginning --max-messages 1 --timeout-ms 30000")
    by_itself = description.replace("alice.properties", "job.properties")
    assert "Delegation Token requests are not allowed" in tools.run(by_itself, fails=True)
    assert "Completed renew operation" in tools.run(renewal.replace("HMAC", key))
    assert "Completed expire operation" in tools.run(expiry.replace("HMAC", key))
    refused = tools.run(
        f"kafka-console-producer.sh {at} --producer.config job.properties", "x\n", fails=True
    )
    assert "Authentication failed" in refused
