"""Reads Java .properties files such as Kafka's server.properties.

The rules are those of java.util.Properties.load: ISO-8859-1; `#` and `!` begin a comment line; a
line that ends in an odd number of backslashes continues on the next one; the key ends at the first
unescaped `=`, `:` or white space; \\t \\n \\r \\f \\uXXXX are escapes and a backslash before anything
else is dropped. Hand-written because existing libraries take 20 ms and more to import.
"""

from __future__ import annotations

_WHITE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Parse keys and values; a later line wins, as in Java.

    ValueError for a \\u without four hexadecimal digits."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        end, value_start = _key_end(line)
        values[_unescape(line[:end])] = _unescape(line[value_start:])
    return values


def load_properties(path: str) -> dict[str, str]:
    """Read keys and values from a file.

    OSError when it cannot be read; ValueError, with its path, when it is not a properties file."""
    with open(path, encoding="iso-8859-1", newline="") as file:
        text = file.read()
    try:
        return parse_properties(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blanks, continuations joined, leading white space stripped."""
    lines: list[str] = []
    pending = ""
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_WHITE)
        if not pending and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    return [*lines, pending] if pending else lines


def _key_end(line: str) -> tuple[int, int]:
    """Index after the key, and index of the value's first character."""
    end = 0
    while end < len(line) and line[end] not in _WHITE + "=:":
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    rest = line[end:].lstrip(_WHITE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITE)
    return end, len(line) - len(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (backslash := text.find("\\", position)) >= 0:
        parts.append(text[position:backslash])
        letter = text[backslash + 1 : backslash + 2]
        position = backslash + 2
        if letter == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError("a \\u escape needs four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(letter, letter))
    parts.append(text[position:])
    # Java escapes a character beyond U+FFFF as two surrogates.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
