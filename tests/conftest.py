"""Makes helpers of several folders importable everywhere (pytest runs with --import-mode=importlib)."""

import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "server")]


@pytest.fixture(scope="session", autouse=True)
def own_registry() -> Iterator[None]:
    """Tests neither see nor touch the `kwire up`s of the person that runs them."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KWIRE_RUNTIME_DIR", folder)
        yield


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    """A command that a test runs in this process logs to a stream of that test, which ends with it."""
    loggers = [logging.getLogger(name) for name in ("kwire", "asyncio")]
    kept = [(each.handlers[:], each.propagate, each.level) for each in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, kept, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)
