"""Patterns of transactional ids are taken, refused and matched as by RE2, with which Kafka matches them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kwire.apis.parts.patterns import compile_pattern
from kwire.protocol.errors import ErrorCode, KafkaError

RECORDED = json.loads((Path(__file__).parent.parent / "data" / "re2-patterns.json").read_text())
UNKNOWN = frozenset({r"\pL", r"\PL", r"\p{Greek}"})
"""Classes of Unicode."""


@pytest.mark.parametrize(("pattern", "expected"), list(RECORDED["patterns"].items()))
def test_a_pattern_matches_what_re2_matches(pattern: str, expected: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert expected == "refused" or pattern in UNKNOWN, error
        return
    found = [compiled.fullmatch(subject) is not None for subject in RECORDED["subjects"]]
    assert "".join("01"[each] for each in found) == expected


def test_a_refusal_says_why() -> None:
    with pytest.raises(KafkaError, match=r"invalid escape sequence: `\(a\)\\1`"):
        compile_pattern(r"(a)\1")


def test_flags_hold_behind_a_bar_up_to_the_end_of_their_group() -> None:
    compiled = compile_pattern("(?i)one|two")
    assert compiled.fullmatch("TWO")
    assert not compile_pattern("(?:(?i)one|two)|six").fullmatch("SIX")


def test_a_repeated_repetition_is_refused_as_such() -> None:
    with pytest.raises(KafkaError, match="invalid nested repetition operator"):
        compile_pattern("a**")


@pytest.mark.parametrize("pattern", [r"\w", r"[\w]", "[[:alpha:]]", r"\d"])
def test_classes_hold_letters_and_digits_of_ascii_only(pattern: str) -> None:
    assert compile_pattern(pattern).fullmatch("7" if pattern == r"\d" else "e")
    assert not compile_pattern(pattern).fullmatch("é")
    assert not compile_pattern(pattern).fullmatch("٣")


def test_a_words_boundary_is_one_of_ascii() -> None:
    assert compile_pattern(r"a\bé").fullmatch("aé")
    assert not compile_pattern(r"a\be").fullmatch("ae")
