"""Log-ins of clients in bytes: what is served before, each mechanism, each mistake, a second log-in."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from random import Random
from typing import Any

import pytest
from login_kit import Client, Guarded, frame_of

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.sasl import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from kwire.replication.core.scram_credentials import salted_password
from kwire.security.client import Credentials
from kwire.security.mechanism import SaslFailure
from kwire.security.scram import ScramClient

SECRETS = ("secret", "b:o,b=")
DELAY_MS = 100


@pytest.fixture
def broker() -> Guarded:
    return Guarded()


def log_in(client: Client, mechanism: str, user: str, password: str) -> Any:
    """The last response of a log-in; None: the server's last word was wrong, or missing."""
    assert client.handshake(mechanism).error_code == 0
    exchange = Credentials(mechanism, user, password).new_exchange()
    token: bytes | None = exchange.first()
    response = None
    while token is not None:
        response = client.authenticate(token)
        if response is None or response.error_code:
            return response
        token = exchange.evaluate(response.auth_bytes)
    return response


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("bob", "b:o,b=")])
def test_who_knows_the_secret_comes_in(
    broker: Guarded, mechanism: str, user: str, password: str
) -> None:
    client = broker.client()
    assert client.versions().error_code == 0
    response = log_in(client, mechanism, user, password)
    assert (response.error_code, response.session_lifetime_ms) == (0, 0)
    assert client.session.principal == f"User:{user}"
    assert broker.admitted == [client.connection]
    assert client.metadata().brokers[0].node_id == 1
    assert client.closed is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "nobody", "bob"])
def test_a_wrong_secret_is_answered_late_then_the_connection_ends(
    broker: Guarded, mechanism: str, user: str
) -> None:
    client = broker.client()
    assert log_in(client, mechanism, user, "wrong") is None
    client.post(MetadataRequest(topics=[]), 9)  # in vain
    broker.later(DELAY_MS - 1)
    assert client.received() == [] and client.closed is None
    broker.later(1)
    response = client.answer()
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    said = {
        "PLAIN": "Authentication failed: Invalid username or password",
    }.get(
        mechanism,
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        + mechanism,
    )
    assert response.error_message == said
    assert client.closed is not None and client.closed.startswith("authentication failed: ")
    assert not any(secret in client.closed for secret in (*SECRETS, "wrong secret"))
    assert user in client.closed
    assert client.session.principal == "User:ANONYMOUS"
    assert broker.admitted == []


def test_without_a_delay_the_answer_comes_at_once() -> None:
    client = Guarded(connection_failed_authentication_delay_ms="0").client()
    assert client.plain("alice", "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed


def test_a_client_that_goes_while_its_refusal_waits_leaves_nothing(broker: Guarded) -> None:
    client = broker.client()
    assert log_in(client, "PLAIN", "alice", "wrong") is None
    broker.core.connection_closed(client.connection)
    broker.later(DELAY_MS)
    assert client.received() == [] and client.closed is None
    assert broker.gate.by_connection == {} and len(broker.core.timers) == broker_timers()


def broker_timers() -> int:
    return len(Guarded().core.timers)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"bob\0alice\0secret", "Client requested an authorization id that is different"),
        (b"\0alice\0\xff", "Authentication failed: Invalid username or password"),
    ],
)
def test_tokens_of_plain_that_are_wrong(broker: Guarded, token: bytes, said: str) -> None:
    client = broker.client()
    client.handshake("PLAIN")
    assert client.authenticate(token) is None
    broker.later(DELAY_MS)
    response = client.answer()
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert said in response.error_message


def test_a_mechanism_that_is_not_enabled_gets_the_list() -> None:
    broker = Guarded(sasl_enabled_mechanisms="SCRAM-SHA-512")
    client = broker.client()
    assert client.handshake("PLAIN") is None
    broker.later(DELAY_MS)
    response = client.answer()
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["SCRAM-SHA-512"]
    assert client.closed is not None and "'PLAIN' is not one of SCRAM-SHA-512" in client.closed


def test_other_requests_before_a_log_in_end_the_connection(broker: Guarded) -> None:
    for prelude in ([], ["versions"]):
        client = broker.client()
        for name in prelude:
            getattr(client, name)()
        assert client.metadata() is None
        broker.later(DELAY_MS)
        assert client.received() == []
        assert client.closed == "authentication failed: Metadata before its log-in"


