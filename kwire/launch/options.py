"""Options as data: the fields of a spec, each with its command-line flag.

A `Spec` is a value: compared by its fields and never changed (`replace` makes another). The fields
are gathered by hand because every start loads this module: a dataclass of this size takes a
millisecond to make.
"""

from __future__ import annotations

from typing import dataclass_transform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, NoReturn, Self

    from kwire.server.link_rules import LinkRule

    Voter = tuple[int, str, int]
    """A controller's id, host and port."""

FLAG, TEXT, NUMBER, RULES, VOTERS, PAIRS = "flag", "text", "number", "rules", "voters", "pairs"
"""Kinds of options: bool; str or None; int or None; tuple[LinkRule]; tuple[Voter]; a mapping of
KEY=VALUE. The last three repeat the option."""
MAX_PORT = 65535
_MAX_PARTITIONS = 10_000
REQUIRED: Any = object()
"""In place of a default."""


class Option:
    """The command-line flag and environment variable of a field."""

    __slots__ = (
        "choices",
        "default",
        "flag",
        "help",
        "ignores_case",
        "kind",
        "least",
        "metavar",
        "most",
        "required",
        "shows_default",
        "up_help",
        "variable",
    )

    def __init__(
        self,
        flag: str = "",
        kind: str = TEXT,
        *,
        default: Any = REQUIRED,
        help: str = "",
        metavar: str | None = None,
        choices: tuple[str, ...] = (),
        least: int | None = None,
        most: int | None = None,
        required: bool = False,
        ignores_case: bool = False,
        shows_default: bool = False,
        up_help: str = "",
        variable: str = "",
    ) -> None:
        """`flag`: of the command line; "": the field has none. `help` "": `kwire node` does not
        show the option. `least`, `most`: of a NUMBER. `choices`: of a TEXT. `required`: the command
        line must have it, whatever the field's default is. `up_help`: the help of `kwire up`, ""
        where it does not have the option. `variable`: of a container's environment."""
        self.flag = flag
        self.kind = kind
        self.default = default
        self.help = help
        self.metavar = metavar
        self.choices = choices
        self.least = least
        self.most = most
        self.required = required
        self.ignores_case = ignores_case
        self.shows_default = shows_default
        self.up_help = up_help
        self.variable = variable

    def words(self, value: Any) -> list[str]:
        """The option with this value as command-line arguments."""
        if self.kind == FLAG:
            return [self.flag]
        if self.kind == RULES:
            texts = [str(rule) for rule in value]
        elif self.kind == VOTERS:
            texts = [_voter_text(voter) for voter in value]
        elif self.kind == PAIRS:
            texts = [f"{key}={text}" for key, text in value.items()]
        else:
            texts = [str(value)]
        return [word for text in texts for word in (self.flag, text)]


def option(*arguments: Any, **more: Any) -> Any:
    """A field of a spec, from the arguments of Option. Any: the field has the type of its value."""
    return Option(*arguments, **more)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Spec:
    """A value with the fields of its class body."""

    fields: ClassVar[dict[str, Option]]
    _defaults: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        cls.fields = {name: each for name, each in vars(cls).items() if isinstance(each, Option)}
        cls._defaults = {
            name: each.default for name, each in cls.fields.items() if each.default is not REQUIRED
        }
        for name in cls.fields:
            delattr(cls, name)

    def __init__(self, **given: Any) -> None:
        vars(self).update({**self._defaults, **given})
        if vars(self).keys() != self.fields.keys():
            wrong = sorted(vars(self).keys() ^ self.fields.keys())
            raise TypeError(f"{type(self).__name__}: unknown or missing: {', '.join(wrong)}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is a value: use replace({name}=…)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        raise TypeError(f"{type(self).__name__} has fields that are mappings")

    def __repr__(self) -> str:
        changed = [f"{name}={value!r}" for name, value in self.changed().items()]
        return f"{type(self).__name__}({', '.join(changed)})"

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{**vars(self), **changes})

    def changed(self) -> dict[str, Any]:
        """The fields whose value is not the default."""
        fields = self.fields
        return {name: it for name, it in vars(self).items() if it != fields[name].default}


def parse_topic(text: str) -> tuple[str, int, int]:
    """Parse NAME[:PARTITIONS[:REPLICATION]]; -1 where a number is left out. ValueError with a
    one-line text."""
    name, *numbers = text.split(":")
    counts = [int(number) for number in numbers if number.isascii() and number.isdigit()]
    if not name or len(numbers) > 2 or len(counts) < len(numbers) or 0 in counts:
        raise ValueError(f"expected NAME[:PARTITIONS[:REPLICATION]], not {text!r}")
    if counts and counts[0] > _MAX_PARTITIONS:
        raise ValueError(f"{text!r}: at most {_MAX_PARTITIONS} partitions")
    partitions, replication = [*counts, -1, -1][:2]
    return name, partitions, replication


def parse_rule(text: str) -> LinkRule:
    """Parse "cut NODE" or "delay NODE MILLISECONDS". ValueError with a one-line text."""
    from kwire.server.link_rules import LinkRule

    return LinkRule.parse(text)


def parse_voter(text: str) -> Voter:
    """Parse ID@HOST:PORT. ValueError with a one-line text."""
    node_id, at, address = text.partition("@")
    host, colon, port = address.rpartition(":")
    numbers = [item for item in (node_id, port) if item.isascii() and item.isdigit()]
    if not (at and colon and host) or len(numbers) < 2 or int(port) > 65535:
        raise ValueError(f"expected ID@HOST:PORT, not {text!r}")
    return int(node_id), host.strip("[]"), int(port)


def _voter_text(voter: Voter) -> str:
    """Format a voter as ID@HOST:PORT."""
    node_id, host, port = voter
    return f"{node_id}@{f'[{host}]' if ':' in host else host}:{port}"
