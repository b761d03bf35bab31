"""What a release is made of: notes, refusals, metadata, texts that need no pages, workflow files."""

from __future__ import annotations

import argparse
import ast
import gzip
import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import kwire

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "https://forge.test/kwire"
CHANGELOG = """# Changelog

## [Unreleased]

- Something new, see [the page](docs/new.md).

## [1.1.0] - 2026-02-01

### Added

- A thing ([docs](docs/python.md#pytest), [KIP](https://kip.test/1), [here](#added)).

## [1.0.0]

- No date.

## [0.9.0] - 2026-01-01
"""


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


release_notes = tool("release_notes")
release = tool("release")


# --- notes


def test_notes_are_the_section_with_whole_links() -> None:
    assert release_notes.notes(CHANGELOG, "1.1.0", ADDRESS) == (
        "### Added\n\n- A thing ([docs](https://forge.test/kwire/blob/v1.1.0/docs/python.md#pytest),"
        " [KIP](https://kip.test/1), [here](#added)).\n"
    )
    unreleased = release_notes.notes(CHANGELOG, "Unreleased", ADDRESS)
    assert f"{ADDRESS}/blob/main/docs/new.md" in unreleased


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.0.0", r"no section 2.0.0: rename \[Unreleased\] to \[2.0.0\] - \d{4}-"),
        ("1.0.0", "section 1.0.0 has no date"),
        ("0.9.0", "section 0.9.0 is empty"),
    ],
)
def test_a_version_without_notes_is_refused(version: str, said: str) -> None:
    with pytest.raises(release_notes.NotesError, match=said):
        release_notes.notes(CHANGELOG, version, ADDRESS)


def test_the_changelog_has_notes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert release_notes.notes(text, next(iter(release_notes.sections(text))), ADDRESS)


# --- refusals


def git(folder: Path, *words: str) -> None:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@e.test", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_a_dirty_tree_is_refused(checkout: Path) -> None:
    release.check_tree(checkout, "1.0.0")
    (checkout / "new").touch()
    with pytest.raises(release.Refused, match="not committed: new; commit it, or remove it"):
        release.check_tree(checkout, "1.0.0")
    (checkout / "file").write_text("2")
    with pytest.raises(release.Refused, match="not committed: file and 1 more"):
        release.check_tree(checkout, "1.0.0")


def test_a_version_that_was_released_is_refused(checkout: Path) -> None:
    git(checkout, "tag", "v1.0.0")
    release.check_tree(checkout, "1.0.0")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "two")
    release.check_tree(checkout, "1.0.1")
    with pytest.raises(release.Refused, match=r"v1.0.0 is another commit \(.*\): raise"):
        release.check_tree(checkout, "1.0.0")


@pytest.mark.parametrize("wanted", [None, "1.0.0", "v1.0.0"])
def test_the_version_may_be_given_as_a_tag(wanted: str | None) -> None:
    release.check_version("1.0.0", wanted)
    with pytest.raises(release.Refused, match=r"v1.1.0 was asked for, but .* says 1.0.0"):
        release.check_version("1.0.0", "v1.1.0")


def test_an_address_that_only_holds_the_place_is_not_published() -> None:
    release.check_address(ADDRESS)
    with pytest.raises(release.Refused, match="no real address"):
        release.check_address("https://kwire.invalid/kwire")


def refusals(monkeypatch: pytest.MonkeyPatch, root: Path, **options: bool) -> str:
    given = {"version": None, "rehearse": False, "publishable": False, "no_image": True}
    monkeypatch.setattr(release, "ROOT", root)
    found: str = release.refusals(argparse.Namespace(**{**given, **options}), "1.1.0", ADDRESS)
    return found


def test_a_rehearsal_says_what_a_release_refuses(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "CHANGELOG.md").write_text(CHANGELOG)
    with pytest.raises(release.Refused, match=r"not committed: CHANGELOG.md"):
        refusals(monkeypatch, checkout)
    assert refusals(monkeypatch, checkout, rehearse=True).startswith("### Added")
    assert "rehearsal: not committed: CHANGELOG.md" in capsys.readouterr().out
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "changelog")
    assert refusals(monkeypatch, checkout).startswith("### Added")
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("1.1.0", "1.2.0"))
    git(checkout, "commit", "-qam", "other")
    with pytest.raises(release.Refused, match=r"no section 1.1.0"):
        refusals(monkeypatch, checkout)
    assert refusals(monkeypatch, checkout, rehearse=True).startswith("- Something new")


