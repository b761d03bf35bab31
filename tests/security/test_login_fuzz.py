"""Nobody comes in: a hundred thousand frames that are not right, into each state of a log-in. No sockets, one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest
from login_kit import Client, Guarded, frame_of
from oauth_kit import INVALID, bearer, guarded, unsecured
from token_kit import SECRET as TOKEN_SECRET
from token_kit import ByToken, created

from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kwire.replication.core.outbox import Close, Log, Reply
from kwire.security.scram import ScramClient

LIMIT = 1000
LIFETIME_MS = 5000
GUESS = "gue55ed-w0rd"
"""The password in each frame: no mutation of it is the right one, and none of it may be in a log."""
REPLY_MAX = 900  # ApiVersions; no answer to a client that is not authenticated is longer
SCRAM, TOKENS = "SCRAM-SHA-256", "OAUTHBEARER"
SCOPE = 'unsecuredValidatorRequiredScope="admission"'
"""No mutation of a token has it."""


def at_the_door(broker: Guarded) -> Client:
    return broker.client()


def after_versions(broker: Guarded) -> Client:
    client = broker.client()
    assert client.versions().error_code == 0
    return client


def shaken(mechanism: str, version: int = 1) -> Callable[[Guarded], Client]:
    def make(broker: Guarded) -> Client:
        client = broker.client()
        assert client.handshake(mechanism, version).error_code == 0
        return client

    return make


def challenged(broker: Guarded) -> Client:
    client = shaken(SCRAM)(broker)
    assert client.authenticate(b"n,,n=alice,r=abc").error_code == 0
    return client


def challenged_for_token(broker: Guarded) -> Client:
    client = shaken(SCRAM)(broker)
    assert client.authenticate(first_by_token(broker)).error_code == 0
    return client


def challenged_bare(broker: Guarded) -> Client:
    client = shaken(SCRAM, 0)(broker)
    assert client.send(b"n,,n=alice,r=abc")
    return client


def failed(broker: Guarded) -> Client:
    """Until its answer comes it is mute; then it is closed."""
    client = shaken("PLAIN")(broker)
    assert client.authenticate(b"\0alice\0" + GUESS.encode()) is None
    return client


def refused(broker: Guarded) -> Client:
    """Whoever has shown a token that is not right may show another one."""
    client = shaken(TOKENS)(broker)
    assert client.authenticate(bearer("x")).auth_bytes == INVALID
    return client


def expired(broker: Guarded) -> Client:
    client = broker.client()
    assert client.plain().error_code == 0
    broker.later(LIFETIME_MS)
    return client


def logging_in_again(broker: Guarded) -> Client:
    client = expired(broker)
    assert client.handshake("PLAIN").error_code == 0
    return client


STATES = {
    "at the door": at_the_door,
    "after ApiVersions": after_versions,
    "PLAIN": shaken("PLAIN"),
    "PLAIN, bare": shaken("PLAIN", 0),
    "SCRAM": shaken(SCRAM),
    "SCRAM, bare": shaken(SCRAM, 0),
    "SCRAM, challenged": challenged,
    "SCRAM, challenged for a token": challenged_for_token,
    "SCRAM, challenged, bare": challenged_bare,
    "OAUTHBEARER": shaken(TOKENS),
    "OAUTHBEARER, bare": shaken(TOKENS, 0),
    "OAUTHBEARER, refused": refused,
    "failed": failed,
    "expired": expired,
    "logging in again": logging_in_again,
}


def recorded(broker: Guarded) -> list[bytes]:
    """The tokens of a log-in by SCRAM that has succeeded."""
    client = shaken(SCRAM)(broker)
    exchange = ScramClient(SCRAM, "alice", "secret", Random(7))
    first = exchange.first()
    final = exchange.evaluate(client.authenticate(first).auth_bytes)
    assert final is not None and client.authenticate(final).error_code == 0
    return [first, final]


def first_by_token(broker: Guarded) -> bytes:
    """The first message of a client that shows the broker's first delegation token."""
    controller = broker.core.services.controller
    assert controller is not None
    token_id = next(key for key in controller.state.security if "token/" in key)[len("token/") :]
    return f"n,,n={token_id},r=abc,tokenauth=true".encode()


def recorded_by_token(broker: Guarded) -> list[bytes]:
    """The tokens of a log-in by a delegation token that has succeeded."""
    user = broker.client()
    assert user.plain().error_code == 0
    token = created(user)
    exchange = ByToken(SCRAM, token.token_id, token.hmac)
    client = shaken(SCRAM)(broker)
    first = exchange.first()
    final = exchange.evaluate(client.authenticate(first).auth_bytes)
    assert final is not None and client.authenticate(final).error_code == 0
    return [first, final]


