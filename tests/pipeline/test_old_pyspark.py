"""A PySpark without data sources in Python, where a program of one's own imports kwire's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_it_is_named_with_the_version_that_is_needed(tmp_path: Path) -> None:
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.7"\n')
    (tmp_path / "pyspark" / "sql" / "__init__.py").touch()
    path = os.pathsep.join((str(tmp_path), *sys.path[1:]))
    done = subprocess.run(
        [sys.executable, "-c", "from kwire.pipeline.source import register"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    *_, line = done.stderr.splitlines()
    assert (done.returncode, line) == (
        1,
        "ModuleNotFoundError: kwire-log needs PySpark 4.0 or later, this is 3.5.7",
    )
