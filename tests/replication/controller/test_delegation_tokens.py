"""Delegation tokens at the controller: a state and a request, the answer and the records; time; another controller."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from controller_harness import ListJournal, Simulated

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kwire.replication.controller.state import ControllerState
from kwire.replication.core.clock import Clock
from kwire.replication.core.delegation_tokens import Token
from kwire.replication.core.metadata import TOKEN_RESOURCE

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
LONGEST = 2**63 - 1
SECRET = "a key that nobody learns"
ALICE, BOB = ("alice", "app"), ("bob", "app")


def cluster(journal: ListJournal | None = None, **settings: str) -> Simulated:
    settings = {"delegation_token_secret_key": SECRET, **settings}
    clock = Clock(now_ms=1000, wall_ms=NOW_MS)
    return Simulated(
        1, journal=journal, clock=clock, broker_session_timeout_ms=str(2**31 - 1), **settings
    )


@pytest.fixture
def tokens() -> Simulated:
    return cluster()


def ask(cluster: Simulated, request: Any, version: int, client: tuple[str, str] | None) -> Any:
    answers: list[Any] = []
    cluster.controller.submit(request, version, answers.append, client=client)
    (answer,) = answers
    return answer


def create(
    cluster: Simulated,
    client: tuple[str, str] | None = ALICE,
    *,
    version: int = 3,
    max_ms: int = -1,
    renewers: tuple[str, ...] = (),
    owner: tuple[str | None, str | None] = (None, None),
) -> Any:
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner[0],
        owner_principal_name=owner[1],
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, _, name in (each.partition(":") for each in renewers)
        ],
        max_lifetime_ms=max_ms,
    )
    return ask(cluster, request, version, client)


def renew(
    cluster: Simulated, key: bytes, period_ms: int = -1, client: tuple[str, str] = ALICE
) -> tuple[int, int]:
    request = RenewDelegationTokenRequest(hmac=key, renew_period_ms=period_ms)
    answer = ask(cluster, request, 2, client)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(
    cluster: Simulated, key: bytes, period_ms: int = -1, client: tuple[str, str] = ALICE
) -> tuple[int, int]:
    request = ExpireDelegationTokenRequest(hmac=key, expiry_time_period_ms=period_ms)
    answer = ask(cluster, request, 2, client)
    return answer.error_code, answer.expiry_timestamp_ms


def records(cluster: Simulated) -> list[Any]:
    return [each for each in cluster.journal.records if each[0].startswith("token/")]


def sent(cluster: Simulated) -> list[Any]:
    """What the brokers have got since they were looked at: ids, and whether the token is there."""
    found = (what for to, what in cluster.brokers.take() if to == TOKEN_RESOURCE)
    return [(name, bool(texts)) for name, texts in found]


def passed(cluster: Simulated, milliseconds: int) -> None:
    cluster.clock.wall_ms += milliseconds
    cluster.advance(milliseconds)


# --- creation


def test_a_token_is_a_record_without_its_secret(tokens: Simulated) -> None:
    made = create(tokens, renewers=("User:bob", "User:CN=carol,OU=x"))
    assert made.error_code == 0
    expected = hmac.new(SECRET.encode(), made.token_id.encode(), hashlib.sha512).digest()
    assert made.hmac == expected
    assert len(made.token_id) == 22 and not made.token_id.startswith("-")
    value = {
        "owner": "User:alice",
        "requester": "User:alice",
        "renewers": ["User:bob", "User:CN=carol,OU=x"],
        "issueTimestamp": NOW_MS,
        "maxTimestamp": NOW_MS + 7 * DAY_MS,
        "expirationTimestamp": NOW_MS + DAY_MS,
    }
    assert records(tokens) == [(f"token/{made.token_id}", value)]
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (
        NOW_MS,
        NOW_MS + DAY_MS,
        NOW_MS + 7 * DAY_MS,
    )
    assert sent(tokens) == [(made.token_id, True)]
    assert create(tokens).token_id != made.token_id


@pytest.mark.parametrize(
    ("max_ms", "settings", "lifetime_ms", "expiry_ms"),
    [
        (-1, {}, 7 * DAY_MS, DAY_MS),
        (0, {}, 7 * DAY_MS, DAY_MS),
        (1, {}, 1, 1),
        (2 * DAY_MS, {}, 2 * DAY_MS, DAY_MS),
        (8 * DAY_MS, {}, 7 * DAY_MS, DAY_MS),
        (-1, {"delegation_token_expiry_time_ms": "5"}, 7 * DAY_MS, 5),
        (-1, {"delegation_token_max_lifetime_ms": "4"}, 4, 4),
        (3, {"delegation_token_max_lifetime_ms": "4"}, 3, 3),
        (
            -1,
            {
                "delegation_token_max_lifetime_ms": str(LONGEST),
                "delegation_token_expiry_time_ms": str(LONGEST),
            },
            LONGEST - NOW_MS,
            LONGEST - NOW_MS,
        ),
    ],
)
def test_how_long_a_token_lasts(
    max_ms: int, settings: dict[str, str], lifetime_ms: int, expiry_ms: int
) -> None:
    made = create(cluster(**settings), max_ms=max_ms)
    assert made.max_timestamp_ms - NOW_MS == lifetime_ms
    assert made.expiry_timestamp_ms - NOW_MS == expiry_ms


def test_the_owner_may_be_somebody_else(tokens: Simulated) -> None:
    made = create(tokens, owner=("User", "bob"))
    assert (made.principal_type, made.principal_name) == ("User", "bob")
    assert made.token_requester_principal_name == "alice"
    assert records(tokens)[0][1]["owner"] == "User:bob"
    assert records(tokens)[0][1]["requester"] == "User:alice"
    # The one who has asked for it has no rights of its own.
    assert renew(tokens, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(tokens, made.hmac, client=BOB)[0] == 0
    nobody = create(tokens, owner=("User", ""))
    assert nobody.principal_name == "alice"
    untyped = create(tokens, owner=(None, "bob"))
    assert (untyped.error_code, untyped.issue_timestamp_ms) == (-1, -1)
    assert create(tokens, None).principal_name == "ANONYMOUS"


def test_renewers_are_users(tokens: Simulated) -> None:
    refused = create(tokens, renewers=("User:bob", "Group:all"))
    assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (refused.token_id, refused.hmac, records(tokens)) == ("", b"", [])


@pytest.mark.parametrize("key", [None, "", "  "])
def test_without_a_key_there_are_no_tokens(key: str | None) -> None:
    disabled = Simulated(1, **({} if key is None else {"delegation_token_secret_key": key}))
    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    made = create(disabled, renewers=("Group:all",))
    assert (made.error_code, made.principal_name, made.hmac) == (code, "alice", b"")
    assert renew(disabled, b"x") == expire(disabled, b"x") == (code, 0)
    assert records(disabled) == []


@pytest.mark.parametrize(
    ("keys", "used"),
    [
        ({"delegation_token_master_key": "old"}, "old"),
        ({"delegation_token_master_key": "old", "delegation_token_secret_key": "new"}, "new"),
        ({"delegation_token_secret_key": " new "}, "new"),
    ],
)
def test_the_old_name_of_the_key(keys: dict[str, str], used: str) -> None:
    made = create(Simulated(1, **keys))
    assert made.hmac == hmac.digest(used.encode(), made.token_id.encode(), "sha512")


# --- renewal and expiry: a time after the creation, a period, who asks; code and expiry after the creation

NONE, MISMATCH = int(ErrorCode.NONE), int(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
EXPIRED, NOT_FOUND = (
    int(ErrorCode.DELEGATION_TOKEN_EXPIRED),
    int(ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
)


@pytest.mark.parametrize(
    ("later_ms", "period_ms", "client", "code", "expiry_ms"),
    [
        (5, -1, ALICE, NONE, 5 + DAY_MS),
        (5, 0, ALICE, NONE, 5 + DAY_MS),
        (5, 7, ALICE, NONE, 12),
        (5, 2 * DAY_MS, ALICE, NONE, 5 + DAY_MS),
        (5, -1, BOB, NONE, 5 + DAY_MS),
        (5, -1, ("carol", "app"), MISMATCH, None),
        (DAY_MS, 1, ALICE, NONE, DAY_MS + 1),
        (DAY_MS + 1, 1, ALICE, EXPIRED, None),
        (DAY_MS + 1, 1, ("carol", "app"), EXPIRED, None),
    ],
)
def test_renewal(
    later_ms: int, period_ms: int, client: tuple[str, str], code: int, expiry_ms: int | None
) -> None:
    tokens = cluster(delegation_token_expiry_check_interval_ms=str(30 * DAY_MS))
    made = create(tokens, renewers=("User:bob",))
    before = records(tokens)[-1]
    passed(tokens, later_ms)
    expected = 0 if expiry_ms is None else NOW_MS + expiry_ms
    assert renew(tokens, made.hmac, period_ms, client) == (code, expected)
    if code:
        assert records(tokens) == [before]
    else:
        after = {**before[1], "expirationTimestamp": expected}
        assert records(tokens) == [before, (before[0], after)]
        assert sent(tokens)[-1] == (made.token_id, True)


def test_a_token_cannot_be_renewed_beyond_its_life(tokens: Simulated) -> None:
    made = create(tokens, max_ms=DAY_MS + 10)
    passed(tokens, 20)
    assert renew(tokens, made.hmac) == (NONE, NOW_MS + DAY_MS + 10)


@pytest.mark.parametrize(
    ("later_ms", "period_ms", "client", "code", "expiry_ms", "is_left"),
    [
        (5, -1, ALICE, NONE, 5, False),
        (5, -9, BOB, NONE, 5, False),
        (5, 0, ALICE, NONE, 5, True),
        (5, 3, ALICE, NONE, 8, True),
        (5, LONGEST, ALICE, NONE, 7 * DAY_MS, True),
        (5, -1, ("carol", "app"), MISMATCH, None, True),
        (DAY_MS + 1, 3, ALICE, EXPIRED, None, True),
        (DAY_MS + 1, 3, ("carol", "app"), MISMATCH, None, True),
        (DAY_MS + 1, -1, ALICE, NONE, DAY_MS + 1, False),
    ],
)
def test_expiry(
    later_ms: int,
    period_ms: int,
    client: tuple[str, str],
    code: int,
    expiry_ms: int | None,
    is_left: bool,
) -> None:
    tokens = cluster(delegation_token_expiry_check_interval_ms=str(30 * DAY_MS))
    made = create(tokens, renewers=("User:bob",))
    passed(tokens, later_ms)
    sent(tokens)
    expected = 0 if expiry_ms is None else NOW_MS + expiry_ms
    assert expire(tokens, made.hmac, period_ms, client) == (code, expected)
    assert (f"token/{made.token_id}" in tokens.controller.state.security) is is_left
    assert sent(tokens) == ([] if code else [(made.token_id, is_left)])
    if not is_left:
        assert records(tokens)[-1] == (f"token/{made.token_id}", None)
        assert expire(tokens, made.hmac) == renew(tokens, made.hmac) == (NOT_FOUND, 0)


@pytest.mark.parametrize("key", [b"", b"x" * 64])
def test_an_hmac_that_is_of_no_token(tokens: Simulated, key: bytes) -> None:
    made = create(tokens)
    assert renew(tokens, key) == expire(tokens, key) == (NOT_FOUND, 0)
    assert renew(tokens, made.token_id.encode()) == (NOT_FOUND, 0)
    assert renew(tokens, made.hmac[:-1]) == (NOT_FOUND, 0)


# --- time, restarts


def test_expired_tokens_are_deleted_from_time_to_time(tokens: Simulated) -> None:
    short, later = create(tokens, max_ms=HOUR_MS), create(tokens, max_ms=HOUR_MS + 1)
    create(tokens)
    sent(tokens)
    passed(tokens, HOUR_MS)  # the last moment of the first
    assert len(records(tokens)) == 3
    passed(tokens, HOUR_MS)
    assert records(tokens)[3:] == [(f"token/{each.token_id}", None) for each in (short, later)]
    assert sent(tokens) == [(short.token_id, False), (later.token_id, False)]
    passed(tokens, DAY_MS)
    assert len(records(tokens)) == 6 and len(tokens.controller.state.security) == 0
    flushed, count = tokens.journal.flushed, len(tokens.journal.records)
    assert flushed == count


def test_how_often_they_are_looked_for() -> None:
    tokens = cluster(delegation_token_expiry_check_interval_ms="10")
    create(tokens, max_ms=5)
    passed(tokens, 9)
    assert tokens.controller.state.security
    passed(tokens, 1)
    assert not tokens.controller.state.security


def test_a_controller_that_has_resigned_looks_for_none(tokens: Simulated) -> None:
    create(tokens, max_ms=1)
    tokens.controller.resign("stopped", "")
    passed(tokens, 3 * HOUR_MS)
    assert len(records(tokens)) == 1
    assert "delegation-tokens" not in tokens.timers


def test_the_next_controller_has_the_tokens(tokens: Simulated) -> None:
    made = create(tokens, renewers=("User:bob",), max_ms=2 * HOUR_MS)
    gone = create(tokens)
    expire(tokens, gone.hmac)
    renew(tokens, made.hmac, 7)
    later = Simulated(
        journal=tokens.journal,
        clock=Clock(now_ms=5, wall_ms=NOW_MS + 3),
        delegation_token_secret_key=SECRET,
    )
    assert sent(later) == [(made.token_id, True)]
    assert renew(later, made.hmac, 9, BOB) == (NONE, NOW_MS + 12)
    assert renew(later, gone.hmac) == (NOT_FOUND, 0)
    passed(later, HOUR_MS)
    assert not later.controller.state.security


def test_another_key_makes_other_hmacs(tokens: Simulated) -> None:
    made = create(tokens)
    later = cluster(tokens.journal, delegation_token_secret_key="another")
    assert renew(later, made.hmac) == (NOT_FOUND, 0)
    without = Simulated(journal=later.journal)
    assert sent(without) == [(made.token_id, True)]
    assert "delegation-tokens" not in without.timers


def test_a_journal_is_shortened_with_its_tokens(tokens: Simulated) -> None:
    made = create(tokens)
    renew(tokens, made.hmac, 7)
    other = ControllerState()
    for record in tokens.controller.state.records():
        other.replay(record)
    assert other.security == tokens.controller.state.security
    (value,) = other.security.values()
    token = Token.from_value(made.token_id, value)
    assert token.to_value() == value
    assert token.expires_ms == NOW_MS + 7
