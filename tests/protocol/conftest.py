"""Tests of the protocol are tests of compiled code; `test_interpreter.py` compares the interpreter with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kwire.protocol.language import schema


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(schema, "INTERPRETED_USES", 0)
    monkeypatch.setattr(schema, "INTERPRETED_INSTANCES", 0)
    yield
