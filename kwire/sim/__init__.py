"""The deterministic simulator: a whole cluster of real cores in one process, under virtual time, with faults by seed.

`docs/simulation.md` is the manual; `kwire sim` runs it. Pure like the core: no sockets, no clock, no files.
"""
