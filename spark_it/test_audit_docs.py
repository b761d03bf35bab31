"""The blocks of docs/audit.md that need Spark, as they stand, but for the port and shorter times."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from spark_it import support
from spark_it.test_fixture import examples, run

pytestmark = [
    pytest.mark.kwire_only,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="the audit needs PySpark 4"),
]

PAGE = support.HERE.parent / "docs" / "audit.md"


def blocks() -> list[str]:
    found = re.findall(
        r"^<!-- skip: needs Spark; spark_it/test_audit_docs.py runs it -->\n```sh\n(.*?)^```",
        PAGE.read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert len(found) == 2
    return found


def shell(folder: Path, block: str) -> str:
    """What the block prints, which must end well; what it leaves in the background is ended."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    block = block.replace("9092", str(port)).replace("--seconds 30", "--seconds 20")
    block = re.sub(
        r"(kwire up .*)&\n",
        rf"\1&\nuntil : < /dev/tcp/127.0.0.1/{port}; do sleep 0.2; done 2> /dev/null\n",
        block,
    )
    kwire = f"{shlex.quote(sys.executable)} -m kwire"
    script = f'set -e\nkwire() {{ {kwire} "$@"; }}\n{block}'
    support.use_fetched_jars()
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(support.HERE.parent)},
        stdin=subprocess.DEVNULL,
        stdout=(folder / "said").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        status = process.wait(400)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
    said = (folder / "said").read_text()
    assert status == 0, said
    return said


def test_a_ledger_beside_topics_and_files(tmp_path: Path) -> None:
    said = shell(tmp_path, blocks()[0])
    assert len(re.findall(r"^([\d,]+) acknowledged, \1 present: nothing found", said, re.M)) == 2, (
        said
    )
    assert (tmp_path / "by-files" / "timeline").exists()


def test_a_load_is_followed(tmp_path: Path) -> None:
    said = shell(tmp_path, blocks()[1])
    assert re.search(r"^([\d,]+) acknowledged, \1 present: nothing found", said, re.M), said


def test_in_a_test(tmp_path: Path) -> None:
    (example,) = examples("docs/audit.md")
    done = run(tmp_path, example, "")
    assert "= 1 passed" in done.stdout, done.stdout + done.stderr
