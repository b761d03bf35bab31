"""`ssl.principal.mapping.rules`: from the name in a client's certificate to its principal. No I/O.

Answers to org.apache.kafka.common.security.ssl.SslPrincipalMapper, whose grammar and oddities these are: of rules
`RULE:pattern/replacement/[LU]` and DEFAULT the first one counts whose pattern is that of the whole name; a rule may be
empty. The patterns are Python's, which differ from Java's in rarities (\\p{Lu}, intersections of classes).
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Rule = Callable[[str], str | None]
    """The principal of a name; None: the rule is not for it."""

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)|([\\$])", re.DOTALL)
DEFAULT = "DEFAULT"


class NoRuleError(Exception):
    """No rule is for a name, or one names a group that its pattern does not have."""


class Mapping:
    """Parsed rules."""

    __slots__ = ("_rules",)

    def __init__(self, text: str) -> None:
        """ValueError with what is wrong in the rules."""
        found = [each.group(1) for each in _SPLITTER.finditer(text.strip())]
        self._rules = [rule for each in found if (rule := _parsed(each)) is not None]

    def name_of(self, distinguished: str) -> str:
        """The principal's name of a distinguished name (RFC 2253). NoRuleError."""
        for rule in self._rules:
            name = rule(distinguished)
            if name is not None:
                return name
        raise NoRuleError(f"no rule of ssl.principal.mapping.rules is for {distinguished}")


def _parsed(text: str) -> Rule | None:
    """A rule; None: an empty one. ValueError."""
    found = _PARSER.match(text)
    assert found is not None  # it matches nothing, too
    if found.end() != len(text):
        raise ValueError(f"{text!r} is no rule: DEFAULT or RULE:pattern/replacement/[LU]")
    default, pattern, replacement, case = found.groups()
    if default is not None:
        return lambda name: name
    if pattern is None:
        return None
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no pattern that kwire knows: {error}") from None

    def rule(name: str) -> str | None:
        if compiled.fullmatch(name) is None:
            return None
        result = compiled.sub(lambda match: _replaced(replacement, match), name)
        return {"L": result.lower(), "U": result.upper()}.get(case, result)

    return rule


def _replaced(replacement: str, match: re.Match[str]) -> str:
    """What stands for a match: $1 is its group, as long a number as there are groups; more is text. NoRuleError."""
    groups = match.re.groups

    def part(found: re.Match[str]) -> str:
        escaped, number, lone = found.groups()
        if escaped is not None:
            return str(escaped)
        if lone is not None or (not groups and int(number[0])):
            raise NoRuleError(f"ssl.principal.mapping.rules: {replacement!r} is no replacement")
        size = len(number)
        while size > 1 and int(number[:size]) > groups:
            size -= 1
        if int(number[:size]) > groups:
            return f"${number}"
        return (match.group(int(number[:size])) or "") + number[size:]

    return _REFERENCE.sub(part, replacement)
