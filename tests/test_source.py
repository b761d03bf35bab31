"""Rules about the source that no linter knows: rooms, their doors and their size."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("kwire", "protocol", "replication")
MODULES_IN_A_FOLDER = 20
# Folders that may have more modules: a definition file for each API family is Kafka's own number.
LARGE_FOLDERS = {"protocol/schemas"}


def sources() -> Iterator[Path]:
    """Every module of the product, once: kwire/protocol and kwire/replication are links."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if relative.parts[:2] not in (("kwire", "protocol"), ("kwire", "replication")):
                yield relative


SOURCES = list(sources())


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    name = ".".join(parts if parts[0] == "kwire" else ("kwire", *parts))
    return name.removesuffix(".__init__")


MODULES = {module_name(path) for path in SOURCES}
TREES = {path: ast.parse((ROOT / path).read_text()) for path in SOURCES}


def doors() -> dict[str, set[str]]:
    """The modules that each room opens to others: `__all__` of its `__init__`, where that names modules."""
    found = {}
    for path in SOURCES:
        if path.name != "__init__.py":
            continue
        room = module_name(path)
        for node in TREES[path].body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names = set(ast.literal_eval(node.value))
                if all(f"{room}.{name}" in MODULES for name in names):
                    found[room] = names
    return found


DOORS = doors()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of each import from kwire, wherever it stands."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kwire"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in MODULES)


def room_of(module: str) -> str | None:
    return next((room for room in DOORS if module.startswith(f"{room}.")), None)


def test_the_rooms_have_doors() -> None:
    assert len(DOORS) >= 14


def test_rooms_are_entered_by_their_doors() -> None:
    """A module of another room is imported only when the `__all__` of that room's `__init__.py` names it."""
    used: dict[str, set[str]] = {room: set() for room in DOORS}
    strangers = []
    for path in SOURCES:
        here = room_of(module_name(path)) or module_name(path)
        for line, module in imports(path):
            room = room_of(module)
            if room is None or room == here:
                continue
            name = module.removeprefix(f"{room}.")
            used[room].add(name)
            if name not in DOORS[room]:
                strangers.append(f"{path}:{line} imports {module}, which {room} does not open")
    assert not strangers, "\n".join(strangers)
    closed = [f"{room}: {name}" for room in DOORS for name in sorted(DOORS[room] - used[room])]
    assert not closed, f"doors that nobody uses: {closed}"


@pytest.mark.parametrize("folder", sorted({str(path.parent) for path in SOURCES}))
def test_a_folder_has_a_readable_number_of_modules(folder: str) -> None:
    modules = [path for path in SOURCES if str(path.parent) == folder and path.stem[0] != "_"]
    assert len(modules) <= MODULES_IN_A_FOLDER or folder in LARGE_FOLDERS
