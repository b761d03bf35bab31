"""Stand-ins for `ssl` and `inspect`: asyncio and uvloop import both, for what a node never does.

They are a tenth of a start. asyncio does without ssl where Python has none; uvloop keeps the names below
while it is imported. Whatever else is wanted of a stand-in comes from the real module, and whoever
imports the two later has the real ones. TLS by this process's event loop does not work: kwire has its own (server/tls).
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import GeneratorType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_CO_COROUTINE = 0x80


class _Placeholder(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # importlib looks for a spec
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(__import__(self.__name__), name)


class _TlsError(OSError):
    """Never raised, as the event loop does not speak TLS."""


def _is_generator(value: object) -> bool:
    return isinstance(value, GeneratorType)


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)  # a method has that of its function
    if code is None:
        import inspect

        return inspect.iscoroutinefunction(function)
    return bool(code.co_flags & _CO_COROUTINE)


_ERRORS = (
    "CertificateError",
    "SSLError",
    "SSLSyscallError",
    "SSLWantReadError",
    "SSLZeroReturnError",
)
_KNOWN: dict[str, dict[str, Any]] = {
    "inspect": {"isgenerator": _is_generator, "iscoroutinefunction": _is_coroutine_function},
    "ssl": {
        **dict.fromkeys(_ERRORS, _TlsError),
        "MemoryBIO": None,
        "SSLContext": type("SSLContext", (), {}),
        "SSL_ERROR_SYSCALL": 5,
        "SSL_ERROR_WANT_READ": 2,
        "SSL_ERROR_WANT_WRITE": 3,
        "create_default_context": None,
    },
}


def import_event_loop() -> None:
    """Import asyncio, and uvloop where there is one, without ssl and inspect."""
    placed = []
    for name, known in _KNOWN.items():
        if name not in sys.modules:
            sys.modules[name] = placeholder = _Placeholder(name)
            placeholder.__dict__.update(known)
            placed.append(placeholder)
    with suppress(ImportError):
        import uvloop  # noqa: F401
    for placeholder in placed:
        if sys.modules.get(placeholder.__name__) is placeholder:
            del sys.modules[placeholder.__name__]
