"""Parses the usual command lines of `kwire up` without click, whose import is a tenth of a start.

Whatever is unusual or wrong is left to click (`up.py`), which has the help and the messages. A test
compares the two.
"""

from __future__ import annotations

import os

from kwire.launch.options import FLAG, MAX_PORT, NUMBER, TEXT, parse_topic
from kwire.launch.spec import ClusterSpec, NodeSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.launch.options import Option

_COMPLETION_VARIABLE = "_KWIRE_COMPLETE"
_TEXTS = {"--data-dir": "data_dir", "--ready-file": "ready_file"}
_PORTS = {"--port": "port", "--control-port": "control_port"}
_ONLY_BY_CLICK = (
    "host",
    "advertise",
    "control_host",
    "first_id",
    "config_path",
    "sasl",
    "tls",
    "snapshot",
)


def quickly_parsed(arguments: list[str]) -> dict[str, Any] | None:
    """The options of `kwire up` as click would give them; None: let click parse them."""
    if _COMPLETION_VARIABLE in os.environ:
        return None
    fields = [
        (name, field)
        for spec in (ClusterSpec, NodeSpec)
        for name, field in spec.fields.items()
        if field.up_help
    ]
    options: dict[str, Any] = {"topics": [], "overrides": {}, "racks": (), "users": {}}
    options |= {"acl": False, "super_users": (), "open_page": False}
    options.update(dict.fromkeys((*_TEXTS.values(), *_PORTS.values(), *_ONLY_BY_CLICK)))
    options.update({name: field.default for name, field in fields})
    by_flag = {field.flag: (name, field) for name, field in fields}
    waiting = arguments[::-1]
    try:
        while waiting:
            _take(waiting, options, by_flag)
    except (IndexError, KeyError, ValueError):
        return None
    return options


def _take(
    waiting: list[str], options: dict[str, Any], by_flag: dict[str, tuple[str, Option]]
) -> None:
    """Parse the next option. An exception of the three kinds above leaves all of them to click."""
    flag, equals, value = waiting.pop().partition("=")
    if flag in by_flag and by_flag[flag][1].kind == FLAG and not equals:
        options[by_flag.pop(flag)[0]] = True
        return
    if not equals:
        value = waiting.pop()
    if not value or value.startswith("-") or (equals and not flag.startswith("--")):
        raise ValueError
    if flag == "--topic":
        options["topics"].append(parse_topic(value))
    elif flag == "-c":
        key, separator, setting = value.partition("=")
        if not separator or not key.strip():
            raise ValueError
        options["overrides"][key.strip()] = setting
    elif flag in _TEXTS:
        options[_TEXTS[flag]] = value
    elif flag in _PORTS:
        options[_PORTS[flag]] = _number(value, 0, MAX_PORT)
    else:
        name, field = by_flag.pop(flag)  # not twice
        options[name] = _value(field, value)


def _value(field: Option, text: str) -> str | int:
    """The value of a field's option. ValueError."""
    if field.kind == NUMBER:
        return _number(text, field.least, field.most)
    if field.kind != TEXT or (field.choices and text not in field.choices):
        raise ValueError
    return text


def _number(text: str, least: int | None, most: int | None) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError
    number = int(text)
    if number < (least or 0) or (most is not None and number > most):
        raise ValueError
    return number
