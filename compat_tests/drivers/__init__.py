"""Client programs under one line protocol; see `compat_tests/clients.py` for the words of it."""
