"""`kwire report`: a page about what a running cluster has done."""

from __future__ import annotations

import click

from kwire.cli.common import example, file_path
from kwire.cli.control import ask_control, control_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@click.command(epilog=example("kwire report -o report.html"))
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    type=file_path,
    default="kwire-report.html",
    show_default=True,
    help="Where to write the page; -: stdout.",
)
@control_options
def report(path: str) -> None:
    """Write one HTML page about a running cluster: a timeline of its events, replicas, groups, requests.

    The page needs no network and no other files: keep it, send it, open it in a browser."""
    from kwire.control import ctl as work

    def to_text(found: Any) -> str:
        from kwire.report.files import write_page

        return write_page(path, found)

    ask_control("report", lambda url: work.ask(url, "GET", "/v1/report", None, to_text))
