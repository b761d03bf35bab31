"""docs/python.md, docs/tutorial.md and the README's pytest example do what they say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_run import run_pytest

import kwire
from kwire import Cluster, errors

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(90)


def blocks(page: str, language: str = "python") -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def title(block: str) -> str:
    return block.splitlines()[0].removeprefix("# ")


@pytest.mark.parametrize("block", blocks("docs/tutorial.md"), ids=title)
def test_the_tutorial(tmp_path: Path, block: str) -> None:
    run = run_pytest(tmp_path, block)
    assert run.counts == {"passed": 1}, run.text


def test_the_tutorials_time_out_is_what_one_sees() -> None:
    (shown,) = blocks("docs/tutorial.md", "text")
    with Cluster(3) as cluster:
        cluster.create_topic("orders", assignment=[[1, 2, 3]])
        cluster.broker(1).kill()
        cluster.wait_for(lambda c: c.partition("orders", 0).isr == {2, 3})
        with pytest.raises(errors.WaitTimeoutError) as found:
            cluster.wait_for(lambda c: c.partition("orders", 0).isr == {1, 2, 3}, timeout=0.01)
    head, *lines = f"kwire.errors.WaitTimeoutError: {found.value}".splitlines()
    assert head == shown.splitlines()[0].replace("5 s", "0.01 s")
    # Offsets differ: nothing was produced here.
    words = [re.sub(r"\d+\.\.\d+.*|watermark \d+", "", line) for line in shown.splitlines()[1:]]
    assert [re.sub(r"\d+\.\.\d+.*|watermark \d+", "", line) for line in lines] == words


@pytest.mark.parametrize(
    "block",
    [
        block
        for page in ("docs/python.md", "docs/faults.md", "docs/clock.md")
        for block in blocks(page)
        if "def test_" not in block
    ],
    ids=[
        *("cluster", "inside", "outside", "loop", "faults", "disks", "one-way", "clock", "life"),
        "frozen",
    ],
)
def test_the_reference(block: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    if "disk.fail" in block:  # the broker halts, and says so
        assert "a test has set this fault" in done.stderr and "Traceback" not in done.stderr
    else:
        assert done.stderr == ""


def test_the_references_fixture(tmp_path: Path) -> None:
    (block,) = [block for block in blocks("docs/python.md") if "def test_" in block]
    run = run_pytest(tmp_path, block)
    assert run.counts == {"passed": 1}, run.text


def readme_example() -> str:
    (block,) = [b for b in blocks("README.md") if "def test_" in b and "kwire_spark" not in b]
    return block


def test_the_readmes_example(tmp_path: Path) -> None:
    assert len(readme_example().strip().splitlines()) <= 8
    run = run_pytest(tmp_path, readme_example())
    assert run.counts == {"passed": 1}, run.text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_in_an_empty_environment_runs_the_readmes_example(tmp_path: Path) -> None:
    """pip install of the wheel, of pytest and a client, nothing else; needs a package index."""
    copy = tmp_path / "copy"
    for folder in ("kwire", "protocol", "replication"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, copy / name)
    build = [sys.executable, "-m", "build", "-q", "--wheel", "--no-isolation", "-o", str(tmp_path)]
    subprocess.run([*build, str(copy)], check=True, timeout=120, capture_output=True)
    (wheel,) = tmp_path.glob("kwire-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", str(wheel), "pytest", "confluent-kafka"]
    done = subprocess.run(install, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text(readme_example())
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q"], cwd=tests, capture_output=True, text=True, timeout=60
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_version_is_that_of_the_project() -> None:
    page = (ROOT / "pyproject.toml").read_text()
    assert 'version = { attr = "kwire.__version__" }' in page and kwire.__version__ not in page
