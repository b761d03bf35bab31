"""Builds a release in dist/ and checks it: `make release`. Uploads nothing.

    python tools/release.py [VERSION] [--rehearse] [--publishable] [--no-image]

The version stands in kwire/__init__.py; VERSION, if given, must be that one. Refused: changes that
are not committed, a version that is tagged elsewhere, no section in CHANGELOG.md. `--rehearse` only
says so, takes the notes from [Unreleased], and builds what is committed all the same.
`--publishable` also refuses a repository address that is not a real one.

dist/ gets the sdist and the wheel, each built twice and equal byte by byte, release-notes.md and
SHA256SUMS. Both are installed into empty environments of every Python from 3.11 on that is found
(in PATH, in ~/.pyenv, with uv, or named in PYTHONS, with colons between). The image is built for this
machine's platform, and for the other one where the engine can emulate it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from release_notes import ROOT, NotesError, notes, repository

DIST = ROOT / "dist"
TOP_LEVEL = "kwire"
LEAST = (3, 11)
PLATFORMS = ("amd64", "arm64")
_TOOLS = ("build", "twine", "setuptools>=77", "wheel")
_FOR_README = ("pytest", "confluent-kafka")


class Refused(Exception):
    """There is no release. The text is one line and says what to do."""


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """The standard output of a command. Refused, with the end of its output, when it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).strip().splitlines()[-30:])
        raise Refused(f"{' '.join(map(str, command))[:200]} failed:\n{end}")
    return done.stdout


# --- what is refused


