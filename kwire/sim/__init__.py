"""The deterministic simulator: a cluster of real cores in one process, virtual time, seeded faults.

`docs/simulation.md` is the manual; `kwire sim` runs it. Pure like the core: no sockets, clock or
files.
"""

__all__ = [
    "command",
]
