"""The shell and Python blocks of README.md and docs/, and how a reader would run them.

Every ```sh, ```console and ```python block is run as it stands, twice in a row in one folder, by
`test_pages_run.py`. What a reader knows and a block does not say stands in an HTML comment on the
line before it, which no page shows:

    <!-- skip: REASON -->       not run
    <!-- with: COMMAND -->      COMMAND (`kwire up …`) runs in another terminal meanwhile
    <!-- continues -->          in the same shell as the block before it
    <!-- in the checkout -->    in the project's folder instead of an empty one

`kwire up` and `kwire node` without --detach are what a reader leaves running in a terminal: they run
in the background until the block has ended. A console block's commands start with "$ "; the other
lines are output that must come in this order, where numbers may differ and "…" is anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHELL, PYTHON = ("sh", "console"), ("python",)
_BLOCK = re.compile(
    r"(?:^<!-- (?P<comment>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_PREAMBLE = """\
foreground() {
    exec {output}< <(exec "$@" 2>>"$LOGS/foreground.log")
    running+=($!)
    if ! IFS= read -r -t 30 ready <&"$output"; then
        echo "not ready: $*"; cat "$LOGS/foreground.log"; exit 1
    fi
    echo "$ready"
}
finish() {
    for ((i = ${#running[@]} - 1; i >= 0; i--)); do  # brokers before their controllers
        kill -INT "${running[i]}"
        wait "${running[i]}" || { echo "status $? of a command in the foreground"; exit 1; }
    done
    running=()
}
running=()
left() {  # by a block that has failed
    status=$?
    kill -INT "${running[@]}" || true
    kwire down --all || true
    exit $status
}
trap 'left &>/dev/null' EXIT
set -eo pipefail
"""
_FOREGROUND = re.compile(r"^(kwire (?:up|node) (?!.*--(?:detach|help)\b).*?)(?<!&)$")


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    page: str
    line: int
    language: str
    text: str
    skip: str = ""
    beside: str = ""
    in_checkout: bool = False

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_pytest(self) -> bool:
        return self.language == "python" and re.search(r"^def test_", self.text, re.M) is not None

    @property
    def needs_spark(self) -> bool:
        return "kwire_spark" in self.text

    @property
    def commands(self) -> str:
        """What a reader would type."""
        if self.language != "console":
            return self.text
        lines = re.findall(r"^\$ (.*(?:\\\n.*)*)$", self.text, re.M)
        return "\n".join(lines) + "\n"

    @property
    def shown(self) -> list[str]:
        """The lines of output that the page shows."""
        if self.language != "console":
            return []
        without_commands = re.sub(r"^\$ .*(?:\\\n.*)*\n", "", self.text, flags=re.M)
        return [line for line in without_commands.splitlines() if line.strip()]


def pages() -> list[str]:
    found = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return ["README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in found)]


def blocks(page: str) -> list[Block]:
    """The page's blocks; one that continues another is part of it."""
    text = (ROOT / page).read_text()
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        comment = match["comment"] or ""
        kind, _, rest = comment.partition(": ")
        block = Block(
            page,
            text.count("\n", 0, match.start("language")) + 1,
            match["language"],
            match["text"],
            skip=rest if kind == "skip" else "",
            beside=rest if kind == "with" else "",
            in_checkout=comment == "in the checkout",
        )
        if comment == "continues":
            before = found.pop()
            assert before.language == block.language, block.id
            block = Block(
                page,
                before.line,
                before.language,
                before.text + block.text,
                before.skip,
                before.beside,
                before.in_checkout,
            )
        found.append(block)
    return found


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


@dataclass(frozen=True)
class Ran:
    """What came of running a block once."""

    status: int
    output: str
    seconds: float


def shell_script(block: Block) -> str:
    """The block for bash: what a reader leaves running is run in the background."""
    lines = [_FOREGROUND.sub(r"foreground \1", line) for line in block.commands.splitlines()]
    beside = f"foreground {block.beside}\n" if block.beside else ""
    return f"{_PREAMBLE}{beside}" + "\n".join(lines) + "\nfinish\n"


def run_script(script: str, folder: Path, logs: Path, seconds: float = 90.0) -> Ran:
    """Run it in `folder` with bash, in a network of its own where that is possible: the ports of a
    page are then free whatever else runs on this machine."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LOGS": str(logs),
        "KWIRE_RUNTIME_DIR": str(logs / "running"),
    }
    began = time.monotonic()
    done = subprocess.run(
        [*own_network(), "bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
    )
    return Ran(done.returncode, done.stdout, time.monotonic() - began)


def own_network() -> list[str]:
    """The command that runs another one with its own loopback; [] where the kernel forbids it."""
    up = [
        "unshare",
        "--net",
        sys.executable,
        "-c",
        "import fcntl, os, socket, struct, sys\n"
        "s = socket.socket()\n"
        "fcntl.ioctl(s, 0x8914, struct.pack('16sh', b'lo', 0x41))\n"  # SIOCSIFFLAGS: up, running
        "s.close()\n"
        "os.execvp(sys.argv[1], sys.argv[1:])",
    ]
    try:
        works = subprocess.run([*up, "true"], capture_output=True, timeout=20).returncode == 0
    except OSError:
        return []
    return up if works else []


def as_pattern(line: str) -> re.Pattern[str]:
    """A shown line: numbers may differ, "…" is anything."""
    words = re.split(r"(\d+|…)", line.rstrip())
    parts = {"…": ".*"}
    return re.compile(
        "".join(r"\d+" if w.isdecimal() else parts.get(w) or re.escape(w) for w in words)
    )


def missing_output(shown: list[str], output: str) -> str | None:
    """The first shown line that does not come, in this order; None when all do."""
    lines = iter(output.splitlines())
    for line in shown:
        pattern = as_pattern(line)
        if not any(pattern.fullmatch(each.rstrip()) for each in lines):
            return line
    return None