def test_a_token_before_the_handshake_ends_the_connection(broker: Guarded) -> None:
    client = broker.client()
    assert client.authenticate(b"\0alice\0secret") is None
    broker.later(DELAY_MS)
    assert client.received() == [] and client.closed and client.session.principal.endswith("MOUS")


def test_a_second_api_versions_ends_the_connection_unless_the_first_was_refused(
    broker: Guarded,
) -> None:
    client = broker.client()
    client.post(MetadataRequest(topics=[]), 0)  # for the count of requests only
    client = broker.client()
    assert client.versions().error_code == 0
    assert client.versions() is None and client.closed
    client = broker.client()
    unknown = frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    unknown = int(ApiKey.API_VERSIONS).to_bytes(2, "big") + (99).to_bytes(2, "big") + unknown[4:]
    assert client.send(unknown)[0][4:6] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
    assert client.versions().error_code == 0
    assert client.plain().error_code == 0


def test_another_handshake_instead_of_a_token_is_an_illegal_state(broker: Guarded) -> None:
    client = broker.client()
    client.handshake("PLAIN")
    assert client.handshake("PLAIN") is None
    broker.later(DELAY_MS)
    assert client.answer().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.closed == "authentication failed: SaslHandshake in its log-in"


def test_tokens_without_headers_after_handshake_0(broker: Guarded) -> None:
    client = broker.client()
    assert client.handshake("PLAIN", 0).error_code == 0
    assert client.send(b"\0alice\0secret") == [b""]
    assert client.metadata().brokers
    client = broker.client()
    client.handshake("SCRAM-SHA-256", 0)
    exchange = ScramClient("SCRAM-SHA-256", "alice", "secret", Random(3))
    (first,) = client.send(exchange.first())
    final = exchange.evaluate(first)
    assert final is not None
    (last,) = client.send(final)
    assert exchange.evaluate(last) is None and exchange.user == "alice"
    assert client.metadata().brokers
    client = broker.client()
    client.handshake("PLAIN", 0)
    assert client.send(b"\0alice\0no") == []
    broker.later(DELAY_MS)
    assert client.received() == [] and client.closed


