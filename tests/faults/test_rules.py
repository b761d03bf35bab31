"""Rules of faults: what is refused in one line, what they are about, how they count."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.apis.parts.shapes import Part
from kwire.faults import codes
from kwire.faults.rules import Rule, checked, text_of
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"api": "Produc", "close": True}, "api: there is no API Produc; did you mean Produce?"),
    ({"close": True, "topik": "a"}, "there is no 'topik' in a fault; did you mean topic?"),
    ({"api": "Produce"}, "expected one of error, delay, drop, throttle, corrupt, close, not none"),
    ({"delay": 1, "drop": "after"}, "expected one of error, delay, .* not delay and drop"),
    ({"api": "Heartbeat", "topic": "a", "delay": 1}, "a Heartbeat request names no topic"),
    ({"api": "Metadata", "partition": 1, "delay": 1}, "a Metadata request names no partition"),
    ({"api": "Fetch", "group": "g", "delay": 1}, "a Fetch request names no group"),
    ({"api": "Fetch", "version": 99, "delay": 1}, "Fetch is served from 0 to 18: 99 would never"),
    ({"version": 1, "delay": 1}, "version: of which API"),
    ({"partition": -1, "delay": 1}, "partition: expected a number of 0 or more, not -1"),
    ({"topic": 7, "delay": 1}, "topic: expected a text, not 7"),
    ({"error": "NOT_COORDINATOR"}, "error: of which API"),
    ({"api": "Produce", "error": "NOT_COORDINATOR"}, "Kafka answers no Produce with NOT_COORD"),
    ({"api": "Produce", "error": "NOPE"}, "error: Kafka has no error NOPE"),
    ({"api": "Produce", "error": 0}, "error: NONE is no error"),
    ({"api": "Produce", "error": True}, "error: Kafka has no error True"),
    (
        {"api": "Fetch", "error": "FETCH_SESSION_ID_NOT_FOUND", "topic": "a"},
        "FETCH_SESSION_ID_NOT_FOUND is of a whole Fetch answer: leave topic out",
    ),
    (
        {"api": "LeaderAndIsr", "error": "STALE_CONTROLLER_EPOCH", "topic": "a"},
        "a LeaderAndIsr answer has one error for all: leave topic out",
    ),
    ({"api": "Envelope", "error": "NOT_LEADER_OR_FOLLOWER"}, "Kafka answers no Envelope with"),
    ({"api": "Vote", "error": "NOT_CONTROLLER"}, "kwire does not know the errors of Vote"),
    ({"drop": "later"}, "drop: expected 'before' or 'after', not 'later'"),
    ({"delay": 0}, "delay: expected milliseconds"),
    ({"delay": float("nan")}, "delay: expected milliseconds"),
    ({"throttle": True}, "throttle: expected milliseconds"),
    ({"api": "LeaderAndIsr", "throttle": 1}, "a LeaderAndIsr answer has no throttle time"),
    ({"api": "Produce", "corrupt": True}, "corrupt: only the answers of Fetch have records"),
    ({"corrupt": 1}, "corrupt: expected True, not 1"),
    ({"close": True, "force": True}, "force: only errors can be forced"),
    ({"close": True, "times": 0}, "times: expected 1 or more, not 0: it would never hit"),
    ({"close": True, "probability": 0}, "probability: expected more than 0, up to 1, not 0"),
    ({"close": True, "probability": 2}, "probability: expected more than 0, up to 1, not 2"),
    ({"close": True, "seed": 1}, "seed: without probability nothing is left to chance"),
    ({"close": True, "seed": "a", "probability": 0.5}, "seed: expected a whole number"),
]


@pytest.mark.parametrize(("given", "text"), REFUSED)
def test_a_rule_that_cannot_hit_is_refused_in_one_line(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        checked(given)
    assert "\n" not in str(caught.value)


def test_names_are_written_as_kafka_does() -> None:
    given = checked({"api": "produce", "error": "not_enough_replicas", "topic": None})
    assert given == {"api": "Produce", "error": "NOT_ENOUGH_REPLICAS"}
    assert checked({"api": "Fetch", "error": 1})["error"] == "OFFSET_OUT_OF_RANGE"
    assert checked({"delay": 2.4, "close": False})["delay"] == 2


def test_force_gives_any_error() -> None:
    given = {"api": "Produce", "error": "NOT_COORDINATOR", "force": True}
    assert Rule("1", given).code is ErrorCode.NOT_COORDINATOR


def test_errors_that_are_allowed_exist() -> None:
    for key in ApiKey:
        for name in (*codes.of_parts(key), *codes.of_whole(key)):
            assert name in ErrorCode.__members__


def test_a_rule_is_about_parts_that_fit_all_of_it() -> None:
    rule = Rule("1", {"topic": "a", "partition": 1, "close": True})
    assert rule.selects_parts
    assert rule.allows(Part("a", 1))
    assert not rule.allows(Part("a", 0))
    assert not rule.allows(Part("b", 1))
    assert not Rule("1", {"group": "g", "close": True}).allows(Part(group="h"))
    assert not Rule("1", {"transactional_id": "g", "close": True}).allows(Part(group="g"))
    assert not Rule("1", {"client_id": "x", "close": True}).selects_parts


def test_times_are_counted() -> None:
    rule = Rule("1", {"close": True, "times": 2})
    assert [rule.happens() for _ in range(4)] == [True, True, False, False]
    assert rule.hits == 2


def test_probability_is_the_same_with_the_same_seed() -> None:
    def draws(seed: int) -> list[bool]:
        rule = Rule("1", {"close": True, "probability": 0.3, "seed": seed})
        found = [rule.happens() for _ in range(1000)]
        assert rule.hits == sum(found)
        return found

    assert draws(1) == draws(1) != draws(2)
    assert 200 < sum(draws(1)) < 400


def test_a_rule_in_one_line() -> None:
    given = {"api": "Produce", "topic": "a", "error": "NOT_ENOUGH_REPLICAS", "times": 3}
    assert text_of(given) == "Produce topic=a: NOT_ENOUGH_REPLICAS, 3 times"
    assert text_of({"delay": 5, "probability": 0.5}) == "any API: delayed by 5 ms, probability 0.5"
