"""Writes docs/rooms.md: every folder of the product and what each of its modules is, from their docstrings.

Run from the project's root; tests/test_source.py fails when the page is out of date.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "rooms.md"

HEAD = """\
# Rooms

Every folder of the product, top to bottom, and the first sentence of each module's docstring. Written by
`python tools/rooms.py`; do not edit. A module imports only from rooms further down (`pyproject.toml` has the
contracts), and only modules that the other room's `__init__.py` names. [architecture.md](architecture.md) tells how
they work together.
"""

# Top to bottom, as the import contracts have them.
FOLDERS = (
    "kwire",
    "kwire/cli",
    "kwire/cli/verbs",
    "kwire/docker",
    "kwire/tools",
    "kwire/virtual",
    "kwire/virtual/network",
    "kwire/virtual/weather",
    "kwire/backends",
    "kwire/backends/clock",
    "kwire/backends/events",
    "kwire/backends/faults",
    "kwire/backends/inside",
    "kwire/backends/snapshots",
    "kwire/launch",
    "kwire/forks",
    "kwire/report",
    "kwire/audit",
    "kwire/audit/evidence",
    "kwire/audit/jobs",
    "kwire/audit/live",
    "kwire/load",
    "kwire/pipeline",
    "kwire/control",
    "kwire/control/clock",
    "kwire/control/disks",
    "kwire/control/live",
    "kwire/control/metrics",
    "kwire/control/openapi",
    "kwire/snapshots",
    "kwire/server",
    "kwire/server/clock",
    "kwire/server/disks",
    "kwire/server/access",
    "kwire/server/tls",
    "kwire/sim",
    "kwire/sim/faults",
    "kwire/sim/clients",
    "kwire/sim/answers",
    "kwire/sim/transactions",
    "kwire/sim/state",
    "kwire/client",
    "kwire/security",
    "kwire/quotas",
    "kwire/advance",
    "kwire/faults",
    "kwire/apis",
    "kwire/apis/access",
    "kwire/apis/parts",
    "kwire/transactions",
    "kwire/coordinator",
    "kwire/shards",
    "replication/member",
    "replication/fetcher",
    "replication/replica",
    "replication/log_dirs",
    "replication/log",
    "replication/controller",
    "replication/controller/brokers",
    "replication/controller/security",
    "replication/config",
    "replication/core",
    "protocol",
    "protocol/language",
)
UNLISTED = {
    "replication",
    "protocol/schemas",
}  # nothing but rooms; a definition file for each API family


def first_paragraph(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def folders() -> set[str]:
    """The folders that have modules, links left out."""
    found = set()
    for top in ("kwire", "protocol", "replication"):
        for path in (ROOT / top).rglob("*.py"):
            name = path.parent.relative_to(ROOT).as_posix()
            if not name.startswith(("kwire/protocol", "kwire/replication")):
                found.add(name)
    return found - UNLISTED


def rows(folder: str) -> Iterator[str]:
    room = ROOT / folder
    yield f"\n## {folder}/\n\n{first_paragraph(room / '__init__.py')}\n\n| module | |\n|---|---|\n"
    for path in sorted(room.glob("*.py")):
        if path.name not in ("__init__.py", "__main__.py"):
            yield f"| `{path.name}` | {first_paragraph(path)} |\n"


def page() -> str:
    missing = folders() ^ set(FOLDERS)
    if missing:
        raise SystemExit(f"tools/rooms.py: FOLDERS and the tree differ in {sorted(missing)}")
    return HEAD + "".join(line for folder in FOLDERS for line in rows(folder))


if __name__ == "__main__":
    PAGE.write_text(page())
