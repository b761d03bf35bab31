"""Amounts of time, as people give them: "8d", "1h30m", days=8, a timedelta."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta

MAX_MS = 36_525 * 86_400_000
"""A hundred years: beyond, times do not fit into what clients make of them."""
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")


def total_ms(
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    milliseconds: float = 0,
) -> int:
    """The sum in milliseconds. ValueError: it is negative, or too much."""
    values = (days, hours, minutes, seconds, milliseconds)
    try:
        found = round(
            sum(each * unit for each, unit in zip(values, _UNITS_MS.values(), strict=True))
        )
    except (OverflowError, ValueError):  # infinite, not a number
        found = -1
    if not 0 <= found <= MAX_MS:
        raise ValueError("the clock can be advanced by 0 to 36525 days, not back")
    return found


def milliseconds_of(delay: timedelta) -> int:
    """ValueError."""
    return total_ms(milliseconds=delay.total_seconds() * 1000)


def parse(text: str) -> int:
    """Milliseconds of "8d", "1h30m", "45s", "250ms". ValueError."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(
            f"expected an amount of time such as 8d, 1h30m, 45s or 250ms, not {text[:100]!r}"
        )
    return total_ms(milliseconds=sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def in_words(milliseconds: int) -> str:
    """An amount without its sign, as `parse` takes it: "8d", "1h30m"."""
    text, left = "", abs(milliseconds)
    for unit, size in _UNITS_MS.items():
        count, left = divmod(left, size)
        if count:
            text += f"{count}{unit}"
    return text or "0ms"


def beside_real_time(offset_ms: int) -> str:
    """How far a clock is off: "8d ahead of real time"; a frozen one may be behind it."""
    return f"{in_words(offset_ms)} {'ahead of' if offset_ms >= 0 else 'behind'} real time"
