"""Ways around the end of a session (KIP-368): none lets a client go on whose time is over."""

from __future__ import annotations

import pytest
from login_kit import Client, Guarded

from kwire.leftovers import Leftovers
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.recent import ADMINISTRATION_CLIENT_ID

LIMIT_MS = 60_000


@pytest.fixture
def mortal() -> Guarded:
    return Guarded(connections_max_reauth_ms=str(LIMIT_MS))


def reset(broker: Guarded) -> None:
    """What a reset does with the clients that are connected."""
    sessions = broker.core.sessions
    sessions.leftovers = Leftovers(sessions, broker.core.services)
    sessions.leftovers.take_all()


def asks_as_a_node(client: Client) -> bool:
    """Whether a request is answered whose client id is that of kwire's own administration."""
    from kwire.protocol import api

    frame = b"".join(
        map(
            bytes,
            api.encode_request(3, 9, 7, ADMINISTRATION_CLIENT_ID, MetadataRequest(topics=None)),
        )
    )[4:]
    return bool(client.send(frame))


def test_a_client_that_is_older_than_a_reset_does_not_outlive_its_session(mortal: Guarded) -> None:
    one, other = mortal.client(), mortal.client()
    one.plain()
    other.plain()
    reset(mortal)
    assert asks_as_a_node(one)
    mortal.later(LIMIT_MS)
    assert not asks_as_a_node(other) and other.session.closed
    assert not asks_as_a_node(one) and one.session.closed
