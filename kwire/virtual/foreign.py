"""Clients that cannot run in virtual time are refused when they are made, also if they are imported in the run."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader

from kwire.virtual.names import refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from kwire.virtual.names import Names

_OTHER = "cannot run in virtual time: it has threads, sockets and a clock of its own (aiokafka can)"
_BLOCKING = "cannot run in virtual time: it waits in real time, and nothing else runs meanwhile"
_CLIENTS = {
    "confluent_kafka": (f"confluent-kafka {_OTHER}", ("Producer", "Consumer")),
    "confluent_kafka.admin": (f"confluent-kafka {_OTHER}", ("AdminClient",)),
    "kafka": (f"kafka-python {_OTHER}", ("KafkaProducer", "KafkaConsumer", "KafkaAdminClient")),
    "kwire.cluster": (f"kwire.Cluster {_BLOCKING} (world.cluster() makes one)", ("Cluster",)),
    "uvloop": (
        "uvloop has a clock of its own: virtual time has asyncio's own loop only",
        ("run", "new_event_loop"),
    ),
}
_refused: set[str] = set()


class _Loader(Loader):
    """Another loader, and what follows it."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Importer:
    """Refuses a client as soon as it has been imported."""

    def __init__(self, names: Names, is_inside: Callable[[], object]) -> None:
        self.names, self._is_inside = names, is_inside

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if name not in _CLIENTS or name in _refused:
            return None
        _refused.add(name)  # so that the next question is for the others
        spec = importlib.util.find_spec(name)
        _refused.discard(name)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, lambda module: self.refuse(name, module, at_once=True))
        return spec

    def refuse(self, name: str, module: ModuleType, *, at_once: bool = False) -> None:
        if name in _refused:
            return
        _refused.add(name)
        text, members = _CLIENTS[name]
        for member in members:
            old: Any = module.__dict__.get(member)
            if old is not None:
                new = refusing(text, old, self._is_inside)
                self.names.replace(module, member, new)
                if at_once:
                    setattr(module, member, new)


_importer: _Importer | None = None


def refuse(names: Names, is_inside: Callable[[], object]) -> None:
    """Refuse what is imported already, and what will be."""
    global _importer
    if _importer is None:
        _importer = _Importer(names, is_inside)
    for name in _CLIENTS:
        module = sys.modules.get(name)
        if module is not None:
            _importer.refuse(name, module)
    sys.meta_path.insert(0, _importer)


def let_in() -> None:
    """Undo `refuse`."""
    if _importer in sys.meta_path:
        sys.meta_path.remove(_importer)
