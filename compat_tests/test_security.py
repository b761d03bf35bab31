"""Log-ins in bytes: a table of dialogues with a SASL listener, and the answers of Apache Kafka 3.9.1 (REAL=1)."""

import hashlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import brokers
from kwire.protocol import api
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.quotas import ComponentData, DescribeClientQuotasRequest
from kwire.protocol.schemas.sasl import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

pytestmark = pytest.mark.timeout(120)

MODULES = "org.apache.kafka.common.security"
KEYS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.server.max.receive.size": "1000",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required user_alice="secret";'
    ),
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        f"{MODULES}.scram.ScramLoginModule required;"
    ),
}
CLOSED, SILENT = "closed", "silent"
SILENCE_S = 3.0


class KwireWithLogins(brokers.KwireBroker):
    login_port = 0
    keys = KEYS

    def _command(self) -> list[str]:
        self.login_port = self.login_port or brokers.free_port()
        own = f"PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:{self.login_port}"
        self.config = {**self.keys, "listeners": own}
        command = super()._command()
        at = command.index("--port")
        return command[:at] + command[at + 2 :]


class KafkaWithLogins(brokers.RealKafka):
    login_port = 0
    keys = KEYS

    def _properties(self, controller_port: int) -> str:
        self.login_port = brokers.free_port()
        own = f"PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:{self.login_port}"
        self.config = {
            **self.keys,
            "listeners": f"{own},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": own,
        }
        return super()._properties(controller_port)


class Wire:
    """A connection on which each request waits for its answer."""

    def __init__(self, port: int, silence_s: float = SILENCE_S) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), silence_s)

    def raw(self, frame: bytes) -> Any:
        """The frame that comes back, CLOSED or SILENT."""
        try:
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
            return self._read(int.from_bytes(self._read(4), "big"))
        except TimeoutError:
            return SILENT
        except (EOFError, ConnectionError):
            return CLOSED

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def ask(self, request: Any, version: int) -> Any:
        """The response, CLOSED or SILENT."""
        key = api.key_of(request)
        parts = api.encode_request(key, version, 7, "me", request)
        data = self.raw(b"".join(map(bytes, parts))[4:])
        return data if isinstance(data, str) else api.parse_response(key, version, data)[1]

    def closes(self) -> str:
        """CLOSED, if the broker ends the connection by itself."""
        try:
            return CLOSED if self._socket.recv(1) == b"" else "more bytes"
        except TimeoutError:
            return SILENT
        except ConnectionError:
            return CLOSED

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    real = os.environ.get("REAL") == "1"
    broker = (KafkaWithLogins if real else KwireWithLogins)(tmp_path_factory.mktemp("guarded"))
    if not real:
        broker.port = brokers.free_port()
    broker.start()
    plain = Wire(broker.port)
    assert altered(plain, upsert("carol")) == [("carol", 0, None)]
    plain.close()
    yield broker
    broker.stop()


@pytest.fixture
def wire(guarded: Any) -> Iterator[Wire]:
    wire = Wire(guarded.login_port)
    yield wire
    wire.close()


@pytest.fixture
def admin(guarded: Any) -> Iterator[Wire]:
    wire = Wire(guarded.port)
    yield wire
    wire.close()


def shake(wire: Wire, mechanism: str = "PLAIN", version: int = 1) -> Any:
    answer = wire.ask(SaslHandshakeRequest(mechanism=mechanism), version)
    return (
        answer if isinstance(answer, str) else (answer.error_code, sorted(answer.mechanisms or ()))
    )


def token(wire: Wire, data: bytes, version: int = 2) -> Any:
    answer = wire.ask(SaslAuthenticateRequest(auth_bytes=data), version)
    return answer if isinstance(answer, str) else (answer.error_code, answer.error_message)


def versions(wire: Wire) -> Any:
    request = ApiVersionsRequest(client_software_name="me", client_software_version="1")
    answer = wire.ask(request, 3)
    return answer if isinstance(answer, str) else answer.error_code


def brokers_known(wire: Wire) -> Any:
    answer = wire.ask(MetadataRequest(topics=[]), 9)
    return answer if isinstance(answer, str) else len(answer.brokers)


OK = (0, ["PLAIN", "SCRAM-SHA-256"])
RIGHT = b"\0alice\0secret"


def failed(mechanism: str) -> tuple[int, str]:
    text = (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    )
    return 58, f"{text} {mechanism}"