def test_requests_sent_behind_the_last_token_are_served_after_it(broker: Guarded) -> None:
    client = broker.client()
    client.handshake("PLAIN")
    client.post(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
    client.post(MetadataRequest(topics=[]), 9)
    assert len(client.received()) == 2


def test_a_frame_larger_than_the_limit_ends_the_connection() -> None:
    client = Guarded(sasl_server_max_receive_size="100").client()
    client.handshake("PLAIN")
    assert client.authenticate(b"\0alice\0" + b"s" * 100) is None
    assert client.closed is not None and "sasl.server.max.receive.size=100" in client.closed


def test_a_proof_cannot_be_used_again(broker: Guarded) -> None:
    """Neither in another exchange nor with a nonce that is not the server's."""
    exchange = ScramClient("SCRAM-SHA-256", "alice", "secret", Random(3))
    client = broker.client()
    client.handshake("SCRAM-SHA-256")
    first = client.authenticate(exchange.first()).auth_bytes
    final = exchange.evaluate(first)
    assert final is not None and client.authenticate(final).error_code == 0
    other = broker.client()
    other.handshake("SCRAM-SHA-256")
    assert other.authenticate(exchange.first()).auth_bytes != first
    assert other.authenticate(final) is None
    broker.later(DELAY_MS)
    assert other.answer().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert other.closed is not None and "nonce" in other.closed


def test_a_client_may_repeat_its_own_nonce(broker: Guarded) -> None:
    """librdkafka before 2.6.1 (Debian's kcat) sends it twice in front of the server's, and Kafka 3.9 lets it in."""
    client = broker.client()
    client.handshake("SCRAM-SHA-256")
    first = client.authenticate(b"n,,n=alice,r=own").auth_bytes.decode()
    nonce, salt, count = (item.partition("=")[2] for item in first.split(","))
    salted = salted_password("SCRAM-SHA-256", "secret", b64decode(salt), int(count))
    key = hmac.digest(salted, b"Client Key", "sha256")
    without = f"c=biws,r=own{nonce}"
    signed = f"n=alice,r=own,{first},{without}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    assert client.authenticate(f"{without},p={proof}".encode()).error_code == 0
    assert client.session.principal == "User:alice"


def test_after_a_log_in_sasl_requests_are_an_illegal_state(broker: Guarded) -> None:
    client = broker.client()
    client.plain()
    assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.authenticate(b"").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.closed is None and client.metadata().brokers


def test_another_listener_asks_for_no_log_in(broker: Guarded) -> None:
    client = broker.client("PLAIN")
    assert client.metadata().brokers
    client.post(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.received()
    assert client.closed == "SASL at a plaintext listener"


# --- sessions with an end


@pytest.fixture
def mortal() -> Guarded:
    return Guarded(connections_max_reauth_ms="60000")


def test_a_session_ends_unless_its_client_logs_in_again(mortal: Guarded) -> None:
    client = mortal.client()
    assert client.plain().session_lifetime_ms == 60_000
    mortal.later(59_999)
    assert client.metadata().brokers
    mortal.later(1)
    assert client.metadata() is None
    assert client.closed == "no log-in again within connections.max.reauth.ms=60000"


def test_a_log_in_again_prolongs_the_session_also_when_it_is_over(mortal: Guarded) -> None:
    client = mortal.client()
    client.plain()
    for wait_ms in (50_000, 60_000, 70_000):
        mortal.later(wait_ms)
        assert client.plain().session_lifetime_ms == 60_000
        assert client.metadata().brokers
    assert mortal.admitted == [client.connection]


def test_a_log_in_again_is_for_the_same_user_and_mechanism(mortal: Guarded) -> None:
    client = mortal.client()
    client.plain()
    mortal.later(30_000)
    assert client.plain("bob", "b:o,b=") is None
    mortal.later(DELAY_MS)
    response = client.answer()
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    client = mortal.client()
    client.plain()
    mortal.later(30_000)
    assert client.handshake("SCRAM-SHA-256").error_code == 0
    assert client.authenticate(b"n,,n=alice,r=x") is None
    mortal.later(DELAY_MS)
    assert client.received() == [] and client.closed


def test_a_log_in_again_within_a_second_is_refused(mortal: Guarded) -> None:
    client = mortal.client()
    client.plain()
    mortal.later(1000)
    assert client.plain().error_code == 0
    mortal.later(999)
    assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.metadata().brokers


def test_the_limit_can_be_one_of_a_mechanism() -> None:
    broker = Guarded(**{"listener.name.sasl.plain.connections.max.reauth.ms": "5000"})
    assert broker.client().plain().session_lifetime_ms == 5000
    assert log_in(broker.client(), "SCRAM-SHA-256", "alice", "secret").session_lifetime_ms == 0


# --- credentials in the journal


def upsert(name: str, password: str, iterations: int = 4096, mechanism: int = 1) -> Any:
    salt = b"salt"
    salted = salted_password("SCRAM-SHA-256", password, salt, min(iterations, 5000))
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def alter(client: Client, *upsertions: Any, deletions: Any = ()) -> list[tuple[str, int]]:
    request = AlterUserScramCredentialsRequest(
        deletions=list(deletions), upsertions=list(upsertions)
    )
    response = client.ask(request, 0)
    return [(each.user, each.error_code) for each in response.results]


def test_users_come_and_go_by_alter_user_scram_credentials(broker: Guarded) -> None:
    admin = broker.client()
    admin.plain()
    assert alter(admin, upsert("carol", "pw"), upsert("alice", "new", 5000)) == [
        ("carol", 0),
        ("alice", 0),
    ]
    assert log_in(broker.client(), "SCRAM-SHA-256", "carol", "pw").error_code == 0
    assert log_in(broker.client(), "SCRAM-SHA-256", "alice", "new").error_code == 0
    assert log_in(broker.client(), "SCRAM-SHA-256", "alice", "secret") is None
    names = [UserName(name=name) for name in ("alice", "nobody", "bob", "bob")]
    described = admin.ask(DescribeUserScramCredentialsRequest(users=names), 0)
    assert [
        (r.user, r.error_code, [(i.mechanism, i.iterations) for i in r.credential_infos])
        for r in described.results
    ] == [
        ("alice", 0, [(1, 5000), (2, 4096)]),
        ("nobody", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("bob", ErrorCode.DUPLICATE_RESOURCE, []),
    ]
    everybody = admin.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert [each.user for each in everybody.results] == ["alice", "bob", "carol"]
    deletion = ScramCredentialDeletion(name="carol", mechanism=1)
    assert alter(admin, deletions=[deletion]) == [("carol", 0)]
    assert log_in(broker.client(), "SCRAM-SHA-256", "carol", "pw") is None


def test_credentials_that_are_not_allowed(broker: Guarded) -> None:
    admin = broker.client()
    admin.plain()
    deletions = [
        ScramCredentialDeletion(name="nobody", mechanism=1),
        ScramCredentialDeletion(name="bob", mechanism=1),
    ]
    assert alter(
        admin,
        upsert("", "x"),
        upsert("a", "x", 4095),
        upsert("b", "x", 16385),
        upsert("c", "x", mechanism=3),
        upsert("d", "x"),
        upsert("d", "x", mechanism=2),
        upsert("bob", "x"),
        deletions=deletions,
    ) == [
        ("nobody", ErrorCode.RESOURCE_NOT_FOUND),
        ("bob", ErrorCode.DUPLICATE_RESOURCE),
        ("", ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("a", ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("b", ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("c", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("d", ErrorCode.DUPLICATE_RESOURCE),
    ]
    assert log_in(broker.client(), "SCRAM-SHA-256", "bob", "b:o,b=").error_code == 0
    assert log_in(broker.client(), "SCRAM-SHA-256", "d", "x") is None


def test_credentials_survive_a_restart_and_given_ones_win(broker: Guarded) -> None:
    admin = broker.client()
    admin.plain()
    alter(admin, upsert("carol", "pw"), upsert("alice", "new"))
    broker.core.close()
    again = Guarded(broker.store)
    assert log_in(again.client(), "SCRAM-SHA-256", "carol", "pw").error_code == 0
    assert log_in(again.client(), "SCRAM-SHA-256", "alice", "secret").error_code == 0
    assert log_in(again.client(), "SCRAM-SHA-256", "alice", "new") is None


# --- secrets


def test_secrets_are_in_nothing_that_is_shown() -> None:
    from kwire.protocol.schemas.configs import DescribeConfigsRequest, DescribeConfigsResource

    broker = Guarded(kwire_users="alice:Gibraltar7")
    client = broker.client()
    client.plain("alice", "Gibraltar7")
    log_in(broker.client(), "SCRAM-SHA-256", "alice", "wrong one")
    broker.later(DELAY_MS)
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (described,) = client.ask(request, 4).results
    entries = {each.name: each for each in described.configs}
    assert entries["kwire.users"].value is None and entries["kwire.users"].is_sensitive
    sessions = broker.core.sessions
    assert sessions.recent is not None
    shown = [
        repr(described),
        repr(sessions.recent.list_requests(sessions.by_connection.values())),
        repr(broker.gate.listeners),
        repr(Credentials("PLAIN", "alice", "Gibraltar7")),
    ]
    for text in shown:
        assert "Gibraltar7" not in text and "wrong one" not in text
    assert "SASL_AUTHENTICATION_FAILED" in shown[1]


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    exchange = ScramClient("SCRAM-SHA-256", "alice", "secret", Random(1))
    nonce = exchange.first().decode().partition("r=")[2]
    assert exchange.evaluate(f"r={nonce}x,s=c2FsdA==,i=4096".encode())
    with pytest.raises(SaslFailure, match="another server"):
        exchange.evaluate(b"v=AAAA")


# --- anything


@pytest.mark.parametrize("seed", range(20))
def test_nobody_comes_in_by_frames_that_are_made_up(seed: int) -> None:
    """Of frames that are random, or requests with bytes changed, in each state of the log-in."""
    broker, random = Guarded(), Random(seed)
    scram = ScramClient("SCRAM-SHA-256", "alice", "wrong", Random(seed))
    seeds = [
        frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        frame_of(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0),
        frame_of(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2),
        frame_of(SaslAuthenticateRequest(auth_bytes=scram.first()), 1),
        frame_of(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=x,p=AAAA"), 1),
        frame_of(MetadataRequest(topics=[]), 9),
        b"\0alice\0wrong",
        scram.first(),
    ]
    for _ in range(150):
        client = broker.client()
        for number in range(random.randrange(1, 5)):
            if number == 0 and random.random() < 0.5:
                client.send(random.choice(seeds[:2]))
            frame = bytearray(random.choice(seeds))
            for _ in range(random.randrange(0, 3)):
                frame[random.randrange(len(frame))] = random.randrange(256)
            client.send(
                bytes(frame[: random.randrange(len(frame) + 1)] if random.random() < 0.1 else frame)
            )
            if client.closed:
                break
        broker.later(DELAY_MS)
        client.received()
        assert client.session.principal == "User:ANONYMOUS"
        assert client.connection not in broker.core.sessions.by_connection
        broker.core.connection_closed(client.connection)
    assert broker.admitted == [] and broker.core.failed == []
    assert broker.gate.by_connection == {}
