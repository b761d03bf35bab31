"""A headless Chromium on the page of a `kwire up`, for tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
SECONDS = 20
WIDTH, HEIGHT = 1280, 800


def why_not() -> str:
    """Why there is no browser; "" if there is one."""
    if CHROMIUM is None:
        return "no chromium"
    if DRIVER is None:
        return "no chromedriver (apt install chromium-driver)"
    return "" if importlib.util.find_spec("selenium") else "no selenium"


def start() -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(CHROMIUM)
    for option in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
        *("--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"),
        f"--window-size={WIDTH},{HEIGHT}",
    ):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    driver.set_script_timeout(SECONDS + 10)
    return driver


class Browser:
    """What tests do with a page; what is waited for is waited for in the page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.look(WIDTH, HEIGHT, dark=False)
        self.tolerated: tuple[str, ...] = ("net::ERR_CONNECTION", "net::ERR_INCOMPLETE_CHUNKED")
        """Words of complaints that a test provokes; the page outlives its cluster."""

    def look(self, width: int, height: int, *, dark: bool) -> None:
        """Give the window a size, and the system a scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, url: str, *, rows: int | None = None) -> None:
        """Open the page; wait until it is live, and has so many partitions."""
        self.driver.get(f"{url}/")
        if rows is not None:
            self.until("document.querySelector('#link.live')")
            self.until(f"document.querySelectorAll('.row').length === {rows}")

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def value(self, expression: str, *values: Any) -> Any:
        return self.run(f"return {expression}", *values)

    def until(self, expression: str, *values: Any, seconds: float = SECONDS) -> Any:
        """Wait in the page until an expression is true, looked at with each frame; return it."""
        script = (
            "const done = arguments[arguments.length - 1], ends = performance.now() + arguments[0];"
            f"const look = () => {{ let found; try {{ found = ({expression}); }} catch {{ found = null; }}"
            " if (found) done([found instanceof Node ? true : found]); else if (performance.now() > ends)"
            " done(null); else setTimeout(look, 10); }; look();"
        )
        found = self.driver.execute_async_script(script, seconds * 1000, *values)
        assert found is not None, f"waited in vain: {expression}; {self.text('body')[-1500:]}"
        return found[0]

    def text(self, selector: str) -> str:
        found = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return str(found)

    def press(self, text: str, within: str = "body") -> None:
        """Press the button of this text, in the last element of a selector."""
        pressed = self.run(
            "const box = [...document.querySelectorAll(arguments[1])].at(-1);"
            "const found = [...box.querySelectorAll('button')].find(each => each.textContent === arguments[0]);"
            "if (!found || found.disabled) return false; found.focus(); found.click(); return true;",
            text,
            within,
        )
        assert pressed, f"no button {text!r} in {within}: {self.text(within)}"

    def head(self, node: int) -> str:
        """A selector of the head of a broker or a controller."""
        return f"[data-node='{node}']"

    def row(self, topic: str, index: int = 0) -> list[str]:
        """What a row says: partition, leader, epoch, ISR, and each replica."""
        script = (
            "const row = [...document.querySelectorAll('.row')].find(each => each.dataset.topic === arguments[0]"
            " && each.dataset.partition === String(arguments[1]));"
            "return row ? [...row.children].map(each => each.innerText.trim()) : null"
        )
        found: list[str] = self.run(script, topic, index)
        return found

    def complaints(self) -> list[str]:
        """What the browser's console has had of this page."""
        found = [each["message"] for each in self.driver.get_log("browser")]
        return [each for each in found if not any(word in each for word in self.tolerated)]

    def leave(self) -> None:
        self.driver.execute_cdp_cmd(
            "Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"}
        )
        self.run("try { sessionStorage.clear(); localStorage.clear(); } catch {}")
        self.driver.get("about:blank")


class Up:
    """A `kwire up` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process = process
        words = dict(each.split("=", 1) for each in line.split()[1:])
        self.bootstrap = words["bootstrap"]
        self.url = words.get("control", "")
        self.first = self.bootstrap.partition(",")[0]


@contextmanager
def kwire_up(*options: str, **variables: str) -> Iterator[Up]:
    command = [sys.executable, "-m", "kwire", "up", "--port", "0", *options]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **variables},
            )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready "), log.read_text()
            yield Up(process, line)
            assert "internal error" not in log.read_text()
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()