def version_of(source: str) -> str:
    """The version that kwire/__init__.py states."""
    (version,) = re.findall(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    return str(version)


def check_version(version: str, wanted: str | None) -> None:
    """Refused when another version was asked for, by a tag's name (v0.1.0) or plainly."""
    if wanted is not None and wanted.removeprefix("v") != version:
        raise Refused(
            f"{wanted} was asked for, but kwire/__init__.py says {version}: change one of them"
        )


def check_tree(root: Path, version: str) -> None:
    """Refused when something is not committed, or the version is the tag of another commit."""
    changed = run("git", "status", "--porcelain", cwd=root).splitlines()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise Refused(f"not committed: {changed[0][3:]}{more}; commit it, or remove it")
    tagged = run("git", "tag", "--list", f"v{version}", cwd=root).strip()
    if tagged:
        there, here = (
            run("git", "rev-list", "-n", "1", name, cwd=root).strip() for name in (tagged, "HEAD")
        )
        if there != here:
            raise Refused(
                f"{tagged} is another commit ({there[:9]}): raise __version__ in kwire/__init__.py"
            )


def check_address(address: str) -> None:
    """Refused when the repository's address is the one that only holds the place."""
    if ".invalid/" in address + "/":
        raise Refused(
            f"{address} is no real address: write the repository's into pyproject.toml,"
            " [project.urls]"
        )


# --- sdist and wheel


def export(into: Path) -> Path:
    """What is committed, as files."""
    into.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(into, filter="tar")  # its links lead from kwire/ to its own folders
    return into


def build(python: Path, source: Path, into: Path, epoch: str) -> tuple[Path, Path]:
    """The sdist of a tree, and the wheel made from that sdist."""
    build = (python, "-m", "build", "-q", "--no-isolation", "-o", into)
    run(*build, "--sdist", source, SOURCE_DATE_EPOCH=epoch)
    (sdist,) = into.glob("*.tar.gz")
    repack(sdist, int(epoch))
    with tarfile.open(sdist) as tar:
        tar.extractall(into / "unpacked", filter="data")
    (unpacked,) = (into / "unpacked").iterdir()
    run(*build, "--wheel", unpacked, SOURCE_DATE_EPOCH=epoch)
    (wheel,) = into.glob("*.whl")
    return sdist, wheel


def repack(sdist: Path, epoch: int) -> None:
    """Make an sdist depend on its files only: setuptools writes times, owners and an order of now."""
    with tarfile.open(sdist) as tar:
        members = sorted(tar.getmembers(), key=lambda member: member.name)
        found = [(member, tar.extractfile(member)) for member in members]
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as out:
            for member, file in found:
                plain = tarfile.TarInfo(member.name)
                plain.type, plain.size, plain.mtime = member.type, member.size, epoch
                plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                out.addfile(plain, file)
    with (
        sdist.open("wb") as target,
        gzip.GzipFile("", "wb", 9, target, mtime=epoch) as compressed,
    ):
        compressed.write(raw.getvalue())


def check_wheel(wheel: Path, sdist: Path) -> None:
    """Refused unless the wheel holds every module and data file of the sdist, all below kwire/."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    outside = sorted(name for name in held if not name.startswith(f"{TOP_LEVEL}/"))
    if outside:
        raise Refused(f"{wheel.name}: {outside[0]} is outside of {TOP_LEVEL}/")
    missing = sorted(shipped(sdist) - held)
    if missing:
        raise Refused(f"{wheel.name}: {missing[0]} is missing")
    if f"{TOP_LEVEL}/py.typed" not in held:
        raise Refused(f"{wheel.name}: {TOP_LEVEL}/py.typed is missing")


def shipped(sdist: Path) -> set[str]:
    """Where the modules and data files of an sdist stand in the wheel."""
    with tarfile.open(sdist) as tar:
        names = [name.partition("/")[2] for name in tar.getnames() if tar.getmember(name).isfile()]
    return {
        name if name.startswith("kwire/") else f"kwire/{name}"
        for name in names
        if name.split("/")[0] in ("kwire", "protocol", "replication")
        and Path(name).suffix in (".py", ".json", ".typed")
    }


# --- empty environments


def pythons() -> list[Path]:
    """One interpreter of each version from 3.11 on."""
    given = [Path(each) for each in os.environ.get("PYTHONS", "").split(":") if each]
    names = [f"python3.{minor}" for minor in range(LEAST[1], 20)]
    on_path = [Path(found) for name in names if (found := shutil.which(name))]
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python3"))
    by_version: dict[tuple[int, int], Path] = {}
    for path in (*given, *on_path, *pyenv, *uv_pythons(), Path(sys.executable)):
        version = version_of_python(path)
        if version is not None and version >= LEAST:
            by_version.setdefault(version, path)
    return [by_version[version] for version in sorted(by_version)]


def uv_pythons() -> Iterator[Path]:
    """The interpreters that uv has installed."""
    if shutil.which("uv"):
        try:
            listed = json.loads(
                run("uv", "python", "list", "--only-installed", "--output-format=json")
            )
        except (Refused, ValueError):  # an older uv
            return
        yield from (Path(each["path"]) for each in listed if each.get("path"))


def version_of_python(path: Path) -> tuple[int, int] | None:
    """Major and minor version of a Python that can make environments; None if it is none."""
    code = "import ensurepip, sys; print(sys.implementation.name, *sys.version_info[:2])"
    try:
        name, major, minor = run(path, "-I", "-c", code).split()
    except (Refused, OSError, ValueError):
        return None
    return (int(major), int(minor)) if name == "cpython" else None


def check_installed(python: Path, wheel: Path, sdist: Path, version: str, folder: Path) -> None:
    """Install wheel and sdist into environments of their own, and use what is there."""
    own = environment(python, folder / "wheel")
    run(own, "-m", "pip", "install", "-q", wheel)
    installed = record(own)
    outside = {
        name.split("/")[0]
        for name in installed
        if not name.startswith(("kwire/", f"kwire-{version}.dist-info/", "../../../bin/"))
    }
    if outside:
        raise Refused(f"{wheel.name} installs {sorted(outside)} beside kwire")
    run(own, "-m", "pip", "check")
    check_command(own, version, folder)
    run(own, "-m", "pip", "install", "-q", *_FOR_README)
    (folder / "test_readme.py").write_text(readme_test())
    said = run(own, "-m", "pytest", "-p", "no:cacheprovider", "test_readme.py", cwd=folder)
    if not re.search(r"=+ \d+ passed in ", said):  # "1 passed, 218 warnings" is no first screen
        raise Refused(f"README's test: {said.strip().splitlines()[-1]}")
    run(own, "-m", "pip", "check")

    other = environment(python, folder / "sdist")
    run(other, "-m", "pip", "install", "-q", sdist)
    if record(other) != installed:
        differ = sorted(set(record(other).items()) ^ set(installed.items()))
        raise Refused(f"{sdist.name} installs other files than the wheel: {differ[0][0]}")
    run(other, "-m", "pip", "check")


def environment(python: Path, folder: Path) -> Path:
    """The interpreter of a new environment."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def record(python: Path) -> dict[str, str]:
    """The files that kwire has installed and their hashes, but for those of this environment."""
    code = (
        "from importlib.metadata import files\n"
        "for each in files('kwire'):\n"
        "    print(each, each.hash.value if each.hash else '', sep='\\t')"
    )
    lines = [line.split("\t") for line in run(python, "-I", "-c", code).splitlines()]
    made_here = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json", ".pyc", "bin/kwire")
    return {name: digest for name, digest in lines if not name.endswith(made_here)}


def check_command(python: Path, version: str, folder: Path) -> None:
    """`kwire --version`, and `kwire up` that answers a client and ends with status 0."""
    kwire = python.parent / "kwire"
    said = run(kwire, "--version").strip()
    if said != f"kwire {version}":
        raise Refused(f"kwire --version says {said!r}")
    up = subprocess.Popen(
        [kwire, "up", "--port", "0", "--topic", "orders:3"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None
    try:
        ready = up.stdout.readline()
        if not ready.startswith("ready bootstrap="):
            raise Refused(f"kwire up says {ready.strip()!r}: {up.communicate()[1].strip()}")
        address = ready.split()[1].removeprefix("bootstrap=")
        code = f"from kwire import Cluster; print(Cluster.connect({address!r}).topics())"
        topics = run(python, "-I", "-c", code).strip()
        if topics != "{'orders': 3}":
            raise Refused(f"kwire up has the topics {topics}")
    finally:
        up.terminate()
        up.communicate(timeout=30)
    if up.returncode:
        raise Refused(f"kwire up ends with status {up.returncode}")


def readme_test() -> str:
    """The first test of README.md."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.S | re.M
    )
    return next(block for block in blocks if "def test_" in block)


# --- the image


def build_images(version: str) -> None:
    """Build the image for each platform that this machine's engine can build for, and run it."""
    engine = engine_platform()
    if engine is None:
        say("image: SKIPPED: no Docker engine answers (docker version)")
        return
    base = run("bash", ROOT / "tools" / "docker-base.sh").strip()
    for platform in sorted(PLATFORMS, key=lambda each: each != engine):
        tag = f"kwire:{version}-{platform}"
        command = ["docker", "build", "-q", "--build-arg", f"BASE_IMAGE={base}", "-t", tag]
        if platform != engine:
            reason = why_not_emulated(platform)
            if reason:
                say(f"image {platform}: SKIPPED: {reason}")
                continue
            command[1:2] = ["buildx", "build", "--platform", f"linux/{platform}", "--load"]
        run(*command, ROOT)
        said = run(
            "docker", "run", "--rm", "--platform", f"linux/{platform}", tag, "kwire", "--version"
        )
        if said.strip() != f"kwire {version}":
            raise Refused(f"{tag}: kwire --version says {said.strip()!r}")
        say(f"image {platform}: {tag}, from {base}")


def engine_platform() -> str | None:
    """The engine's own platform; None when none answers."""
    try:
        return run("docker", "version", "--format", "{{.Server.Arch}}").strip() or None
    except (Refused, OSError):
        return None


def why_not_emulated(platform: str) -> str:
    """Why the engine cannot build for a platform that is not its own; "" if it can."""
    try:
        listed = run("docker", "buildx", "inspect", "--bootstrap")
    except (Refused, OSError):
        return "docker buildx is not installed"
    if f"linux/{platform}" in listed:
        return ""
    return (
        f"no emulation of {platform}: docker run --privileged --rm tonistiigi/binfmt"
        f" --install {platform}"
    )


# --- all of it


def release(options: argparse.Namespace) -> None:
    """Build and check everything. Refused."""
    version = version_of((ROOT / "kwire" / "__init__.py").read_text("utf-8"))
    address = repository()
    text = refusals(options, version, address)
    epoch = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    with tempfile.TemporaryDirectory(prefix="kwire-release-") as name:
        folder = Path(name)
        tools = environment(Path(sys.executable), folder / "tools")
        run(tools, "-m", "pip", "install", "-q", *_TOOLS)
        sdist, wheel = build(tools, export(folder / "one" / "tree"), folder / "one" / "out", epoch)
        again = build(tools, export(folder / "two" / "a tree"), folder / "two" / "out", epoch)
        for first, second in zip((sdist, wheel), again, strict=True):
            if first.read_bytes() != second.read_bytes():
                raise Refused(f"{first.name} is different when it is built again")
        check_wheel(wheel, sdist)
        run(tools, "-m", "twine", "check", "--strict", wheel, sdist)
        say(f"{sdist.name} and {wheel.name}: built twice, equal; twine check passed")
        for python in pythons():
            found = ".".join(map(str, version_of_python(python) or ()))
            place = folder / f"python{found}"
            place.mkdir()
            check_installed(python, wheel, sdist, version, place)
            say(f"Python {found}: wheel and sdist installed, kwire up and README's test passed")
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for each in (sdist, wheel):
            shutil.copy2(each, DIST)
    (DIST / "release-notes.md").write_text(text, "utf-8")
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(DIST.glob("kwire-*"))
    ]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    if not options.no_image:
        build_images(version)
    say(f"kwire {version} is in dist/; nothing was uploaded (docs/releasing.md)")


def refusals(options: argparse.Namespace, version: str, address: str) -> str:
    """The release notes. Refused when there must be no release; a rehearsal only says so."""

    def stop(error: Exception) -> None:
        if not options.rehearse:
            raise Refused(str(error)) from None
        say(f"rehearsal: {error}")

    check_version(version, options.version)
    try:
        check_tree(ROOT, version)
    except Refused as error:
        stop(error)
    try:
        check_address(address)
    except Refused as error:
        if options.publishable:
            raise
        say(f"not to be published yet: {error}")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    try:
        return notes(changelog, version, address)
    except NotesError as error:
        stop(error)
    return notes(changelog, "Unreleased", address)


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="release", description="Builds and checks a release.")
    parser.add_argument("version", nargs="?", help="must be that of kwire/__init__.py")
    parser.add_argument("--rehearse", action="store_true", help="refuse no tree and no changelog")
    parser.add_argument("--publishable", action="store_true", help="refuse a placeholder's address")
    parser.add_argument("--no-image", action="store_true", help="build no image")
    return parser


def main() -> None:
    try:
        release(parser().parse_args())
    except (Refused, NotesError) as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
