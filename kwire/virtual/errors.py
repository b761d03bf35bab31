"""What a run in virtual time raises, besides what the application raises itself."""

from __future__ import annotations

from kwire.errors import KwireError


class VirtualTimeError(KwireError):
    """The base of the others."""


class RefusedError(VirtualTimeError):
    """The application asks for what virtual time does not have: a real socket, a subprocess, a thread, a C client."""


class DeadlockError(VirtualTimeError):
    """Nothing is ready and no timer is set: in real time the application would wait for ever."""


class SpinError(VirtualTimeError):
    """The application runs and runs, and no time passes."""


class TimeLimitError(VirtualTimeError):
    """More virtual time has passed than the run was given (`limit=`)."""
