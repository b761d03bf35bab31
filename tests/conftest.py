"""Makes helpers of several folders importable everywhere (pytest runs with --import-mode=importlib)."""

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
