"""Every shell and Python block of README.md and docs/ does what it says, the second time, too.

`pages.py` says how a block is run. The seconds that each takes are in the report (`-rP`, and the
property `seconds` of a JUnit file).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests import pages, tooling
from compat_tests.pages import Block

pytestmark = [pytest.mark.timeout(200), pytest.mark.kwire_only]

BLOCKS = pages.all_blocks()
RUN = [block for block in BLOCKS if not block.skip]
SHELL_BLOCKS = [block for block in RUN if block.language in pages.SHELL]
SCRIPTS = [b for b in RUN if b.language in pages.PYTHON and not b.is_pytest]
TESTS = [b for b in RUN if b.is_pytest and not b.needs_spark]  # spark_it runs those with Spark

# What the blocks of one round may take on a quiet machine. A reader would wait no longer.
SECONDS = 20.0

Record = Callable[[str, object], None]


def test_blocks_that_are_not_run_say_why() -> None:
    languages = {block.language for block in BLOCKS}
    # A Java program is more than a block.
    fragments = {"", "text", "ini", "properties", "yaml", "json", "java"}
    assert languages <= {*fragments, *pages.SHELL, *pages.PYTHON}
    for block in BLOCKS:
        commands = re.search(r"^(\$ |kwire |docker |make |pip )", block.text, re.MULTILINE)
        assert block.language not in ("", "text") or not commands, f"{block.id} has no language"
    assert len(RUN) > 20


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=lambda block: block.id)
def test_a_shell_block(block: Block, tmp_path: Path, record_property: Record) -> None:
    if "kcat" in block.text:
        tooling.kcat()
    if re.search(r"\bdocker\b", block.text):
        pytest.skip("run by test_docker.py and by hand: needs an engine")
    folder = pages.ROOT if block.in_checkout else tmp_path / "reader"
    folder.mkdir(exist_ok=True)
    script = pages.shell_script(block)
    for time_ in ("first", "second"):
        ran = pages.run_script(script, folder, tmp_path)
        assert ran.status == 0, f"the {time_} time:\n{ran.output}"
        missing = pages.missing_output(block.shown, ran.output)
        assert missing is None, f"the {time_} time, not seen: {missing}\n{ran.output}"
        record_property("seconds", round(ran.seconds, 2))
        print(f"{block.id}: {ran.seconds:.2f} s")


@pytest.mark.parametrize("block", SCRIPTS, ids=lambda block: block.id)
def test_a_python_block(block: Block, tmp_path: Path, record_property: Record) -> None:
    (tmp_path / "example.py").write_text(block.text)
    lines = [f"{sys.executable} example.py"] * 2
    beside = f"foreground {block.beside}" if block.beside else ""
    script = "\n".join([pages._PREAMBLE, beside, *lines, "finish"])
    ran = pages.run_script(script, tmp_path, tmp_path)
    assert ran.status == 0, ran.output
    assert "Traceback" not in ran.output and "Warning" not in ran.output, ran.output
    record_property("seconds", round(ran.seconds, 2))
    print(f"{block.id}, twice: {ran.seconds:.2f} s")


@pytest.mark.parametrize("block", TESTS, ids=lambda block: block.id)
def test_a_block_that_is_a_test(block: Block, tmp_path: Path, record_property: Record) -> None:
    first = block.text.splitlines()[0]
    name = first.removeprefix("# ") if first.endswith(".py") else "test_example.py"
    (tmp_path / name).write_text(block.text)
    for _ in range(2):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stdout
        last = done.stdout.strip().splitlines()[-1]
        assert re.fullmatch(r"\d+ passed in .*", last), f"a first screen with {last}\n{done.stdout}"
        record_property("seconds", round(time.monotonic() - began, 2))


def test_the_runner_notices_what_is_wrong(tmp_path: Path) -> None:
    def run(text: str, language: str = "sh") -> pages.Ran:
        block = Block("page", 1, language, text)
        return pages.run_script(pages.shell_script(block), tmp_path, tmp_path)

    assert run("false\ntrue\n").status == 1
    assert run("echo a | false | cat\n").status == 1
    assert run("kwire up --port 0\necho after\n").output.endswith("after\n")
    refused = run("kwire up --port none\n")
    assert refused.status == 1 and "not ready: kwire up --port none" in refused.output
    shown = ["ready bootstrap=127.0.0.1:9092", "broker 2 … running"]
    output = "ready bootstrap=127.0.0.1:40001\nmore\nbroker 7 127.0.0.1:1 running\n"
    assert pages.missing_output(shown, output) is None
    assert pages.missing_output(shown[::-1], output) == shown[0]
    assert shutil.which("bash")