def guesses(broker: Guarded) -> list[bytes]:
    """Frames that are right but for a secret, a nonce or the moment."""
    first, final = recorded(broker)
    by_token = recorded_by_token(broker)
    proof = final.rpartition(b",p=")[2]
    tokens = [
        b"",
        b"\0alice\0" + GUESS.encode(),
        b"bob\0alice\0" + GUESS.encode(),
        b"\0admin\0" + GUESS.encode(),
        b"n,,n=alice,r=abc",
        first,
        final,  # of another exchange
        b"c=biws,r=abc,p=" + proof,
        b"c=biws,r=abcabcabcabcabcabcabcabcabc,p=" + proof,
        b"c=biws,r=,p=",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=alice,r=abc,tokenauth=true",
        first_by_token(broker),
        first_by_token(broker).replace(b"tokenauth", b"Tokenauth"),
        *by_token,
        b"c=biws,r=abc,p=" + by_token[1].rpartition(b",p=")[2],
        bearer(unsecured()),
        bearer(unsecured(scope="x"), "host=h\x01", "a=alice"),
        bearer(unsecured(None, {"alg": "HS256"})),
        b"\x01",
    ]
    requests = [(SaslAuthenticateRequest(auth_bytes=each), v) for each in tokens for v in (0, 2)]
    frames = [frame_of(each, version) for each, version in requests]
    for mechanism in ("PLAIN", SCRAM, TOKENS, "SCRAM-SHA-1", "GSSAPI", "", "plain"):
        frames += [frame_of(SaslHandshakeRequest(mechanism=mechanism), v) for v in (0, 1)]
    frames.append(frame_of(MetadataRequest(topics=[]), 9))
    versions = ApiVersionsRequest(client_software_name="me", client_software_version="1")
    frames += [frame_of(versions, version) for version in (0, 3)]
    return frames + tokens


def wrong_frames(broker: Guarded, random: Random) -> Iterator[bytes]:
    known = guesses(broker)
    while True:
        frame = bytearray(random.choice(known))
        kind = random.randrange(8)
        if kind == 0:
            frame = bytearray(random.randbytes(random.randrange(80)))
        elif kind == 1:  # another request
            header = random.randrange(-1, 80).to_bytes(2, "big", signed=True)
            frame = bytearray(header + random.randbytes(random.randrange(6, 60)))
        elif kind == 2:
            del frame[random.randrange(len(frame) + 1) :]
        elif kind == 3:
            frame += random.randbytes(random.randrange(1, 20))
        elif kind == 4:
            frame += bytes(LIMIT + 1 - min(len(frame), LIMIT) + random.randrange(3))
        elif kind < 7 and frame:
            for _ in range(random.randrange(1, 4)):
                frame[random.randrange(len(frame))] ^= 1 << random.randrange(8)
        yield bytes(frame)


def run(state: str, count: int, seed: int) -> None:
    keys = {
        "sasl_server_max_receive_size": str(LIMIT),
        "connections_max_reauth_ms": str(LIFETIME_MS),
        "delegation_token_secret_key": TOKEN_SECRET,
    }
    broker = guarded(SCOPE, connection_failed_authentication_delay_ms="100", **keys)
    frames = wrong_frames(broker, Random(seed))
    next(frames)  # it has to know a log-in that has succeeded
    sessions = broker.core.sessions
    client: Client | None = None
    sent = 0
    for _ in range(count):
        if client is None or client.closed is not None or sent == 4:
            if client is not None:
                broker.core.connection_closed(client.connection)
            if broker.connections % 200 == 0:
                broker.later(200)  # late refusals of those that are gone
            client, sent = STATES[state](broker), 0
            broker.outbox.drain()
            before = client.session.principal, list(broker.admitted)
        frame = next(frames)
        sent += 1
        broker.core.receive_frame(client.connection, frame)
        if client.session.in_flight is not None:
            broker.later(150)
        for effect in broker.outbox.drain():
            if isinstance(effect, Reply):
                assert sum(map(len, effect.parts)) <= REPLY_MAX, (state, frame)
            elif isinstance(effect, Close):
                client.closed = effect.reason
                assert GUESS not in effect.reason and "secret" not in effect.reason
            elif isinstance(effect, Log):
                assert GUESS not in repr(effect.fields)
        assert client.connection not in sessions.by_connection, (state, frame)
        assert (client.session.principal, broker.admitted) == before, (state, frame)


@pytest.mark.parametrize("state", STATES)
def test_nobody_comes_in(state: str) -> None:
    run(state, 2_000, 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", STATES)
def test_nobody_comes_in_by_a_hundred_thousand_frames(state: str) -> None:
    run(state, 10_000, 2)


def test_the_frames_would_come_in_with_the_right_secret() -> None:
    """That they are refused is not because of their form."""
    broker = Guarded()
    recorded(broker)
    assert broker.client().plain().error_code == 0
    again = Guarded(connections_max_reauth_ms=str(LIFETIME_MS))
    client = logging_in_again(again)
    assert client.authenticate(b"\0alice\0secret").error_code == 0
    assert client.connection in again.core.sessions.by_connection
