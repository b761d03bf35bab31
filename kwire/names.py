"""Names that may have been meant in place of one that is not known."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_CHARACTERS = 100


def nearest(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known name that is most like `name`, in whatever case; None: none is like it.

    `least`: how like, from 0 to 1, as difflib measures it."""
    from difflib import get_close_matches

    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name[:_MOST_CHARACTERS].lower(), by_lower, 1, least)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], least: float = 0.6) -> str:
    """The end of a sentence about an unknown name: "; did you mean orders?", or nothing."""
    meant = nearest(name, known, least)
    return "" if meant is None else f"; did you mean {meant}?"
