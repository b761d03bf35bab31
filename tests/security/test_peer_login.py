"""A node's own log-in at another node, in bytes: against kwire's own gate, and against answers that make no sense."""

from __future__ import annotations

from random import Random

import pytest
from login_kit import Guarded

from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from kwire.replication.core.metadata import SCRAM_RESOURCE
from kwire.replication.core.scram_credentials import Credential
from kwire.security.client import Credentials
from kwire.security.peer_login import FIRST_CORRELATION, PeerLogin, PeerLoginError


def run(broker: Guarded, credentials: Credentials) -> PeerLogin:
    """A whole log-in. PeerLoginError."""
    login = PeerLogin(credentials, "broker 2")
    client = broker.client()
    request: bytes | None = login.first()
    while request is not None:
        assert int.from_bytes(request[:4], "big") == len(request) - 4
        broker.core.receive_frame(client.connection, request[4:])
        broker.later(100)  # a refusal is late
        (answer,) = client.received()
        request = login.take(answer)
    assert client.session.principal == f"User:{credentials.user}"
    return login


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_node_logs_in(mechanism: str) -> None:
    broker = Guarded(connections_max_reauth_ms="7000")
    login = run(broker, Credentials(mechanism, "alice", "secret"))
    assert login.lifetime_ms == 7000
    assert FIRST_CORRELATION < login.correlation <= 0x7FFFFFFF


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(("user", "secret"), [("alice", "hush"), ("nobody", "hush")])
def test_a_node_that_is_refused(mechanism: str, user: str, secret: str) -> None:
    with pytest.raises(PeerLoginError, match=f"it refuses user '{user}': Auth") as caught:
        run(Guarded(), Credentials(mechanism, user, secret))
    assert "hush" not in str(caught.value)


def test_a_mechanism_that_the_other_node_does_not_have() -> None:
    with pytest.raises(PeerLoginError, match=r"it has no mechanism PLAIN, but SCRAM-SHA-256$"):
        run(
            Guarded(sasl_enabled_mechanisms="SCRAM-SHA-256"),
            Credentials("PLAIN", "alice", "secret"),
        )


def test_nodes_come_in_by_scram_before_the_journal_has_them() -> None:
    own = Credentials("SCRAM-SHA-256", "broker", "between-us")
    broker = Guarded()
    with pytest.raises(PeerLoginError):
        run(broker, own)
    broker.gate.listeners["SASL"].own = own
    run(broker, own)
    for other in (
        Credentials("SCRAM-SHA-256", "broker", "wrong"),
        Credentials("SCRAM-SHA-512", "broker", "between-us"),
        Credentials("SCRAM-SHA-256", "other", "between-us"),
    ):
        with pytest.raises(PeerLoginError):
            run(broker, other)


def test_the_journals_password_of_a_node_wins() -> None:
    own = Credentials("SCRAM-SHA-256", "broker", "between-us")
    broker = Guarded()
    broker.gate.listeners["SASL"].own = own
    changed = Credential.of_password("SCRAM-SHA-256", "another", b"salt")
    texts = {"SCRAM-SHA-256": changed.to_text()}
    broker.core.services.metadata.set_config(SCRAM_RESOURCE, "broker", texts)
    with pytest.raises(PeerLoginError):
        run(broker, own)
    run(broker, Credentials("SCRAM-SHA-256", "broker", "another"))


def answer_of(key: ApiKey, correlation: int, **fields: object) -> bytes:
    kind = SaslHandshakeResponse if key is ApiKey.SASL_HANDSHAKE else SaslAuthenticateResponse
    parts = api.encode_response(key, 1, correlation, kind(**fields))
    return b"".join(map(bytes, parts))[4:]


def handshaken(mechanism: str) -> PeerLogin:
    login = PeerLogin(Credentials(mechanism, "alice", "secret"), "me")
    login.first()
    taken = answer_of(ApiKey.SASL_HANDSHAKE, login.correlation, mechanisms=[mechanism])
    assert login.take(taken) is not None
    return login


def test_an_impostor_that_does_not_know_the_password() -> None:
    """A server of SCRAM has to prove that it does."""
    login = handshaken("SCRAM-SHA-256")
    exchange = login._exchange
    nonce = exchange.first().rpartition(b"r=")[2]
    first = b"r=" + nonce + b"xyz,s=c2FsdA==,i=4096"
    sent = login.take(answer_of(ApiKey.SASL_AUTHENTICATE, login.correlation, auth_bytes=first))
    assert sent is not None and b"p=" in sent
    final = b"v=" + b"A" * 43 + b"="
    with pytest.raises(PeerLoginError, match="the server does not know the password"):
        login.take(answer_of(ApiKey.SASL_AUTHENTICATE, login.correlation, auth_bytes=final))


def test_an_impostor_that_skips_the_proof() -> None:
    login = handshaken("SCRAM-SHA-256")
    with pytest.raises(PeerLoginError, match="the server's first message is malformed"):
        login.take(answer_of(ApiKey.SASL_AUTHENTICATE, login.correlation, auth_bytes=b""))


def test_answers_that_make_no_sense() -> None:
    random = Random(5)
    for _ in range(500):
        login = handshaken(random.choice(["PLAIN", "SCRAM-SHA-256"]))
        data = login.correlation.to_bytes(4, "big") + random.randbytes(random.randrange(40))
        with pytest.raises(PeerLoginError) as caught:
            login.take(data)
        assert "secret" not in str(caught.value)
    login = handshaken("PLAIN")
    with pytest.raises(PeerLoginError, match="what was not asked"):
        login.take(answer_of(ApiKey.SASL_AUTHENTICATE, 7))
    login = PeerLogin(Credentials("PLAIN", "alice", "secret"), "me")
    login.first()
    state = int(ErrorCode.ILLEGAL_SASL_STATE)
    with pytest.raises(PeerLoginError, match="answered with ILLEGAL_SASL_STATE"):
        login.take(answer_of(ApiKey.SASL_HANDSHAKE, login.correlation, error_code=state))
