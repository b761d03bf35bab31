"""Patterns of transactional ids in RE2's syntax, as Kafka takes them from 4.1 on (ListTransactions v2, KIP-1152).

Answers to com.google.re2j.Pattern. A pattern is translated to one of Python's, for whole ids; what RE2 refuses is
refused, above all back-references and looks around. Not known are classes of Unicode (`\\pL`, `\\p{Greek}`), which
are refused, too; and what RE2 reads in linear time can take Python longer.
"""

from __future__ import annotations

import re
from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    Ranges = list[tuple[int, int]]
    """Code points, from and to."""

_MAX_REPEAT: Final = 1000
_LAST: Final = 0x10FFFF
_CONTROLS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_OUTSIDE: Final = {
    "A": r"\A",
    "B": r"(?a:\B)",
    "b": r"(?a:\b)",
    "z": r"\Z",
}
_CLASSES: Final = {  # pairs of the first and the last character of a range
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "ascii": "\0\x7f",
    "blank": "\t\t  ",
    "cntrl": "\0\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\r  ",
    "upper": "AZ",
    "word": "09AZaz__",
    "xdigit": "09AFaf",
    # Perl's
    "d": "09",
    "s": "\t\n\f\r  ",
    "w": "09AZaz__",
}
_REPEAT = re.compile(r"\{(0|[1-9][0-9]*)(?:(,)(0|[1-9][0-9]*|))?\}")
_NAMED = re.compile(r"\(\?P?<(\w+)>", re.ASCII)
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_CLASS_NAME = re.compile(r"\[:(\^?)(\w+):\]", re.ASCII)
_NUMBER = re.compile(r"\\(?:(0[0-7]{0,2}|[1-7][0-7]{1,2})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\})")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern for `fullmatch`. KafkaError(INVALID_REGULAR_EXPRESSION) with the reason."""
    translation = _Translation(pattern)
    try:
        return re.compile(translation.run())
    except (re.error, RecursionError, OverflowError) as error:
        raise translation.refusal(str(error)) from None


def _class(name: str, *, is_negated: bool) -> Ranges:
    ends = [ord(char) for char in _CLASSES[name]]
    ranges = list(zip(ends[::2], ends[1::2], strict=True))
    return _others(ranges) if is_negated else ranges


def _others(ranges: Ranges) -> Ranges:
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    if start <= _LAST:
        found.append((start, _LAST))
    return found


def _in_python(ranges: Ranges, *, is_negated: bool = False) -> str:
    """A class in brackets; negated there, so that (?i) applies before."""
    text = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return f"[{'^' if is_negated else ''}{text}]"


class _Translation:
    """One pattern on its way."""

    __slots__ = (
        "_at",
        "_atom",
        "_groups",
        "_is_multiline",
        "_names",
        "_opened",
        "_out",
        "_pattern",
    )

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []
        self._atom: int | None = None  # where in `_out` what may be repeated begins
        self._is_multiline = False
        self._opened: list[str] = []  # flags that hold up to the end of this group
        self._groups: list[tuple[int, bool, list[str]]] = []
        """Of each open group: where it begins in `_out`, and the two above as they are outside it."""
        self._names: set[str] = set()

    def refusal(self, reason: str) -> KafkaError:
        text = f"error parsing regexp: {reason}: `{self._pattern[:100]}`"
        return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text)

    def run(self) -> str:
        """The pattern in Python's syntax."""
        pattern = self._pattern
        while self._at < len(pattern):
            char = pattern[self._at]
            if char == "(":
                self._begin()
            elif char == ")":
                self._end()
            elif char == "|":
                # Flags hold for what follows the bar, too.
                self._put(")" * len(self._opened) + "|" + "".join(self._opened), 1)
            elif char in "*+?" or (char == "{" and _REPEAT.match(pattern, self._at)):
                self._repeat()
            else:
                self._atom = len(self._out)
                self._out.append(self._one(char))
        if self._groups:
            raise self.refusal("missing closing )")
        return "".join(self._out) + ")" * len(self._opened)

    def _put(self, text: str, taken: int) -> None:
        """Add what cannot be repeated."""
        self._out.append(text)
        self._at += taken
        self._atom = None

    # --- groups

    def _begin(self) -> None:
        pattern, at = self._pattern, self._at
        if not pattern.startswith("(?", at):
            self._begin_group("(?:", 1)
        elif (named := _NAMED.match(pattern, at)) is not None:
            if named[1] in self._names:
                raise self.refusal("duplicate capture group name")
            self._names.add(named[1])
            self._begin_group("(?:", len(named[0]))
        elif (flags := _FLAGS.match(pattern, at)) is not None:
            self._flags(flags)
        else:
            raise self.refusal("invalid or unsupported Perl syntax")

    def _flags(self, flags: re.Match[str]) -> None:
        """Flags of a group of their own, or up to the end of the one that is open. U changes no full match."""
        off = set(flags[2] or "") - {"U"}
        on = set(flags[1]) - {"U"} - off
        without = "-" + "".join(sorted(off)) if off else ""
        text = f"(?{''.join(sorted(on))}{without}:"
        outside = self._is_multiline
        if flags[3] == ":":
            self._begin_group(text, len(flags[0]))
        else:
            self._opened.append(text)
            self._put(text, len(flags[0]))
        self._is_multiline = "m" in on or (outside and "m" not in off)

    def _begin_group(self, text: str, taken: int) -> None:
        self._groups.append((len(self._out), self._is_multiline, self._opened))
        self._opened = []
        self._put(text, taken)

    def _end(self) -> None:
        if not self._groups:
            raise self.refusal("unexpected )")
        self._put(")" * (len(self._opened) + 1), 1)
        self._atom, self._is_multiline, self._opened = self._groups.pop()

    # --- repetition

    def _repeat(self) -> None:
        pattern, start = self._pattern, self._at
        if self._atom is None:
            raise self.refusal("missing argument to repetition operator")
        text, counts = pattern[start], _REPEAT.match(pattern, start)
        if counts is not None:
            text = counts[0]
            least = int(counts[1])
            most = int(counts[3]) if counts[3] else least
            if not least <= most <= _MAX_REPEAT:
                raise self.refusal("invalid repeat count")
        self._at += len(text)
        if pattern.startswith("?", self._at):  # lazy: the same to a full match
            self._at += 1
        follows = pattern[self._at : self._at + 1]
        if (follows and follows in "*+?") or _REPEAT.match(pattern, self._at):
            raise self.refusal("invalid nested repetition operator")
        self._out.insert(self._atom, "(?:")
        self._put(f"){text}", 0)

    # --- what one character may be

    def _one(self, char: str) -> str:
        if char == "\\":
            letter = self._pattern[self._at + 1 : self._at + 2]
            if letter in _OUTSIDE:
                self._at += 2
                return _OUTSIDE[letter]
            if letter == "Q":
                return self._quoted()
            return _in_python(self._escape())
        if char == "[":
            return self._brackets()
        self._at += 1
        if char == "$":
            return "$" if self._is_multiline else r"\Z"
        return char if char in "^." else re.escape(char)

    def _quoted(self) -> str:
        """The text between \\Q and \\E; what follows repeats its last character."""
        quoted, _, _ = self._pattern[self._at + 2 :].partition(r"\E")
        self._at += len(quoted) + 4
        if quoted:
            self._out.append(re.escape(quoted[:-1]))
            self._atom = len(self._out)
        return re.escape(quoted[-1:])

    def _escape(self) -> Ranges:
        """What a backslash and the character behind it stand for, in brackets and outside."""
        char = self._pattern[self._at + 1 : self._at + 2]
        number = _NUMBER.match(self._pattern, self._at)
        if number is not None:
            self._at = number.end()
            octal, two, braced = number.groups()
            code = int(octal, 8) if octal else int(two or braced, 16)
            if code > _LAST:
                raise self.refusal("invalid escape sequence")
            return [(code, code)]
        self._at += 2
        if not char:
            raise self.refusal("trailing backslash at end of expression")
        if char in "dswDSW":
            return _class(char.lower(), is_negated=char.isupper())
        if char in _CONTROLS:
            return [(_CONTROLS[char],) * 2]
        if char.isascii() and char.isalnum():
            raise self.refusal("invalid escape sequence")
        return [(ord(char), ord(char))]

    def _brackets(self) -> str:
        """A class in brackets."""
        pattern = self._pattern
        self._at += 1
        is_negated = pattern.startswith("^", self._at)
        self._at += is_negated
        ranges: Ranges = []
        while not ranges or not pattern.startswith("]", self._at):
            named = _CLASS_NAME.match(pattern, self._at)
            if named is None:
                ranges += self._range()
            elif named[2] in _CLASSES and len(named[2]) > 1:
                self._at = named.end()
                ranges += _class(named[2], is_negated=bool(named[1]))
            else:
                raise self.refusal("invalid character class range")
        self._at += 1
        return _in_python(ranges, is_negated=is_negated)

    def _range(self) -> Ranges:
        """The next character in brackets, or class, or range."""
        pattern = self._pattern
        first = self._member()
        follows = pattern[self._at : self._at + 2]
        if first[0][0] != first[-1][1] or follows[:1] != "-" or follows[1:] in ("", "]"):
            return first
        self._at += 1
        last = self._member()
        if last[0][0] != last[-1][1] or last < first:
            raise self.refusal("invalid character class range")
        return [(first[0][0], last[0][0])]

    def _member(self) -> Ranges:
        if self._at >= len(self._pattern):
            raise self.refusal("missing closing ]")
        char = self._pattern[self._at]
        if char == "\\":
            return self._escape()
        self._at += 1
        return [(ord(char), ord(char))]
