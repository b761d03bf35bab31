"""AlterClientQuotas and DescribeClientQuotas: what is kept, found and refused, as by Kafka 3.9.1."""

from __future__ import annotations

from typing import Any

import pytest
from login_kit import Client, Guarded

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
INVALID = ErrorCode.INVALID_REQUEST
ALICE = {"user": "alice"}
Entity = dict[str, str | None]


@pytest.fixture
def client() -> Client:
    client = Guarded().client()
    client.plain()
    return client


def alter(
    client: Client, *entries: tuple[Entity, dict[str, float | None]], validate_only: bool = False
) -> list[tuple[int, str | None]]:
    """Error code and message of each entity."""
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[EntityData(entity_type=k, entity_name=n) for k, n in entity.items()],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in values.items()
                ],
            )
            for entity, values in entries
        ],
        validate_only=validate_only,
    )
    response = client.ask(request, 1)
    return [(each.error_code, each.error_message) for each in response.entries]


def describe(client: Client, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """Entity → values, as pairs."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=k, match_type=how, match=m) for k, how, m in components
        ],
        strict=strict,
    )
    response = client.ask(request, 1)
    assert response.error_code == 0
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in response.entries
    ]


def test_quotas_are_set_changed_and_removed(client: Client) -> None:
    assert alter(client, (ALICE, {"producer_byte_rate": 1024.0, "request_percentage": 12.5})) == [
        (0, None)
    ]
    both = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    assert describe(client) == [(ALICE, both)]
    alter(client, (ALICE, {"producer_byte_rate": None, "consumer_byte_rate": 7.0}))
    assert describe(client) == [(ALICE, {"consumer_byte_rate": 7.0, "request_percentage": 12.5})]
    gone = {"consumer_byte_rate": None, "request_percentage": None, "never_was": None}
    assert alter(client, (ALICE, gone)) == [(0, None)]
    assert describe(client) == []


def test_quotas_are_there_after_a_restart(client: Client) -> None:
    alter(
        client,
        (ALICE, {"producer_byte_rate": 1024.0}),
        ({"ip": None}, {"connection_creation_rate": 3.0}),
    )
    broker = client.broker
    broker.core.close()
    again = Guarded(broker.store).client()
    again.plain()
    assert (
        describe(again)
        == describe(again, strict=False)
        == [
            ({"ip": None}, {"connection_creation_rate": 3.0}),
            (ALICE, {"producer_byte_rate": 1024.0}),
        ]
    )


def test_validated_quotas_are_not_kept(client: Client) -> None:
    good, bad = (ALICE, {"producer_byte_rate": 1.0}), ({"user": "b"}, {"x": 1.0})
    assert [code for code, _ in alter(client, good, bad, validate_only=True)] == [0, INVALID]
    assert describe(client) == []


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, "a ac ad d dc c i"),
        ([], True, ""),
        ([("user", EXACT, "a")], False, "a ac ad"),
        ([("user", EXACT, "a")], True, "a"),
        ([("user", DEFAULT, None)], False, "d dc"),
        ([("user", SPECIFIED, None)], True, "a d"),
        ([("user", SPECIFIED, None), ("client-id", EXACT, "c")], True, "ac dc"),
        ([("user", EXACT, "a"), ("client-id", DEFAULT, None)], False, "ad"),
        ([("client-id", EXACT, "c")], False, "ac dc c"),
        ([("client-id", EXACT, "c")], True, "c"),
        ([("ip", SPECIFIED, None)], False, "i"),
        ([("ip", DEFAULT, None)], False, ""),
    ],
)
def test_filters(client: Client, components: Any, strict: bool, found: str) -> None:
    entities: dict[str, Entity] = {
        "a": {"user": "a"},
        "ac": {"user": "a", "client-id": "c"},
        "ad": {"user": "a", "client-id": None},
        "d": {"user": None},
        "dc": {"user": None, "client-id": "c"},
        "c": {"client-id": "c"},
        "i": {"ip": "10.0.0.7"},
    }
    for name, entity in entities.items():
        key = "connection_creation_rate" if name == "i" else "producer_byte_rate"
        assert alter(client, (entity, {key: 5.0})) == [(0, None)]
    seen = [entity for entity, _ in describe(client, *components, strict=strict)]
    assert sorted(map(str, seen)) == sorted(
        str(dict(sorted(entities[n].items()))) for n in found.split()
    )


@pytest.mark.parametrize(
    ("entity", "values", "said"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        (
            {"user": "a", "ip": "10.0.0.1"},
            {"producer_byte_rate": 1.0},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            {"ip": "not an address"},
            {"connection_creation_rate": 1.0},
            "not an address is not a valid IP or resolvable host.",
        ),
        (
            {"ip": "10.0.0.1"},
            {"producer_byte_rate": 1.0},
            "Invalid configuration key producer_byte_rate",
        ),
        (
            ALICE,
            {"connection_creation_rate": 1.0},
            "Invalid configuration key connection_creation_rate",
        ),
        (ALICE, {"bogus": 1.0}, "Invalid configuration key bogus"),
        (ALICE, {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, {"request_percentage": 0.0}, "Quota request_percentage must be greater than 0"),
        (ALICE, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            ALICE,
            {"consumer_byte_rate": 1e19},
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": None},
            {"connection_creation_rate": 2147483648.0},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_changes_that_are_refused(
    client: Client, entity: Entity, values: dict[str, float | None], said: str
) -> None:
    beside: tuple[Entity, dict[str, float | None]] = ({"user": "fine"}, {"producer_byte_rate": 9.0})
    assert alter(client, (entity, values), beside) == [(INVALID, said), (0, None)]
    assert describe(client) == [({"user": "fine"}, {"producer_byte_rate": 9.0})]


def test_an_entity_is_changed_once_in_a_request(client: Client) -> None:
    twice = [(ALICE, {"producer_byte_rate": 1.0}), (ALICE, {"producer_byte_rate": 2.0})]
    assert alter(client, *twice) == [  # type: ignore[arg-type]  # values are floats
        (INVALID, "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})")
    ]
    assert describe(client) == [(ALICE, {"producer_byte_rate": 1.0})]  # as in Kafka: the first one


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "code", "said"),
    [
        ([("", EXACT, "x")], INVALID, "Invalid empty entity type."),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], INVALID, "cannot appear more than once"),
        ([("group", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([("user", 3, None)], INVALID, "Unknown match type 3"),
        ([("user", -1, None)], INVALID, "Unknown match type -1"),
        ([("user", EXACT, None)], INVALID, "MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", DEFAULT, "a")], INVALID, "MATCH_TYPE_DEFAULT, but also specified a match"),
        ([("user", SPECIFIED, "a")], INVALID, "MATCH_TYPE_SPECIFIED, but also specified a match"),
        ([("user", EXACT, "a"), ("ip", EXACT, "b")], INVALID, "should not be used with user or"),
    ],
)
def test_filters_that_are_refused(
    client: Client,
    components: list[tuple[str, int, str | None]],
    code: int,
    said: str,
    version: int,
) -> None:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=how, match=match)
            for kind, how, match in components
        ]
    )
    response = client.ask(request, version)
    assert response.error_code == code
    assert response.entries is None and said in response.error_message
