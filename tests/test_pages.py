"""Pages about the source say what is there: docs/rooms.md, and the modules that docs/architecture.md names."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_rooms_is_current() -> None:
    assert tool("rooms").page() == (ROOT / "docs" / "rooms.md").read_text(), (
        "run: python tools/rooms.py"
    )


def named_modules(page: str) -> list[str]:
    return sorted(set(re.findall(r"`([\w/]+\.(?:py|md|sh))`", (ROOT / page).read_text())))


@pytest.mark.parametrize("name", named_modules("docs/architecture.md"))
def test_what_the_architecture_page_names_is_there(name: str) -> None:
    folders = ("", "kwire", "replication", "kwire/coordinator", "kwire/server", "kwire/backends")
    assert any((ROOT / folder / name).exists() for folder in folders)


PAGES = [
    *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")),
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    here = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", here.read_text()):
        if target.startswith(("http", "mailto")):
            continue
        path, _, anchor = target.partition("#")
        there = (here.parent / path).resolve() if path else here
        assert there.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{page}: {target}"