def test_a_log_in(wire: Wire) -> None:
    assert versions(wire) == 0
    assert shake(wire) == OK
    assert token(wire, RIGHT) == (0, "")
    assert brokers_known(wire) == 1
    assert versions(wire) == 0
    state, message = 34, "SaslAuthenticate request received after successful authentication"
    assert shake(wire) == (state, [])
    assert token(wire, RIGHT) == (state, message)
    assert brokers_known(wire) == 1


def test_other_requests_before_a_log_in(guarded: Any) -> None:
    wire = Wire(guarded.login_port)
    assert brokers_known(wire) == CLOSED
    wire = Wire(guarded.login_port)
    assert token(wire, RIGHT) == CLOSED
    wire = Wire(guarded.login_port)
    assert wire.raw(b"GET / HTTP/1.1\r\n\r\n") == CLOSED
    wire = Wire(guarded.login_port)
    assert wire.raw(bytes(1001)) == CLOSED
    wire = Wire(guarded.login_port)
    assert (versions(wire), versions(wire)) == (0, CLOSED)


def test_api_versions_of_a_version_that_is_not_there_may_come_again(wire: Wire) -> None:
    assert wire.raw(bytes.fromhex("0012 0063 00000007 0002 6d65 00"))[4:6] == b"\0\x23"
    assert versions(wire) == 0
    assert shake(wire) == OK


def test_a_mechanism_that_is_not_enabled(wire: Wire) -> None:
    assert shake(wire, "SCRAM-SHA-512") == (33, OK[1])
    assert wire.closes() == CLOSED


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_wrong_password(wire: Wire, version: int) -> None:
    assert shake(wire) == OK
    said = "Authentication failed: Invalid username or password"
    assert token(wire, b"\0alice\0wrong", version) == (58, said)
    assert wire.closes() == CLOSED


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0nobody\0x", "Authentication failed: Invalid username or password"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_tokens_of_plain_that_are_refused(wire: Wire, data: bytes, said: str) -> None:
    assert shake(wire) == OK
    assert token(wire, data) == (58, said)
    assert wire.closes() == CLOSED


@pytest.mark.parametrize(
    "data",
    [b"", b"n,,n=nobody,r=x", b"n,,n=carol", b"y,,n=carol,r=x", b"p=tls,,n=carol,r=x"],
)
def test_first_messages_of_scram_that_are_refused(wire: Wire, data: bytes) -> None:
    assert shake(wire, "SCRAM-SHA-256") == OK
    assert token(wire, data) == failed("SCRAM-SHA-256")
    assert wire.closes() == CLOSED


def test_final_messages_of_scram_that_are_refused(guarded: Any) -> None:
    for final in (
        b"",
        b"c=biws,r=x,p=AAAA",
        b"c=biws,r={},p=AAAA",
        b"c=AAAA,r={},p=" + b"A" * 43 + b"=",
    ):
        wire = Wire(guarded.login_port)
        assert shake(wire, "SCRAM-SHA-256") == OK
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=carol,r=abc"), 2)
        first = bytes(answer.auth_bytes)
        assert first.startswith(b"r=abc") and first.endswith(b",i=4096")
        data = final.replace(b"{}", first.partition(b",")[0][2:])
        # Kafka gives a proof that is too short no answer.
        assert token(wire, data) in (failed("SCRAM-SHA-256"), CLOSED)
        assert wire.closes() == CLOSED
        wire.close()


def test_other_requests_in_a_log_in(guarded: Any) -> None:
    wire = Wire(guarded.login_port)
    assert (shake(wire), shake(wire), wire.closes()) == (OK, (34, []), CLOSED)
    wire = Wire(guarded.login_port)
    assert shake(wire) == OK
    assert brokers_known(wire) in (0, CLOSED)  # Kafka answers with nothing in it, then closes
    assert wire.closes() == CLOSED
    wire = Wire(guarded.login_port)
    assert (shake(wire), versions(wire), wire.closes()) == (OK, 34, CLOSED)
    wire = Wire(guarded.login_port)
    assert (shake(wire), wire.raw(b"\0")) == (OK, CLOSED)


def test_tokens_without_headers(guarded: Any) -> None:
    wire = Wire(guarded.login_port)
    assert shake(wire, version=0) == OK
    assert wire.raw(RIGHT) == b""
    assert brokers_known(wire) == 1
    wire = Wire(guarded.login_port)
    assert shake(wire, version=0) == OK
    assert wire.raw(b"\0alice\0wrong") == CLOSED


