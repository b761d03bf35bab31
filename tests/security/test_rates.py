"""Windows, and throttle times, with numbers that Kafka's own code gives (SampledStat, QuotaUtils)."""

from __future__ import annotations

import pytest

from kwire.replication.core.quotas import (
    CLIENT_ID,
    USER,
    Limits,
    Quota,
    entity_of,
    entity_text,
)
from kwire.replication.core.rates import WindowedRate

START = 1_000_000


def test_the_rate_of_a_first_record_is_over_the_windows_before_it() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(5000, START)
    assert rate.elapsed_ms(START) == 10_000  # ten whole windows, and nothing of the eleventh
    assert rate.measure(START) == 500.0
    assert rate.elapsed_ms(START + 600) == 10_600


@pytest.mark.parametrize(
    ("amount", "bound", "after_ms", "throttle_ms"),
    [
        (5000, 500, 0, 0),  # as much as allowed
        (6000, 500, 0, 2000),  # 600 / s: (600 - 500) / 500 * 10 s
        (6000, 500, 600, 1400),  # 566.04 / s over 10.6 s
        (10_000, 500, 0, 10_000),
        (5003, 500, 0, 6),
        (5001, 1000, 0, 0),
    ],
)
def test_throttle_times(amount: float, bound: float, after_ms: int, throttle_ms: int) -> None:
    rate = WindowedRate(11, 1000)
    rate.record(amount, START)
    assert rate.throttle_ms(bound, START + after_ms) == throttle_ms


def test_a_steady_rate_is_measured_as_it_is() -> None:
    rate = WindowedRate(11, 1000)
    for tenth in range(300):
        rate.record(100, START + tenth * 100)
    # The oldest sample began at 19 s; what came at 18.9 s is eleven windows old.
    assert rate.measure(START + 29_899) == pytest.approx(12_000 / 11.899)
    assert rate.measure(START + 29_900) == pytest.approx(11_000 / 10.9)


def test_what_is_older_than_all_windows_does_not_count() -> None:
    rate = WindowedRate(3, 1000)
    rate.record(900, START)
    assert rate.measure(START + 2999) == pytest.approx(900 / 2.999)
    assert rate.measure(START + 3000) == 0.0


def test_a_record_is_taken_back() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(6000, START)
    rate.record(-6000, START)
    assert rate.measure(START) == 0.0


LEVELS = [
    ({USER: "u", CLIENT_ID: "c"}, 1),
    ({USER: "u", CLIENT_ID: None}, 2),
    ({USER: "u"}, 3),
    ({USER: None, CLIENT_ID: "c"}, 4),
    ({USER: None, CLIENT_ID: None}, 5),
    ({USER: None}, 6),
    ({CLIENT_ID: "c"}, 7),
    ({CLIENT_ID: None}, 8),
]


@pytest.mark.parametrize("first", range(8))
def test_the_eight_levels(first: int) -> None:
    """DefaultQuotaCallback: the most specific value that there is, whichever levels are below it."""
    limits = Limits()
    for entity, value in reversed(LEVELS[first:]):
        limits.set(entity, value)
    assert limits.bound(limits.key_of("u", "c")) == first + 1
    for entity, _ in LEVELS:
        limits.set(entity, None)
    assert limits.bound(limits.key_of("u", "c")) is None
    assert limits.were_set


@pytest.mark.parametrize(
    ("entities", "key"),
    [
        ([], ("", "c")),
        ([{CLIENT_ID: "x"}], ("", "c")),
        ([{USER: "x"}], ("u", "")),
        ([{USER: "x", CLIENT_ID: "y"}], ("u", "c")),
        ([{USER: "x"}, {CLIENT_ID: "y"}], ("", "c")),
        ([{USER: "u"}, {CLIENT_ID: "c"}], ("u", "")),
        ([{USER: None}, {CLIENT_ID: "c"}], ("u", "")),
        ([{USER: None, CLIENT_ID: None}, {USER: "u"}], ("u", "")),
    ],
)
def test_who_is_counted_together(
    entities: list[dict[str, str | None]], key: tuple[str, str]
) -> None:
    limits = Limits()
    for entity in entities:
        limits.set(entity, 10)
    assert limits.key_of("u", "c") == key


def test_a_quota_throttles_the_clients_that_share_it() -> None:
    quota = Quota(11, 1000)
    quota.limits.set({USER: "alice"}, 500)
    assert quota.record("alice", "one", 5000, START) == 0
    assert quota.record("alice", "two", 1000, START) == 2000
    assert quota.record("bob", "one", 1_000_000, START) == 0
    assert quota.most_at_once("alice", "one") == 5000
    assert quota.most_at_once("bob", "one") is None
    quota.limits.set({USER: "alice"}, 1000)  # acts at once
    assert quota.record("alice", "one", 0, START) == 0


def test_the_throttle_time_of_a_request_quota_is_at_most_a_window() -> None:
    quota = Quota(11, 1000, most_ms=1000)
    quota.limits.set({USER: None}, 1)
    assert quota.record("alice", "", 100, START) == 1000


@pytest.mark.parametrize(
    "entity",
    [{USER: "a"}, {USER: None, CLIENT_ID: "a=b&c%26"}, {"ip": None}, {"ip": "::1"}, {USER: "ü/ö"}],
)
def test_an_entity_has_a_text(entity: dict[str, str | None]) -> None:
    assert entity_of(entity_text(entity)) == entity
