"""LinkRule: a cut or a delay of the link from one node to another, for tests.

Used everywhere from `Cluster.network` down to a node's connections (`peers.py`); all bounds are
checked here. As JSON a rule is `{"to": 2, "delay_ms": 50}` (null: a cut), as text, for command lines,
"delay 2 50" or "cut 2". Links between clients and brokers have no rules.
"""

from __future__ import annotations

from kwire.protocol.varint import INT32_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

_DAY_MS = 86_400_000


class LinkRule:
    """A cut (`delay_ms` None), or a delay of the requests to node `to` and of their answers.

    A value: two with the same fields are equal. ValueError for fields out of bounds."""

    __slots__ = ("delay_ms", "to")

    def __init__(self, to: int, delay_ms: int | None = None) -> None:
        self.to = checked_node_id(to)
        self.delay_ms = None if delay_ms is None else checked_delay_ms(delay_ms)

    def with_to(self, to: int) -> LinkRule:
        """A copy for another receiver."""
        return LinkRule(to, self.delay_ms)

    def to_json(self) -> dict[str, int | None]:
        return {"to": self.to, "delay_ms": self.delay_ms}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Parse a rule from the value of `to_json`, or from its text. ValueError."""
        if isinstance(value, str):
            return cls.parse(value)
        if not isinstance(value, dict) or value.keys() != {"to", "delay_ms"}:
            raise ValueError(f"not understood: {value!r}")
        return cls(value["to"], value["delay_ms"])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a rule from its text, "cut NODE" or "delay NODE MILLISECONDS". ValueError."""
        word, *numbers = text.split() or [""]
        if {"cut": 1, "delay": 2}.get(word) != len(numbers) or not all(
            number.isascii() and number.isdigit() and len(number) < 11 for number in numbers
        ):
            raise ValueError(f"not understood: {text!r}")
        return cls(*map(int, numbers))

    def __str__(self) -> str:
        return f"cut {self.to}" if self.delay_ms is None else f"delay {self.to} {self.delay_ms}"

    def __repr__(self) -> str:
        return f"LinkRule({self.to}, {self.delay_ms})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinkRule):
            return NotImplemented
        return (self.to, self.delay_ms) == (other.to, other.delay_ms)

    def __hash__(self) -> int:
        return hash((self.to, self.delay_ms))


def checked_delay_ms(value: Any) -> int:
    """Check and round a delay: 0 ms to one day. ValueError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _DAY_MS:
        raise ValueError(f"milliseconds: expected a number from 0 to a day's, not {value!r}")
    return min(round(value), _DAY_MS - 1)


def checked_node_id(value: Any) -> int:
    """Check a node id. ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT32_MAX:
        raise ValueError(f"expected ids of nodes, not {value!r}")
    return value


def rules_from_json(values: object) -> list[LinkRule]:
    """Parse rules from a JSON list; of several for the same node the last one wins. ValueError."""
    given = values if isinstance(values, list) else [values]
    rules = map(LinkRule.from_json, given)
    return list({rule.to: rule for rule in rules}.values())
