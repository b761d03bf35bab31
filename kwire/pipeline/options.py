"""The options of `kwire-log`, checked: a name or value without effect is refused, with the nearest name."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, NamedTuple

from kwire.errors import ConfigurationError
from kwire.pipeline.batches import MAX_OFFSET
from kwire.pipeline.layout import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMES: Final = (
    *("path", "topic", "partition", "startingOffset", "endingOffset", "startingTimestamp"),
    *("upTo", "verify", "mode", "include", "splitBytes", "rowsPerBatch", "bootstrap", "replica"),
)


class Options(NamedTuple):
    paths: tuple[str, ...]
    topics: tuple[str, ...] = ()
    """Names or patterns; none: all topics but internal ones."""
    partitions: frozenset[int] = frozenset()
    starting_offset: int = 0
    ending_offset: int = MAX_OFFSET
    """Exclusive."""
    starting_timestamp: int | None = None
    """In ms: rows begin at each partition's first record that is at least as young."""
    up_to_high_watermark: bool = False
    verify: bool = False
    mode: str = "records"
    """What a row is: of `records`, `batches` or `damage`."""
    include: frozenset[str] = frozenset()
    split_bytes: int = 128 << 20
    rows_per_batch: int = 50_000
    bootstrap: tuple[str, ...] = ()
    """HOST:PORT of brokers to fetch from, instead of paths."""
    replica: int | None = None
    """The broker to fetch from; None: each partition's leader."""


def parse(given: Mapping[str, str]) -> Options:
    """The options as Spark gives them: texts, names in any case. ConfigurationError for anything that is not so."""
    known = {name.lower(): name for name in NAMES}
    texts: dict[str, str] = {}
    for name, text in given.items():
        proper = known.get(name.lower())
        if proper is None:
            nearest = get_close_matches(name.lower(), known, 1)
            hint = f": {known[nearest[0]]}?" if nearest else f"; there are {', '.join(NAMES)}"
            raise _wrong(f"there is no option {name}{hint}")
        texts[proper] = text
    paths = words("path", texts.pop("path", ""))
    _check_transport(paths, texts)
    fields: dict[str, object] = {}
    for name, text in texts.items():
        field, parser = _PARSERS[name]
        fields[field] = parser(name, text)
    options = Options(paths, **fields)  # type: ignore[arg-type]
    if options.starting_timestamp is not None and "startingOffset" in texts:
        raise _wrong("startingOffset and startingTimestamp exclude each other")
    if options.starting_timestamp is not None and options.mode != "records":
        raise _wrong("startingTimestamp is for records: batches and damage have no such begin")
    if options.starting_offset > options.ending_offset:
        raise _wrong(
            f"startingOffset {options.starting_offset} is above endingOffset {options.ending_offset}"
        )
    return options


def _check_transport(paths: tuple[str, ...], texts: dict[str, str]) -> None:
    if "bootstrap" in texts:
        if paths:
            raise _wrong("path and bootstrap exclude each other")
        if "include" in texts:
            raise _wrong("include is for log directories: a broker shows none of these files")
        if texts.get("upTo", "").lower() == "end":
            raise _wrong("upTo=end is for log directories: Fetch ends at the high watermark")
        return
    if "replica" in texts:
        raise _wrong("replica needs bootstrap=HOST:PORT")
    if not paths:
        raise _wrong(
            "option path is missing: log directories, or patterns of them, separated by commas;"
            " or bootstrap=HOST:PORT"
        )


def _wrong(message: str) -> ConfigurationError:
    return ConfigurationError(f"kwire-log: {message}")


def words(name: str, text: str, source: str = "kwire-log") -> tuple[str, ...]:
    """Words separated by commas, or a JSON list of them."""
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(word, str | int) for word in found):
            raise ConfigurationError(
                f"{source}: {name}={text}: expected words separated by commas, or a JSON list of them"
            )
        return tuple(str(word) for word in found)
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _topics(name: str, text: str) -> tuple[str, ...]:
    return words(name, text)


def _partitions(name: str, text: str) -> frozenset[int]:
    return frozenset(_number(name, word) for word in words(name, text))


def _number(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise _wrong(f"{name}={text}: expected a whole number, 0 or more")
    return int(text)


def _addresses(name: str, text: str) -> tuple[str, ...]:
    from kwire.client.connection import parse_address

    found = words(name, text)
    for word in found:
        try:
            parse_address(word)
        except ValueError as error:
            raise _wrong(f"{name}: {error}") from None
    if not found:
        raise _wrong(f"{name} is empty: expected HOST:PORT of a broker")
    return found


def _positive(name: str, text: str) -> int:
    number = _number(name, text)
    if not number:
        raise _wrong(f"{name}={text}: expected a whole number, 1 or more")
    return number


def _timestamp(name: str, text: str) -> int:
    if text.strip().isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _wrong(
            f"{name}={text}: expected milliseconds since 1970, or a time like 2026-11-22T10:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _one_of(**values: object) -> Callable[[str, str], object]:
    def parse_word(name: str, text: str) -> object:
        word = text.strip().lower()
        if word not in values:
            raise _wrong(f"{name}={text}: expected {' or '.join(values)}")
        return values[word]

    return parse_word


def _up_to(name: str, text: str) -> bool:
    if text.lower() not in ("highwatermark", "end"):
        raise _wrong(f"{name}={text}: expected highWatermark or end")
    return text.lower() == "highwatermark"


def _include(name: str, text: str) -> frozenset[str]:
    kinds = frozenset(word.lower() for word in words(name, text))
    if not kinds <= set(KINDS):
        raise _wrong(f"{name}={text}: expected words of {', '.join(KINDS)}")
    return kinds


_PARSERS: Final[dict[str, tuple[str, Callable[[str, str], object]]]] = {
    "topic": ("topics", _topics),
    "partition": ("partitions", _partitions),
    "startingOffset": ("starting_offset", _number),
    "endingOffset": ("ending_offset", _number),
    "startingTimestamp": ("starting_timestamp", _timestamp),
    "upTo": ("up_to_high_watermark", _up_to),
    "verify": ("verify", _one_of(crc=True, none=False)),
    "mode": ("mode", _one_of(records="records", batches="batches", damage="damage")),
    "include": ("include", _include),
    "bootstrap": ("bootstrap", _addresses),
    "replica": ("replica", _number),
    "splitBytes": ("split_bytes", _positive),
    "rowsPerBatch": ("rows_per_batch", _positive),
}
