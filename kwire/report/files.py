"""Files of reports: one per failed test, named after it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_CHARACTERS = 120
_UNSAFE = re.compile(r"[^A-Za-z0-9._=,+-]+")


def file_name(test_id: str) -> str:
    """The name of a test's report: its id in characters that all file systems and shells take.

    An id that loses something by that gets a hash, so that no two tests share a file."""
    function, bracket, parameters = test_id.partition("[")
    plain = function.replace("::", ".").replace("/", ".").replace("\\", ".")
    if bracket:
        plain += "-" + parameters.removesuffix("]")
    name = _UNSAFE.sub("_", plain).strip("._")
    if name != plain or len(name) > _MAX_CHARACTERS or not name:
        digest = hashlib.sha256(test_id.encode("utf-8", "backslashreplace")).hexdigest()[:8]
        name = f"{name[:_MAX_CHARACTERS]}-{digest}"
    return f"{name}.html"


def write_page(path: str, report: dict[str, Any]) -> str:
    """Write the page of a report to a file; return a line that says so. "-": return the page.

    NodeError when the file cannot be written."""
    from kwire.report.page import render
    from kwire.server.errors import NodeError

    if path == "-":
        return render(report).rstrip()
    try:
        Path(path).write_text(render(report), encoding="utf-8")
    except OSError as error:
        raise NodeError(f"{path}: {error.strerror}") from None
    return f"written to {path}"


def write_report(folder: str | Path, test_id: str, report: dict[str, Any]) -> Path:
    """Write the page of a test's report, with the folder if need be; return its path. OSError."""
    from kwire.report.page import render

    path = Path(folder) / file_name(test_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(report), encoding="utf-8")
    return path
