"""The word count as its users run it: embedded and by spark-submit, on brokers in threads and in processes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_it import support

pytestmark = pytest.mark.timeout(240)

SCRIPT = support.HERE / "wordcount.py"


def result_of(command: list[str]) -> list[str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=220,
        env=support.spark_environment(),
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_the_word_count_runs_embedded(isolation: str) -> None:
    command = [sys.executable, str(SCRIPT), "--isolation", isolation, "--lines", "1500"]
    *_, last = result_of(command)
    assert "in 1500 lines" in last
    assert last.endswith("the same as counted without Kafka")


def test_the_word_count_runs_by_spark_submit(brokers: Any, tmp_path: Path) -> None:
    import pyspark

    text = tmp_path / "text"
    text.write_text("one fish two fish\nred fish blue fish\n")
    arguments = ["--bootstrap", brokers.bootstrap, "--text", str(text)]
    said = result_of(support.submit_command(pyspark.__version__, SCRIPT, arguments))
    assert any("by spark-submit" in line for line in said), said
    assert "  fish      4" in said
    assert said[-1].startswith("8 words in 2 lines, 5 different")
