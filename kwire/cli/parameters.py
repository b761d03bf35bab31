"""Command-line options of specs (`kwire up`, `kwire node`), and how their values are parsed."""

from __future__ import annotations

import click

from kwire.cli.common import key_value
from kwire.launch.options import (
    FLAG,
    NUMBER,
    PAIRS,
    RULES,
    VOTERS,
    parse_rule,
    parse_topic,
    parse_voter,
)
from kwire.launch.spec import ClusterSpec, NodeSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.launch.options import Option, Voter
    from kwire.server.link_rules import LinkRule

    Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def parse_host(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> str | None:
    """A host without a port."""
    if text is None:
        return None
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not host or host.count(":") == 1 or any(letter in host for letter in "[]/, "):
        raise click.BadParameter(
            f"expected a host, not {text!r}; another port than the one that is bound:"
            " -c advertised.listeners=PLAINTEXT://HOST:PORT"
        )
    return host


def parse_topics(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> list[tuple[str, int, int]]:
    """Each NAME[:PARTITIONS[:REPLICATION]]."""
    try:
        return [parse_topic(item) for item in items]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def parse_user(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> dict[str, str]:
    """Each NAME:SECRET."""
    if not items:
        return {}
    from kwire.security.options import parse_users

    try:
        return parse_users(items)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _voters(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> tuple[Voter, ...]:
    """Each ID@HOST:PORT, several with commas between."""
    try:
        return tuple(parse_voter(text.strip()) for item in items for text in item.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _rules(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> tuple[LinkRule, ...]:
    """Each "cut NODE" or "delay NODE MILLISECONDS"."""
    try:
        return tuple(map(parse_rule, items))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_CALLBACKS: dict[str, Callable[..., Any]] = {PAIRS: key_value, RULES: _rules, VOTERS: _voters}
"""How the values of an option are parsed that may be repeated."""


def _option(name: str, field: Option, help: str) -> Decorator:
    """The option of a spec's field."""
    more: dict[str, Any] = {
        "metavar": field.metavar,
        "required": field.required,
        "help": help,
        "hidden": not help,
        "show_default": field.shows_default,
    }
    if field.kind == FLAG:
        return click.option(field.flag, name, is_flag=True, **more)
    if field.kind in _CALLBACKS:
        callback = _CALLBACKS[field.kind]
        return click.option(field.flag, name, multiple=True, callback=callback, **more)
    if isinstance(field.default, str | int) and not field.required:
        more["default"] = field.default
    if field.kind == NUMBER:
        more["type"] = click.IntRange(field.least, field.most)
    elif field.choices:
        more["type"] = click.Choice(field.choices, case_sensitive=not field.ignores_case)
    return click.option(field.flag, name, **more)


def spec_options(
    spec: type[NodeSpec | ClusterSpec],
    first: str = "",
    until: str = "",
    *,
    of_up: bool = False,
) -> Decorator:
    """The options of a spec's fields, in their order: those from `first` to before `until`. "":
    all."""
    names = list(spec.fields)
    between = names[names.index(first) if first else 0 : names.index(until) if until else None]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for name in reversed(between):
            field = spec.fields[name]
            if not of_up and field.flag:
                function = _option(name, field, field.help)(function)
            elif field.up_help:
                function = _option(name, field, field.up_help)(function)
        return function

    return decorate
