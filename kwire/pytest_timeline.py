"""`--kwire-report=DIR`: a page about the clusters of a failed test, with a timeline (docs/report.md).

Imported at the start of a run with the option, or when a cluster ends by a failure.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from kwire.errors import KwireError, WaitTimeoutError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import pytest

_MESSAGE_CHARACTERS = 6000
_WAITED = re.compile(r"waited ([0-9.e+-]+) s for:? (.*)")


def folder_of(config: pytest.Config) -> Path | None:
    """The folder of the command line, else of the ini file; None: no reports are wanted."""
    given = config.getoption("kwire_report")
    if given:
        return config.invocation_params.dir / str(given)
    of_ini = str(config.getini("kwire_report"))
    return config.rootpath / of_ini if of_ini else None


def check_folder(config: pytest.Config) -> None:
    """Try whether pages can be written, once per run, and leave no new folder behind.

    If not: UsageError for the option of the command line, a warning for the ini file's, which people
    share whose runs need no pages."""
    import tempfile

    import pytest

    folder = folder_of(config)
    if folder is None or hasattr(config, "workerinput"):
        return  # xdist: the controller says it for all its workers
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        Path(tempfile.mkdtemp(dir=folder)).rmdir()
    except OSError as error:
        found = f"expected a folder that can be written, not {folder}: {error.strerror}"
        if config.getoption("kwire_report"):
            raise pytest.UsageError(f"--kwire-report: {found}") from None
        warning = pytest.PytestConfigWarning(f"kwire_report: {found}")
        try:
            config.issue_config_time_warning(warning, stacklevel=2)
        except pytest.PytestConfigWarning:  # -W error
            raise pytest.UsageError(str(warning)) from None
    finally:
        for each in new:
            with suppress(OSError):
                each.rmdir()


def add_page(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, since: float
) -> None:
    """Write the page of a failed test, and name its file in the test's report.

    `since`: when its setup began, in seconds since 1970. Nothing is written where no cluster of the test
    can be looked at."""
    try:
        path = _write(item, call, since)
    except Exception as error:  # whatever it is, the run of the tests goes on
        line = f"--kwire-report: no page, {type(error).__name__}: {error}"
    else:
        line = f"what happened, as a page: {path}"
        if path is None:
            return
    title, text = "kwire", ""
    if report.sections and report.sections[-1][0].startswith("kwire"):
        title, text = report.sections.pop()
    report.sections.append((title, f"{text}\n\n{line}".strip()))


def _write(item: pytest.Item, call: pytest.CallInfo[None], since: float) -> Path | None:
    from kwire.backends import running
    from kwire.pytest_report import clusters_of
    from kwire.report import files, model

    folder = folder_of(item.config)
    test = _test(item, call, since)
    found = [each for each in (_describe(c, test) for c in clusters_of(item)) if each is not None]
    found += [model.finish(each, test["since_ms"], test) for each in running.last_looks()]
    if not found or folder is None:
        return None
    return files.write_report(folder, item.nodeid, model.report(found, test))


def _test(item: pytest.Item, call: pytest.CallInfo[None], since: float) -> dict[str, Any]:
    assert call.excinfo is not None
    error = call.excinfo.value
    message = call.excinfo.exconly(tryshort=True)
    where = call.excinfo.traceback[-1] if call.excinfo.traceback else None
    if where is not None:
        message += f"\n\n{where.path}:{where.lineno + 1}"
    return {
        "id": item.nodeid,
        "outcome": "failed" if call.when == "call" else "error",
        "message": message[:_MESSAGE_CHARACTERS],
        "since_ms": round(since * 1000),
        "start_ms": round(call.start * 1000),
        "end_ms": round(call.stop * 1000),
        "wait": _wait(error),
    }


def _wait(error: BaseException) -> dict[str, Any] | None:
    """What the test has waited for in vain at its end, and for how long."""
    waited = _WAITED.match(str(error)) if isinstance(error, WaitTimeoutError) else None
    return None if waited is None else {"seconds": float(waited[1]), "text": waited[2]}


def _describe(cluster: object, test: dict[str, Any]) -> dict[str, Any] | None:
    from kwire import aio
    from kwire.backends import running
    from kwire.cluster import Cluster
    from kwire.report import model

    with suppress(KwireError):
        if isinstance(cluster, Cluster):
            return cluster._run(model.describe(cluster._inner, test["since_ms"], test))
        if isinstance(cluster, aio.Cluster):
            loop = running.loop_of(cluster)
            if loop is not None and not loop.is_running() and not loop.is_closed():
                return loop.run_until_complete(model.describe(cluster, test["since_ms"], test))
    return None
