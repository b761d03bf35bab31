"""Prints the release notes of a version: its section of CHANGELOG.md, with whole links.

python tools/release_notes.py 0.1.0
"""

from __future__ import annotations

import datetime
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\S+))?[ \t]*$", re.MULTILINE)
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


class NotesError(Exception):
    """The changelog has no notes for the version. The text is one line and says what to do."""


def sections(changelog: str) -> dict[str, tuple[str | None, str]]:
    """Each version's date and text, the newest first."""
    found = list(_HEADING.finditer(changelog))
    ends = [heading.start() for heading in found[1:]] + [len(changelog)]
    return {
        heading[1]: (heading[2], changelog[heading.end() : end].strip())
        for heading, end in zip(found, ends, strict=True)
    }


def notes(changelog: str, version: str, repository: str) -> str:
    """The notes of a version. NotesError: no section, no date, or nothing in it."""
    there = sections(changelog)
    if version not in there:
        raise NotesError(
            f"CHANGELOG.md has no section {version}: rename [Unreleased] to"
            f" [{version}] - {datetime.date.today()}, and begin a new one above it"
        )
    date, text = there[version]
    if version != "Unreleased":
        try:
            datetime.date.fromisoformat(date or "")
        except ValueError:
            raise NotesError(f"CHANGELOG.md: section {version} has no date: - YYYY-MM-DD") from None
    if not text:
        raise NotesError(f"CHANGELOG.md: section {version} is empty")
    pages = f"{repository}/blob/{'main' if version == 'Unreleased' else 'v' + version}"
    return _LINK.sub(rf"]({pages}/\1)", text) + "\n"


def repository() -> str:
    """The address of the repository, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["urls"]["Repository"])


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/release_notes.py VERSION")
    try:
        text = (ROOT / "CHANGELOG.md").read_text("utf-8")
        sys.stdout.write(notes(text, sys.argv[1], repository()))
    except NotesError as error:
        sys.exit(f"release_notes: {error}")


if __name__ == "__main__":
    main()
