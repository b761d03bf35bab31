"""What of `kwire audit` needs no Spark: where results go, what errors become."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kwire.audit import page
from kwire.audit.command import PAGE, problem, require_own
from kwire.audit.runs import Request, planned
from kwire.errors import ConfigurationError
from kwire.load.ledger import Ledger


def test_results_go_to_a_directory_of_their_own(tmp_path: Path) -> None:
    assert page.NAME == PAGE
    out = tmp_path / "new" / "out"
    require_own(out)
    for name in ("findings", "work"):
        (out / name).mkdir()
    for name in (PAGE, "spark.log", f".{PAGE}.17"):
        (out / name).touch()
    require_own(out)  # an audit's, again
    (out / "run.json").touch()
    with pytest.raises(ConfigurationError, match=r"out holds run\.json, which no audit writes"):
        require_own(out)
    with pytest.raises(ConfigurationError, match=r"run\.json: (File exists|Not a directory)"):
        require_own(out / "run.json")


def test_an_error_of_spark_is_one_line() -> None:
    of_python = "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File x\n"
    of_python += (
        "kwire.errors.ConfigurationError: kwire-log: nothing is at x\n\n\tat java.lang.Thread\n"
    )
    assert problem(Exception(of_python)) == (
        "kwire.errors.ConfigurationError: kwire-log: nothing is at x"
    )
    assert problem(Exception("\n first\nsecond")) == "first"
    assert problem(ValueError()) == "ValueError()"


def test_what_is_asked_for_and_not_there_is_one_line(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", topics=["orders"]):
        pass
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    (partition / f"{0:020}.log").touch()
    logs = (str(tmp_path / "data"),)
    request = Request(str(tmp_path / "ledger"), logs, None, ())
    with pytest.raises(ConfigurationError, match=r"nothing is at /nowhere"):
        planned(replace(request, events=("/nowhere",)), tmp_path / "out")
    with pytest.raises(ConfigurationError, match="--compacted no: the topics are orders"):
        planned(replace(request, compacted=("no",)), tmp_path / "out")
    assert planned(request, tmp_path / "out").places[0].topic == "orders"