def test_a_plaintext_listener_has_no_log_in(admin: Wire) -> None:
    assert shake(admin) == (34, [])
    assert brokers_known(admin) in (1, CLOSED)


# --- users


def upsert(name: str, iterations: int = 4096, mechanism: int = 1) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac("sha256", b"pw", b"salt", 4096)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def scram_upsertion(name: str, password: str, mechanism: int) -> ScramCredentialUpsertion:
    """The credential of a user who has this password; `mechanism` 1: SCRAM-SHA-256, 2: SCRAM-SHA-512."""
    salted = hashlib.pbkdf2_hmac(
        ("sha256", "sha512")[mechanism - 1], password.encode(), b"salt", 4096
    )
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=salted
    )


def altered(
    wire: Wire, *upsertions: ScramCredentialUpsertion, deletions: Any = ()
) -> list[tuple[str, int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=m) for name, m in deletions],
        upsertions=list(upsertions),
    )
    answer = wire.ask(request, 0)
    return sorted((each.user, each.error_code, each.error_message) for each in answer.results)


def test_users_that_are_refused(admin: Wire) -> None:
    twice = "A user credential cannot be altered twice in the same request"
    assert altered(
        admin,
        upsert(""),
        upsert("a", 4095),
        upsert("b", 16385),
        upsert("c", mechanism=3),
        upsert("d"),
        upsert("d", mechanism=2),
        deletions=[("nobody", 1), ("carol", 2), ("e", 0)],
    ) == [
        ("", 93, "Username must not be empty"),
        ("a", 93, "Too few iterations"),
        ("b", 93, "Too many iterations"),
        ("c", 33, "Unknown SCRAM mechanism"),
        ("carol", 91, "Attempt to delete a user credential that does not exist"),
        ("d", 92, twice),
        ("e", 33, "Unknown SCRAM mechanism"),
        ("nobody", 91, "Attempt to delete a user credential that does not exist"),
    ]


def test_users_are_described(admin: Wire) -> None:
    names = [UserName(name=name) for name in ("carol", "nobody", "x", "x")]
    answer = admin.ask(DescribeUserScramCredentialsRequest(users=names), 0)
    assert (answer.error_code, answer.error_message) == (0, "")
    found = sorted((r.user, r.error_code, r.error_message) for r in answer.results)
    twice = "Cannot describe SCRAM credentials for the same user twice in a single request"
    assert found == [
        ("carol", 0, ""),
        ("nobody", 91, "Attempt to describe a user credential that does not exist: nobody"),
        ("x", 92, f"{twice}: x"),
    ]
    infos = [[(i.mechanism, i.iterations) for i in r.credential_infos] for r in answer.results]
    assert [(1, 4096)] in infos


@pytest.mark.parametrize(
    ("components", "code", "said"),
    [
        ([], 0, None),
        ([("user", 0, "alice")], 0, None),
        ([("user", 1, None), ("client-id", 2, None)], 0, None),
        ([("", 0, "x")], 42, "Invalid empty entity type."),
        (
            [("user", 0, "a"), ("user", 0, "b")],
            42,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("group", 0, "a")], 35, "Unsupported entity type group"),
        ([("user", 3, None)], 42, "Unknown match type 3"),
        (
            [("user", 0, None)],
            42,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", 1, "a")],
            42,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", 0, "a"), ("ip", 0, "b")],
            42,
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component.",
        ),
    ],
)
def test_quotas_that_are_not_there(
    admin: Wire, components: list[tuple[str, int, str | None]], code: int, said: str | None
) -> None:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=how, match=match)
            for kind, how, match in components
        ]
    )
    answer = admin.ask(request, 1)
    assert (answer.error_code, answer.error_message) == (code, said or "")
    assert answer.entries == ([] if code == 0 else None)


# --- Kafka's own tool


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_kafka_configs(guarded: Any, version: str) -> None:
    from compat_tests.test_java_tools import Tools

    tools = Tools(version, guarded.bootstrap_servers)
    user = ("--entity-type", "users", "--entity-name", f"dave-{version}")
    done = tools(
        "kafka-configs",
        "--alter",
        *user,
        "--add-config",
        "SCRAM-SHA-256=[iterations=8192,password=pw]",
    )
    assert "Completed updating config for user dave" in done
    assert "SCRAM-SHA-256=iterations=8192" in tools("kafka-configs", "--describe", *user)
    tools("kafka-configs", "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    assert "iterations" not in tools("kafka-configs", "--describe", *user)
