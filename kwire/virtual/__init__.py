"""Virtual time: an asyncio application and its kwire cluster in one process, replayed by seed (docs/virtual.md).

`virtual.run(main, seed=7)`, `@virtual.test(seeds=100)`, the pytest fixture `world`. Loaded only when asked for; needs
the extra `kwire[virtual]`.

"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("time_machine") is None:
    raise ImportError(
        "virtual time needs time-machine, which is not installed: pip install 'kwire[virtual]'"
    )

from kwire.virtual.errors import (
    DeadlockError,
    RefusedError,
    SpinError,
    TimeLimitError,
    VirtualTimeError,
)
from kwire.virtual.running import run, test
from kwire.virtual.weather.weather import Weather
from kwire.virtual.world import World

__all__ = [
    "DeadlockError",
    "RefusedError",
    "SpinError",
    "TimeLimitError",
    "VirtualTimeError",
    "Weather",
    "World",
    "run",
    "test",
]
