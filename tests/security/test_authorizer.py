"""The authorizer's answers: a table, and against a naive reading of Kafka's rules."""

from __future__ import annotations

from random import Random

import pytest

from kwire.apis.access.authorizer import Authorizer
from kwire.replication.core import acls
from kwire.replication.core.acls import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    Entry,
    Pattern,
)

ALICE, BOB, HOST, OTHER = "User:alice", "User:bob", "10.0.0.1", "10.0.0.2"


def with_rules(*rules: tuple[Pattern, Entry], everyone: bool = False) -> Authorizer:
    found = Authorizer(["User:admin"], allow_if_no_acl_found=everyone)
    patterns = {pattern for pattern, _ in rules}
    for pattern in patterns:
        found.set_entries(pattern, [entry for each, entry in rules if each == pattern])
    return found


def rule(
    operation: int,
    name: str = "orders",
    pattern: int = LITERAL,
    permission: int = ALLOW,
    principal: str = ALICE,
    host: str = "*",
) -> tuple[Pattern, Entry]:
    return Pattern(TOPIC, pattern, name), Entry(principal, host, operation, permission)


@pytest.mark.parametrize(
    ("rules", "operation", "expected"),
    [
        ([], READ, False),
        ([rule(READ)], READ, True),
        ([rule(READ)], WRITE, False),
        ([rule(READ)], DESCRIBE, True),
        ([rule(WRITE)], DESCRIBE, True),
        ([rule(DELETE)], DESCRIBE, True),
        ([rule(ALTER)], DESCRIBE, True),
        ([rule(CREATE)], DESCRIBE, False),
        ([rule(ALTER_CONFIGS)], DESCRIBE, False),
        ([rule(ALTER_CONFIGS)], DESCRIBE_CONFIGS, True),
        ([rule(READ)], DESCRIBE_CONFIGS, False),
        ([rule(ALL)], ALTER_CONFIGS, True),
        ([rule(ALL), rule(READ, permission=DENY)], READ, False),
        ([rule(ALL), rule(READ, permission=DENY)], DESCRIBE, True),
        ([rule(READ), rule(ALL, permission=DENY)], DESCRIBE, False),
        ([rule(READ, "*")], READ, True),
        ([rule(READ, "ord", PREFIXED)], READ, True),
        ([rule(READ, "orders", PREFIXED)], READ, True),
        ([rule(READ, "orders2", PREFIXED)], READ, False),
        ([rule(READ, "ord")], READ, False),
        ([rule(READ), rule(READ, "o", PREFIXED, DENY)], READ, False),
        ([rule(READ), rule(READ, "*", permission=DENY)], READ, False),
        ([rule(READ, principal=BOB)], READ, False),
        ([rule(READ, principal="User:*")], READ, True),
        ([rule(READ, host=HOST)], READ, True),
        ([rule(READ, host=OTHER)], READ, False),
        ([rule(READ), rule(READ, permission=DENY, host=OTHER)], READ, True),
    ],
)
def test_what_is_allowed(
    rules: list[tuple[Pattern, Entry]], operation: int, expected: bool
) -> None:
    assert with_rules(*rules).allows(ALICE, HOST, operation, TOPIC, "orders") is expected


def test_super_users_may_do_everything() -> None:
    found = with_rules(rule(ALL, permission=DENY, principal="User:*"))
    assert found.allows("User:admin", HOST, READ, TOPIC, "orders")
    assert not found.allows(ALICE, HOST, READ, TOPIC, "orders")


def test_what_no_rule_is_about_is_everyones_if_so_configured() -> None:
    found = with_rules(rule(READ, principal=BOB), everyone=True)
    assert found.allows(ALICE, HOST, READ, TOPIC, "others")
    assert not found.allows(ALICE, HOST, READ, TOPIC, "orders")  # there is a rule about it
    assert found.allows(ALICE, HOST, READ, GROUP, "orders")


def test_rules_that_are_taken_away_leave_nothing() -> None:
    found = with_rules(rule(READ, "ord", PREFIXED), rule(READ, "*"), everyone=True)
    for name, pattern in (("ord", PREFIXED), ("*", LITERAL), ("ord", PREFIXED)):
        found.set_entries(Pattern(TOPIC, pattern, name), [])
    assert found.allows(ALICE, HOST, WRITE, TOPIC, "orders")  # no rule is found


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([rule(WRITE)], True),
        ([rule(READ)], False),
        ([rule(WRITE), rule(WRITE, permission=DENY)], False),
        ([rule(WRITE, "ord", PREFIXED), rule(WRITE, permission=DENY)], True),
        ([rule(WRITE), rule(WRITE, "o", PREFIXED, DENY)], False),
        ([rule(WRITE, "ord", PREFIXED), rule(WRITE, "o", PREFIXED, DENY)], False),
        ([rule(WRITE, "*"), rule(WRITE, "o", PREFIXED, DENY)], True),
        ([rule(WRITE, "*"), rule(ALL, "*", LITERAL, DENY, "User:*")], False),
    ],
)
def test_whether_some_topic_may_be_written(
    rules: list[tuple[Pattern, Entry]], expected: bool
) -> None:
    assert with_rules(*rules).allows_some(ALICE, HOST, WRITE, TOPIC) is expected


_IMPLIED = {DESCRIBE: {DESCRIBE, READ, WRITE, DELETE, ALTER}, DESCRIBE_CONFIGS: {10, 11}}


def naive(
    rules: set[tuple[Pattern, Entry]],
    question: tuple[str, str, int, int, str],
    everyone: bool,
) -> bool:
    """Each rule is looked at."""
    principal, host, operation, kind, name = question
    about = [
        entry
        for pattern, entry in rules
        if pattern.resource_type == kind
        and (
            pattern.name in (name, "*")
            if pattern.pattern_type == LITERAL
            else name.startswith(pattern.name)
        )
    ]
    if not about:
        return everyone
    mine = [e for e in about if e.principal in (principal, "User:*") and e.host in (host, "*")]
    if any(e.permission == DENY and e.operation in (ALL, operation) for e in mine):
        return False
    wanted = {ALL, operation} | _IMPLIED.get(operation, set())
    return any(e.permission == ALLOW and e.operation in wanted for e in mine)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_as_reading_every_rule(seed: int) -> None:
    random = Random(seed)
    names = ["a", "ab", "abc", "b", "abd", "*"]
    everyone = random.random() < 0.5
    found = Authorizer(allow_if_no_acl_found=everyone)
    rules: set[tuple[Pattern, Entry]] = set()
    for _ in range(150):
        pattern = Pattern(
            random.choice((TOPIC, GROUP)), random.choice((LITERAL, PREFIXED)), random.choice(names)
        )
        entry = Entry(
            random.choice((ALICE, BOB, "User:*")),
            random.choice(("*", HOST, OTHER)),
            random.choice([*acls.OPERATION_NAMES][2:]),
            random.choice((ALLOW, ALLOW, DENY)),
        )
        rules ^= {(pattern, entry)}
        if random.random() < 0.3:
            rules = {each for each in rules if each[0] != pattern}
        found.set_entries(pattern, [e for p, e in rules if p == pattern])
        for _ in range(20):
            question = (
                random.choice((ALICE, BOB)),
                random.choice((HOST, OTHER)),
                random.choice([*acls.OPERATION_NAMES][3:]),
                random.choice((TOPIC, GROUP)),
                random.choice(names),
            )
            assert found.allows(*question) is naive(rules, question, everyone), question
