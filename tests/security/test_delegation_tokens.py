"""Delegation tokens at a broker: who may ask about them, the log-in by one, its end, and what shows no secret."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from login_kit import Client, Guarded
from token_kit import (
    DAY_MS,
    HOUR_MS,
    SECRET,
    ByToken,
    created,
    described,
    expired,
    log_in,
    passed,
    renewed,
    user,
    with_tokens,
)

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.acls import AclCreation, CreateAclsRequest
from kwire.protocol.schemas.configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.protocol.schemas.tokens import CreateDelegationTokenRequest
from kwire.replication.core.acls import (
    ALLOW,
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DESCRIBE,
    DESCRIBE_TOKENS,
    LITERAL,
    USER,
)

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
DELAY_MS = 100


@pytest.fixture
def broker() -> Guarded:
    return with_tokens()


def by_token(broker: Guarded, token: Any, mechanism: str = SCRAM[1]) -> Client:
    client = broker.client()
    assert log_in(client, ByToken(mechanism, token.token_id, token.hmac)).error_code == 0
    return client


# --- log-ins


@pytest.mark.parametrize("mechanism", SCRAM)
def test_who_has_a_token_comes_in_as_its_owner(broker: Guarded, mechanism: str) -> None:
    alice = user(broker)
    for _ in range(2):  # the second time with the credential that is kept
        token = created(alice, owner="bob", max_lifetime_ms=HOUR_MS)
        client = broker.client()
        response = log_in(client, ByToken(mechanism, token.token_id, token.hmac))
        assert (response.error_code, response.session_lifetime_ms) == (0, HOUR_MS)
        assert client.session.principal == "User:bob"
        assert client.metadata().brokers[0].node_id == 1


@pytest.mark.parametrize("extension", ["tokenauth=TRUE", "other=1,tokenauth=true"])
def test_how_the_extension_may_be_written(broker: Guarded, extension: str) -> None:
    token = created(user(broker))
    client = broker.client()
    assert log_in(client, ByToken(SCRAM[0], token.token_id, token.hmac, extension)).error_code == 0


def refused(broker: Guarded, exchange: ByToken) -> str | None:
    """Why the broker closes the connection, after the refusal that does not say it."""
    client = broker.client()
    assert log_in(client, exchange) is None
    broker.later(DELAY_MS)
    answer = client.answer()
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message.startswith("Authentication failed during authentication due to")
    return client.closed


@pytest.mark.parametrize("extension", ["tokenauth=false", "Tokenauth=true", "other=tokenauth=true"])
def test_a_token_without_the_extension_is_no_user(broker: Guarded, extension: str) -> None:
    token = created(user(broker))
    why = refused(broker, ByToken(SCRAM[0], token.token_id, token.hmac, extension))
    assert why is not None and "there is no user" in why


def test_a_user_with_the_extension_is_no_token(broker: Guarded) -> None:
    exchange = ByToken(SCRAM[0], "alice", b"")
    exchange._password = "secret"
    assert refused(broker, exchange) == (
        "authentication failed: there is no delegation token 'alice'"
    )


def test_a_wrong_hmac(broker: Guarded) -> None:
    token, other = created(user(broker)), created(user(broker))
    why = refused(broker, ByToken(SCRAM[0], token.token_id, other.hmac))
    assert why is not None and f"wrong password of delegation token '{token.token_id}'" in why


def test_a_token_that_is_deleted_is_gone_and_its_sessions_go_on(broker: Guarded) -> None:
    alice = user(broker)
    token = created(alice)
    client = by_token(broker, token)
    assert expired(alice, token.hmac)[0] == 0
    assert client.metadata().brokers
    why = refused(broker, ByToken(SCRAM[0], token.token_id, token.hmac))
    assert why is not None and "there is no delegation token" in why


def test_without_a_key_nobody_comes_in_by_a_token() -> None:
    broker = with_tokens()
    token = created(user(broker))
    broker.core.close()
    later = Guarded(broker.store)
    why = refused(later, ByToken(SCRAM[0], token.token_id, token.hmac))
    assert why is not None and "there is no delegation token" in why
    disabled = int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    alice = user(later)
    assert created(alice).error_code == described(alice).error_code == disabled
    assert renewed(alice, token.hmac) == expired(alice, token.hmac) == (disabled, 0)


def test_tokens_survive_a_restart(broker: Guarded) -> None:
    token = created(user(broker), renewers=["bob"])
    broker.core.close()
    later = with_tokens(broker.store)
    assert by_token(later, token).session.principal == "User:alice"
    assert described(user(later, "bob")).tokens == described(user(later)).tokens
    assert renewed(user(later, "bob"), token.hmac, 5)[0] == 0


# --- the end of a session


def test_a_session_ends_with_its_token(broker: Guarded) -> None:
    token = created(user(broker), max_lifetime_ms=5000)
    client = by_token(broker, token)
    passed(broker, 4999)
    assert client.metadata().brokers
    passed(broker, 1)
    assert client.metadata() is None
    assert client.closed == "no log-in again before its token had expired"


def test_a_shorter_limit_of_the_broker_wins() -> None:
    broker = with_tokens(connections_max_reauth_ms="2000")
    token = created(user(broker), max_lifetime_ms=5000)
    client = broker.client()
    exchange = ByToken(SCRAM[0], token.token_id, token.hmac)
    assert log_in(client, exchange).session_lifetime_ms == 2000
    passed(broker, 4000)
    exchange = ByToken(SCRAM[0], token.token_id, token.hmac)
    assert log_in(client, exchange).session_lifetime_ms == 1000


def test_a_renewed_token_prolongs_the_session_at_the_next_log_in(broker: Guarded) -> None:
    alice = user(broker)
    token = created(alice)
    expired(alice, token.hmac, 5000)
    client = by_token(broker, token)
    passed(broker, 3000)
    assert renewed(alice, token.hmac, 10_000)[0] == 0
    exchange = ByToken(SCRAM[1], token.token_id, token.hmac)
    assert log_in(client, exchange).session_lifetime_ms == 10_000
    assert created(client).error_code == NOT_ALLOWED  # it is still by a token
    passed(broker, 9999)
    assert client.metadata().brokers and client.session.principal == "User:alice"


def test_an_expired_token_that_is_not_deleted_yet_ends_its_session_at_once(broker: Guarded) -> None:
    alice = user(broker)
    token = created(alice, max_lifetime_ms=1000)
    passed(broker, 1001)
    assert [each.token_id for each in described(alice).tokens] == [token.token_id]
    client = broker.client()
    response = log_in(client, ByToken(SCRAM[0], token.token_id, token.hmac))
    assert (response.error_code, response.session_lifetime_ms) == (0, 0)
    passed(broker, 0)
    assert client.metadata() is None and client.closed is not None
    passed(broker, HOUR_MS)
    assert described(alice).tokens == []
    why = refused(broker, ByToken(SCRAM[0], token.token_id, token.hmac))
    assert why is not None and "there is no delegation token" in why


def test_a_log_in_again_by_another_users_token_is_refused(broker: Guarded) -> None:
    alice = user(broker)
    own, others = created(alice), created(alice, owner="bob")
    client = by_token(broker, own)
    passed(broker, 2000)
    assert log_in(client, ByToken(SCRAM[1], others.token_id, others.hmac)) is None
    broker.later(DELAY_MS)
    assert "Cannot change principals" in client.answer().error_message


# --- who may ask


@pytest.mark.parametrize("version", range(4))
def test_who_has_not_logged_in_or_by_a_token_may_not_ask(broker: Guarded, version: int) -> None:
    token = created(user(broker))
    for client, name in (
        (broker.client("PLAIN"), "ANONYMOUS"),
        (by_token(broker, token), "alice"),
    ):
        refusal = created(client, version)
        assert (refusal.error_code, refusal.principal_name) == (NOT_ALLOWED, name)
        assert refusal.token_requester_principal_name == (name if version == 3 else "")
        assert (refusal.issue_timestamp_ms, refusal.token_id, refusal.hmac) == (-1, "", b"")
        assert described(client, version=version).error_code == NOT_ALLOWED
        assert renewed(client, token.hmac) == expired(client, token.hmac) == (NOT_ALLOWED, -1)


def test_a_certificate_is_enough(broker: Guarded) -> None:
    client = broker.client("PLAIN")
    client.session.principal = "User:CN=carol"
    token = created(client)
    assert (token.error_code, token.principal_name) == (0, "CN=carol")
    assert by_token(broker, token).session.principal == "User:CN=carol"


@pytest.mark.parametrize("version", range(4))
def test_all_versions(broker: Guarded, version: int) -> None:
    alice = user(broker)
    owner = "bob" if version == 3 else None
    token = created(alice, version, owner=owner, renewers=["alice"])
    owner = owner or "alice"
    assert (token.error_code, token.principal_name) == (0, owner)
    (found,) = described(alice, version=version).tokens
    assert (found.principal_name, found.token_id, found.hmac) == (owner, token.token_id, token.hmac)
    assert found.token_requester_principal_name == ("alice" if version == 3 else "")
    assert [each.principal_name for each in found.renewers] == ["alice"]
    times = found.issue_timestamp, found.expiry_timestamp, found.max_timestamp
    assert times == (
        token.issue_timestamp_ms,
        token.expiry_timestamp_ms,
        token.max_timestamp_ms,
    )
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == DAY_MS


def test_renewers_are_users(broker: Guarded) -> None:
    from kwire.protocol.schemas.tokens import CreatableRenewers

    renewer = CreatableRenewers(principal_type="Group", principal_name="x")
    request = CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1)
    refusal = user(broker).ask(request, 3)
    assert refusal.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (refusal.max_timestamp_ms, refusal.principal_name) == (-1, "alice")


def test_owners_that_are_asked_for(broker: Guarded) -> None:
    alice = user(broker)
    own = created(alice).token_id
    passed(broker, 1)
    others = created(alice, owner="bob", renewers=["carol"]).token_id

    def ids(owners: list[str] | None) -> list[str]:
        return [token.token_id for token in described(alice, owners).tokens]

    assert ids(None) == ids(["bob", "alice"]) == [own, others]
    assert ids(["alice"]) == [own, others]  # she has asked for both
    assert ids(["bob"]) == ids(["carol"]) == [others]
    assert ids([]) == ids(["nobody"]) == []


# --- access rules


@pytest.fixture
def ruled() -> Guarded:
    """alice is a super user, bob is not."""
    return with_tokens(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:alice",
    )


def allow(broker: Guarded, operation: int, kind: int, name: str) -> None:
    rule = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal="User:bob",
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )
    (result,) = user(broker).ask(CreateAclsRequest(creations=[rule]), 3).results
    assert result.error_code == 0


def test_a_token_for_somebody_else_needs_create_tokens(ruled: Guarded) -> None:
    bob = user(ruled, "bob")
    assert created(bob).error_code == created(bob, owner="bob").error_code == 0
    refusal = created(bob, owner="carol")
    assert refusal.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refusal.principal_name, refusal.issue_timestamp_ms) == ("carol", -1)
    allow(ruled, CREATE_TOKENS, USER, "User:carol")
    assert created(bob, owner="carol").error_code == 0
    assert created(bob, owner="dora").error_code
    assert created(user(ruled), owner="dora").error_code == 0
    anonymous = created(ruled.client("PLAIN"), owner="dora")
    assert anonymous.error_code == NOT_ALLOWED


def test_tokens_of_others_are_left_out_unless_they_may_be_described(ruled: Guarded) -> None:
    alice, bob = user(ruled), user(ruled, "bob")
    tokens = {
        "renewed": created(alice, renewers=["bob"]).token_id,
        "alice's": created(alice).token_id,
        "carol's": created(alice, owner="carol").token_id,
        "own": created(bob).token_id,
    }

    def seen() -> set[str]:
        ids = {token.token_id for token in described(bob).tokens}
        return {name for name, token_id in tokens.items() if token_id in ids}

    assert seen() == {"renewed", "own"}
    allow(ruled, CREATE_TOKENS, USER, "User:dora")
    tokens["asked for"] = created(bob, owner="dora").token_id
    assert seen() == {"renewed", "own", "asked for"}
    assert tokens["asked for"] in {token.token_id for token in described(bob, version=1).tokens}
    allow(ruled, DESCRIBE, DELEGATION_TOKEN, tokens["alice's"])
    assert seen() == {"renewed", "own", "asked for", "alice's"}
    allow(ruled, DESCRIBE_TOKENS, USER, "User:carol")
    assert seen() == set(tokens)
    assert len(described(alice).tokens) == 5


# --- secrets


def test_secrets_are_in_nothing_that_is_shown(broker: Guarded) -> None:
    alice = user(broker)
    token = created(alice)
    client = by_token(broker, token)
    refused(broker, ByToken(SCRAM[0], token.token_id, b"wrong"))
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (configs,) = client.ask(request, 4).results
    entry = {each.name: each for each in configs.configs}["delegation.token.secret.key"]
    assert entry.value is None and entry.is_sensitive
    sessions, services = broker.core.sessions, broker.core.services
    assert sessions.recent is not None
    recent = repr(sessions.recent.list_requests(sessions.by_connection.values()))
    assert ApiKey.CREATE_DELEGATION_TOKEN.api_name in recent
    files = {name: broker.store.read_file(name) for name in broker.store.list_dir()}
    assert any(token.token_id.encode() in data for data in files.values())
    assert services.controller is not None
    shown = [
        repr(configs),
        recent,
        repr(broker.gate._tokens),
        repr(broker.logged),
        repr(files),
        repr(services.controller.state.records()),
        repr(services.metadata.__class__.__slots__) + repr(services.metadata._configs),
    ]
    for text in shown:
        for secret in (SECRET, b64encode(token.hmac).decode(), token.hmac.hex(), repr(token.hmac)):
            assert secret not in text


def test_an_alteration_of_configurations_makes_no_token(broker: Guarded) -> None:
    from kwire.protocol.schemas.configs import (
        AlterableConfig,
        AlterConfigsRequest,
        AlterConfigsResource,
    )
    from kwire.replication.core.delegation_tokens import texts_of
    from kwire.replication.core.metadata import ACL_RESOURCE, SCRAM_RESOURCE, TOKEN_RESOURCE

    token = created(user(broker))
    services = broker.core.services
    assert services.controller is not None
    (value,) = (each for key, each in services.controller.state.security.items() if "token/" in key)
    texts = texts_of({**value, "owner": "User:bob"})
    for kind in (TOKEN_RESOURCE, ACL_RESOURCE, SCRAM_RESOURCE):
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=token.token_id,
            configs=[AlterableConfig(name=key, value=text) for key, text in texts.items()],
        )
        request = AlterConfigsRequest(resources=[resource])
        (answer,) = user(broker).ask(request, 2).responses
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        (answer,) = services.controller.handle(request, 2).responses  # type: ignore[attr-defined]
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert by_token(broker, token).session.principal == "User:alice"
