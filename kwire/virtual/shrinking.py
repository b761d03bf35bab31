"""Finds what a failure of a seed needs: leaves out weather and hosts as long as it stays the same failure."""

from __future__ import annotations

import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.virtual.running import Outcome

_TRIES = 200


def shrink(first: Outcome, attempt: Callable[[tuple[str, ...]], Outcome]) -> tuple[Outcome, str]:
    """The smallest failing run that was found, and in words what is left of the first."""
    wanted = _kind(first)
    best, tries = first, 0
    left_out = list(first.without)

    def try_without(names: list[str]) -> bool:
        nonlocal best, tries
        if tries >= _TRIES:
            return False
        tries += 1
        found = attempt((*left_out, *names))
        if found.error is None or _kind(found) != wanted:
            return False
        left_out.extend(names)
        best = found
        return True

    size = max(len(first.weather), 1)
    while size and best.weather:
        remaining = list(best.weather)
        chunks = [remaining[n : n + size] for n in range(0, len(remaining), size)]
        removed = [chunk for chunk in reversed(chunks) if try_without(chunk)]
        if size == 1 and not removed:
            break
        size = max(size // 2, 1) if size > 1 or removed else 0
    for host in list(best.hosts):
        try_without([host])
    weather = ", ".join(best.weather) or "no weather"
    hosts = ", ".join(host for host in best.hosts if host not in left_out) or "none"
    return best, (
        f"\nshrunk in {tries} runs, from {len(first.weather)} events of the weather to {len(best.weather)}"
        f" ({weather}); hosts: {hosts}"
    )


def _kind(outcome: Outcome) -> tuple[str, str]:
    """What makes two failures the same: the error, and the line of the application's test that it left."""
    error = outcome.error
    assert error is not None
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        each for each in frames if "/kwire/" not in each.filename and "asyncio" not in each.filename
    ]
    where = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
    return type(error).__name__, where
