"""A client of the control API in TypeScript, made of its OpenAPI document and checked by the compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compat_tests import tooling

pytestmark = [pytest.mark.timeout(300), pytest.mark.kwire_only]

TOKEN = "a-token"
SOURCES = tooling.HERE / "node" / "control"


def run(folder: Path, *argv: str) -> str:
    """What a program of Node.js has printed; AssertionError with all of it when it fails."""
    done = subprocess.run(
        [tooling.node(), *argv], cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def kwire_up(*arguments: str) -> Iterator[str]:
    """`kwire up`: the address of its control API."""
    argv = [sys.executable, "-m", "kwire", "up", "--port", "0", *arguments]
    environment = {**os.environ, "KWIRE_CONTROL_TOKEN": TOKEN}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().partition("control=")[2]
        finally:
            process.kill()


def test_a_typed_client_is_made_and_drives_a_cluster(tmp_path: Path) -> None:
    modules = tooling.typescript()
    for source in [*SOURCES.glob("*.ts"), SOURCES / "tsconfig.json", SOURCES / "package.json"]:
        shutil.copy(source, tmp_path)
    (tmp_path / "node_modules").symlink_to(modules)
    with kwire_up("--brokers", "3") as url:
        shown = {"Authorization": f"Bearer {TOKEN}"}
        asked = urllib.request.Request(f"{url}/v1/openapi.json", headers=shown)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            (tmp_path / "openapi.json").write_bytes(answer.read())
        generate = "node_modules/openapi-typescript/bin/cli.js"
        run(tmp_path, generate, "openapi.json", "-o", "api.d.ts")
        # wrong.ts, too: each of its mistakes must be refused, or the compiler complains.
        run(tmp_path, "node_modules/typescript/bin/tsc", "-p", ".")
        printed = run(tmp_path, "built/client.js", url, TOKEN)
    found: dict[str, Any] = json.loads(printed)
    leader = found.pop("leader")
    assert found == {
        "brokers": [1, 2, 3],
        "offset": 0,
        "values": ["AP8="],
        "running": [False, True],
        "moved": True,
        "epoch": 1,
        "silent": [leader],
        "hits": 0,
        "refused": [404, "UNKNOWN_TOPIC_OR_PARTITION"],
    }
