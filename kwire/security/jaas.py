"""JAAS configurations: a login module and its options, as Kafka's keys have it, and files of sections with several.

Answers to org.apache.kafka.common.security.{JaasConfig,JaasContext}; the files are those of Java's
com.sun.security.auth.login.ConfigFile, without its expansion of properties. No I/O.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z0-9_.$+/\-\x80-\U0010ffff]+)
    |(?P<sign>[=;{}])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class Module:
    """A login module: the last part of its class's name, and its options."""

    __slots__ = ("name", "options")

    def __init__(self, name: str, options: dict[str, str]) -> None:
        self.name = name
        self.options = options

    def users(self) -> dict[str, str]:
        """The passwords of PlainLoginModule's users, by name."""
        found = self.options.items()
        return {key.removeprefix("user_"): it for key, it in found if key.startswith("user_")}

    def to_text(self) -> str:
        """The module as `parse_module` reads it."""
        words = [f'{key}="{_escaped(value)}"' for key, value in self.options.items()]
        return " ".join([self.name, "required", *words]) + ";"


def parse_module(text: str) -> Module:
    """The only module of a property. ValueError, whose text has none of the values."""
    tokens = list(_tokens(text))
    if not tokens:
        raise ValueError("it names no login module")
    modules = list(_modules(iter(tokens)))
    if len(modules) != 1:
        raise ValueError(f"it has {len(modules)} login modules, expected one")
    return modules[0]


def parse_sections(text: str) -> dict[str, list[Module]]:
    """The login modules of each section of a file, by its name. ValueError, whose text has none of the values."""
    tokens = _tokens(text)
    sections: dict[str, list[Module]] = {}
    for kind, name in tokens:
        if kind == "sign" or next(tokens, None) != ("sign", "{"):
            raise ValueError("expected a section, NAME { … };")
        if name in sections:
            raise ValueError(f"it has two sections {name}")
        try:
            sections[name] = list(_modules(tokens, is_section=True))
        except ValueError as error:
            raise ValueError(f"section {name}: {error}") from None
        if next(tokens, None) != ("sign", ";"):
            raise ValueError(f"section {name} does not end with }};")
    return sections


def _modules(tokens: Iterator[tuple[str, str]], *, is_section: bool = False) -> Iterator[Module]:
    for kind, name in tokens:
        if is_section and (kind, name) == ("sign", "}"):
            return
        if kind == "sign":
            raise ValueError(f"expected a login module, not {name!r}")
        flag = next(tokens, ("", ""))[1]
        if flag.lower() not in _FLAGS:
            raise ValueError("after the login module expected a flag, required for example")
        options: dict[str, str] = {}
        for kind, key in tokens:
            if (kind, key) == ("sign", ";"):
                break
            sign, value = next(tokens, ("", "")), next(tokens, ("", ""))
            if kind == "sign" or sign != ("sign", "=") or value[0] not in ("text", "word"):
                raise ValueError("expected KEY=VALUE, with the value in quotation marks")
            options[key] = value[1]
        else:
            raise ValueError("it does not end with a semicolon")
        yield Module(name.rpartition(".")[2], options)
    if is_section:
        raise ValueError("it does not end")


def _escaped(text: str) -> str:
    """A value between quotation marks."""
    for character, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        text = text.replace(character, written)
    return text


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"unexpected text at character {position}")
        position = found.end()
        kind = found.lastgroup or ""
        if kind == "text":
            yield (
                kind,
                re.sub(
                    r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), found[0][1:-1], flags=re.DOTALL
                ),
            )
        elif kind != "space":
            yield kind, found[0]