def test_an_sdist_is_the_same_whenever_it_is_packed(tmp_path: Path) -> None:
    packed = []
    for time, names in ((1, ("b", "a")), (2, ("a", "b"))):
        path = tmp_path / f"{time}.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for name in names:
                (tmp_path / name).write_text(name)
                member = tar.gettarinfo(tmp_path / name, name)
                member.mtime, member.uid = time, time
                with (tmp_path / name).open("rb") as file:
                    tar.addfile(member, file)
        release.repack(path, 1_700_000_000)
        packed.append(path.read_bytes())
    assert packed[0] == packed[1]
    with tarfile.open(tmp_path / "1.tar.gz") as tar:
        assert tar.getnames() == ["a", "b"] and tar.getmember("a").mtime == 1_700_000_000
        assert tar.extractfile("b").read() == b"b"  # type: ignore[union-attr]
    assert gzip.decompress(packed[0])


def test_it_finds_the_python_that_runs_this() -> None:
    found = [release.version_of_python(path) for path in release.pythons()]
    assert sys.version_info[:2] in found and found == sorted(set(found))
    assert release.version_of_python(Path("/bin/false")) is None


# --- metadata


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_the_version_stands_once() -> None:
    source = (ROOT / "kwire" / "__init__.py").read_text()
    assert release.version_of(source) == kwire.__version__
    assert "version" not in project()


def test_the_urls_lead_into_one_repository() -> None:
    urls = project()["urls"]
    assert isinstance(urls, dict) and {"Repository", "Documentation", "Changelog"} <= urls.keys()
    assert all(url.startswith(urls["Repository"]) for url in urls.values())


def test_the_description_has_no_link_that_leads_nowhere(tmp_path: Path) -> None:
    code = "import setuptools; setuptools.setup = lambda **given: print(given['long_description'])"
    code += "; import runpy; runpy.run_path('setup.py')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    links = re.findall(r"\]\(([^)]+)\)", done.stdout)
    assert f"{release_notes.repository()}/blob/v{kwire.__version__}/docs/python.md" in links
    assert all(link.startswith(("https://", "#")) for link in links)


def test_texts_for_people_name_no_page_that_a_wheel_does_not_have() -> None:
    """Docstrings are for readers of the source, but those of commands are their help."""
    naming = []
    folders = [ROOT / name for name in ("kwire", "protocol", "replication")]
    for path in sorted({path for folder in folders for path in folder.rglob("*.py")}):
        tree = ast.parse(path.read_text())
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
            and (isinstance(node, ast.Module) or path.parent.name != "cli")
        }
        naming += [
            f"{path.relative_to(ROOT)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.search(r"docs/|README|CONTRIBUTING", node.value)
            and id(node) not in docstrings
        ]
    assert naming == []


# --- workflow files

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(path: Path) -> list[dict[str, str]]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: make setup")
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_is_there(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for step in steps(path):
        command = step.get("run", "")
        for target in re.findall(r"^make ([a-z-]+)", command, re.MULTILINE):
            assert target in targets, command
        if command.startswith(".ci/"):
            assert (ROOT / command).stat().st_mode & 0o111, command
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})", step["uses"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_only_but_where_it_publishes(path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: make setup")
    found = yaml.safe_load(path.read_text())
    assert found["permissions"] == {"contents": "read"}
    for name, job in found["jobs"].items():
        writes = {key for key, what in job.get("permissions", {}).items() if what == "write"}
        assert len(writes) == name.startswith("publish-"), name
    assert "secrets." not in path.read_text()


def test_the_ways_to_build_and_to_publish_are_separate_jobs() -> None:
    (path,) = [path for path in WORKFLOWS if path.name == "release.yml"]
    runs = [step.get("run", "") for step in steps(path)]
    assert 'make release ARGS="--publishable $GITHUB_REF_NAME"' in runs
    parser = release.parser().parse_args(["--publishable", "v1.0.0"])
    assert parser.publishable and parser.version == "v1.0.0"
