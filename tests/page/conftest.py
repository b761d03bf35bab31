"""Makes `browser_kit` importable (pytest runs with --import-mode=importlib), and a browser for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import browser_kit


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium, driven by Selenium."""
    why = browser_kit.why_not()
    if why:
        pytest.skip(why)
    driver = browser_kit.start()
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium: Any) -> Iterator[browser_kit.Browser]:
    """The same with an empty tab, of which nothing is left; what the page complains of fails the test."""
    found = browser_kit.Browser(chromium)
    yield found
    found.leave()
    assert found.complaints() == []
