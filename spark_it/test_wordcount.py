"""The word count as its users run it: embedded and by spark-submit, on brokers in threads and in processes."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spark_it import support

pytestmark = pytest.mark.timeout(600)

PATIENCE_S = 500.0

SCRIPT = support.HERE / "wordcount.py"


def result_of(command: list[str], folder: Path) -> list[str]:
    """What a run of the word count printed; it is over, with all its processes, in any case."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=support.spark_environment(),
        stdin=subprocess.DEVNULL,
        cwd=folder,  # Spark leaves a folder where it runs
        start_new_session=True,
    )
    try:
        out, error = process.communicate(timeout=PATIENCE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    assert process.returncode == 0, out + error[-4000:]
    return out.splitlines()


@pytest.mark.kwire_only
@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_the_word_count_runs_embedded(isolation: str, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--isolation", isolation, "--lines", "1500"]
    *said, last = result_of(command, tmp_path)
    assert "in 1500 lines" in last
    assert last.endswith("the same as counted without Kafka")
    batches = [line for line in said if re.match(r"  batch \d+: ", line)]
    assert len(batches) >= 4, said
    assert "1,500 of 1,500 lines counted, 0 wait" in batches[-1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--text", "/nonexistent"], "wordcount: --text /nonexistent: no such file or directory"),
        (["--text", "/"], "wordcount: --text /: is a directory"),
        (["--text", "empty"], "wordcount: --text empty: there is no word in it"),
        (["--lines", "0"], "wordcount: --lines 0: expected a number from 1 on"),
        (
            ["--bootstrap", "127.0.0.1:1"],
            "wordcount: --bootstrap 127.0.0.1:1: no broker answers within 5 s",
        ),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_one_line_before_spark_starts(
    arguments: list[str], line: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\n 1 2 3\n")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        # without Java: Spark would fail in other words
        env={**support.spark_environment(), "JAVA_HOME": "/nowhere"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [line]


@pytest.mark.slow
def test_the_word_count_runs_by_spark_submit(brokers: Any, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one fish two fish\nred fish blue fish\n")
    arguments = ["--bootstrap", brokers.bootstrap_servers, "--text", str(text)]
    said = result_of(support.submit_command(SCRIPT, arguments), tmp_path)
    assert any("by spark-submit" in line for line in said), said
    assert "  fish      4" in said
    assert said[-1].startswith("8 words in 2 lines, 5 different")
