"""The wheel holds every module of kwire/, protocol/ and replication/, and nothing at top level but kwire.

setuptools takes the packages from a list in pyproject.toml: a package missing there is left out
without a word. The wheel is built by way of the sdist, as a release is, from a copy of what git
tracks: neither a stale build/ folder nor somebody's unfinished file can leak in.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE")
SHIPPED = {".py", ".json", ".typed", ".html", ".css"}


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [name for name in listed.stdout.splitlines() if os.path.lexists(ROOT / name)]


def built(folder: Path, into: Path, *options: str) -> set[str]:
    """What the wheel holds that is made of a folder."""
    build = [sys.executable, "-m", "build", "-q", "--no-isolation", "-o", str(into), *options]
    done = subprocess.run([*build, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = into.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def in_wheel(path: str) -> str:
    return path if path.startswith("kwire/") else f"kwire/{path}"


@pytest.mark.timeout(100)
def test_the_wheel_holds_the_tree(tmp_path: Path) -> None:
    names, copy = tracked(), tmp_path / "copy"
    shipped = [name for name in names if name.split("/")[0] in ("kwire", "protocol", "replication")]
    for name in [*shipped, *BESIDE]:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    held = built(copy, tmp_path)
    assert held == {in_wheel(name) for name in shipped if Path(name).suffix in SHIPPED}
    assert {name.split("/")[0] for name in held} == {"kwire"}


def test_a_second_build_in_a_checkout_has_nothing_of_the_first(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "build" / "lib" / "kwire").mkdir(parents=True)
    (copy / "build" / "lib" / "kwire" / "gone_since.py").touch()
    (copy / "kwire").mkdir()
    (copy / "kwire" / "here.py").touch()
    (copy / "pyproject.toml").write_text(
        '[project]\nname = "kwire"\nversion = "1"\n[tool.setuptools]\npackages = ["kwire"]\n'
    )
    shutil.copy2(ROOT / "setup.cfg", copy)
    assert built(copy, tmp_path, "--wheel") == {"kwire/here.py"}


def test_the_links_are_links() -> None:
    for name in ("protocol", "replication"):
        assert (ROOT / "kwire" / name).is_symlink(), (
            f"kwire/{name} lost its link: see CONTRIBUTING.md"
        )
