"""What holds for a link between two nodes: one value, one set of bounds, two ways to write it."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.server.link_rules import LinkRule, rules_from_json

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (LinkRule(2), "cut 2"),
        (LinkRule(0, 0), "delay 0 0"),
        (LinkRule(2**31 - 1, DAY_MS - 1), f"delay {2**31 - 1} {DAY_MS - 1}"),
    ],
)
def test_a_rule_as_text_and_as_json_and_back(rule: LinkRule, text: str) -> None:
    assert str(rule) == text
    assert LinkRule.parse(text) == LinkRule.from_json(text) == LinkRule.from_json(rule.to_json())
    assert LinkRule.parse(text) == rule and hash(LinkRule.parse(text)) == hash(rule)
    assert (rule.delay_ms is None) == text.startswith("cut")


def test_rules_are_equal_by_value() -> None:
    assert len({LinkRule(2), LinkRule(2, 0), LinkRule(3), LinkRule(2)}) == 3
    assert LinkRule(2) != "cut 2"
    assert LinkRule(2, 5).with_to(3) == LinkRule(3, 5)
    assert LinkRule(2).with_to(3) == LinkRule(3)


@pytest.mark.parametrize(
    "delay_ms", [-1, DAY_MS, True, "5", float("nan"), float("inf"), [], 10**400]
)
def test_a_delay_is_from_0_to_a_day(delay_ms: Any) -> None:
    with pytest.raises(ValueError, match="milliseconds: expected a number from 0 to a day's"):
        LinkRule(1, delay_ms)


def test_a_delay_is_rounded_to_milliseconds() -> None:
    assert LinkRule(1, 4.7).delay_ms == 5  # type: ignore[arg-type]  # callers' numbers
    assert LinkRule(1, DAY_MS - 0.1).delay_ms == DAY_MS - 1  # type: ignore[arg-type]


@pytest.mark.parametrize("to", [-1, 2**31, True, "2", None, 1.5])
def test_a_node_has_an_id(to: Any) -> None:
    with pytest.raises(ValueError, match="expected ids of nodes"):
        LinkRule(to)


@pytest.mark.parametrize(
    "text",
    ["", "cut", "cut 1 2", "delay 1", "heal 1", "cut -1", "cut ٣", "cut 99999999999", "rm 1"],
)
def test_texts_that_are_no_rules(text: str) -> None:
    with pytest.raises(ValueError, match="not understood"):
        LinkRule.parse(text)


@pytest.mark.parametrize("value", [1, None, {}, {"to": 1}, {"to": 1, "delay_ms": 1, "x": 1}, [[]]])
def test_json_that_is_no_rule(value: Any) -> None:
    with pytest.raises(ValueError, match="not understood"):
        rules_from_json(value)


def test_the_last_of_several_rules_for_a_node_holds() -> None:
    rules = rules_from_json(["cut 2", "cut 3", {"to": 2, "delay_ms": 9}])
    assert rules == [LinkRule(2, 9), LinkRule(3)]
    assert rules_from_json([]) == []
