"""Replaces functions in the whole process while a world runs, also where a module has imported them by name.

`from time import monotonic` binds the function in the importing module: replacing it in `time` does not reach that.
Each module outside of the standard library is looked through once, when it is first seen.
"""

from __future__ import annotations

import sys

from kwire.virtual.errors import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_OWN = ("kwire.virtual", "_pytest", "pytest", "time_machine", "xdist", "pluggy")
"""Modules that are left alone: they measure real time."""


class Names:
    """The places where some functions are bound, and what stands there while a world runs."""

    def __init__(self) -> None:
        self._new: dict[int, tuple[object, Any]] = {}  # by the id of the old one
        self._looked_at: dict[str, int] = {}  # module → id of the module object
        self._places: list[tuple[dict[str, Any], str, object, Any]] = []
        self._at: list[tuple[Any, str, object, Any]] = []

    def replace(self, owner: Any, name: str, new: Any, *, everywhere: bool = True) -> None:
        """Let `owner.name` be `new` while a world runs; `everywhere`: and wherever it has been imported by name."""
        old = owner.__dict__.get(name, _ABSENT)
        self._at.append((owner, name, old, new))
        if everywhere and old is not _ABSENT:
            self._new[id(old)] = old, new
            self._looked_at.clear()
            self._places.clear()

    def put(self) -> None:
        """Put the new ones in place."""
        self._look()
        for owner, name, _, new in self._at:
            setattr(owner, name, new)
        for place, name, _, new in self._places:
            place[name] = new

    def take_back(self) -> None:
        """Put the old ones back."""
        for owner, name, old, _ in self._at:
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        for place, name, old, new in self._places:
            if place.get(name) is new:
                place[name] = old

    def _look(self) -> None:
        looked_at, new = self._looked_at, self._new
        for name, module in list(sys.modules.items()):
            if looked_at.get(name) != id(module):
                looked_at[name] = id(module)
                if not _is_left_alone(name):
                    self._look_through(module, new)

    def _look_through(self, module: ModuleType, new: dict[int, tuple[object, Any]]) -> None:
        place = getattr(module, "__dict__", None)
        if not isinstance(place, dict):
            return
        for name, value in list(place.items()):
            found = new.get(id(value))
            if found is not None and found[0] is value:
                self._places.append((place, name, value, found[1]))


_ABSENT = object()


def _is_left_alone(module: str) -> bool:
    root = module.partition(".")[0]
    return root in sys.stdlib_module_names or module.startswith(_OWN)


def refusing(text: str, old: Any, is_inside: Callable[[], object]) -> Callable[..., Any]:
    """A function that raises RefusedError while a world runs, and is the old one else."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        if is_inside():
            raise RefusedError(text)
        return old(*arguments, **options)

    return refuse
