"""DescribeClientQuotas: no quotas are found, and filters are refused as by Kafka 3.9.1."""

from __future__ import annotations

import pytest
from login_kit import Guarded

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.quotas import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
INVALID = ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "code", "said"),
    [
        ([], 0, None),
        ([("user", EXACT, "alice")], 0, None),
        ([("user", DEFAULT, None), ("client-id", SPECIFIED, None)], 0, None),
        ([("ip", EXACT, "127.0.0.1")], 0, None),
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
def test_no_quotas_are_found(
    components: list[tuple[str, int, str | None]], code: int, said: str | None, version: int
) -> None:
    client = Guarded().client()
    client.plain()
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=how, match=match)
            for kind, how, match in components
        ]
    )
    response = client.ask(request, version)
    assert response.error_code == code
    if said is None:
        assert response.entries == [] and response.error_message == ""
    else:
        assert response.entries is None and said in response.error_message
