"""The examples of README.md do what they say."""

import re
import shlex
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests import tooling
from compat_tests.brokers import Broker, KwireBroker, answers_metadata, free_port

ROOT = tooling.HERE.parent
KWIRE = [sys.executable, "-m", "kwire"]
pytestmark = [pytest.mark.timeout(60), pytest.mark.kwire_only]


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )


def lines_starting(start: str) -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines() if line.startswith(start)]


class Up(KwireBroker):
    """`kwire up` with the options of an example, on a port of the kernel's choice."""

    def __init__(self, folder: Path, line: str) -> None:
        super().__init__(folder)
        self.words = [word for word in shlex.split(line)[1:] if word != "--detach"]

    def _command(self) -> list[str]:
        return [*KWIRE, *self.words, "--port", "0", "--ready-file", str(self.ready_file)]


def test_there_are_five_examples() -> None:
    assert re.findall(r"^\*\*(\d)\. ", (ROOT / "README.md").read_text(), re.MULTILINE) == list(
        "12345"
    )


@pytest.mark.parametrize("line", lines_starting("kwire up"))
def test_every_kwire_up_starts_and_ends(tmp_path: Path, line: str) -> None:
    broker = Up(tmp_path, line)
    broker.start()
    assert answers_metadata(broker.port)
    assert broker.process is not None
    broker.process.send_signal(signal.SIGINT)
    assert broker.process.wait(20) == 0
    for dump in lines_starting("kwire dump-log") if "--data-dir" in line else []:
        subprocess.run([*KWIRE, *shlex.split(dump)[1:]], cwd=tmp_path, check=True, timeout=20)


def test_kcat_example_pasted_twice() -> None:
    tooling.kcat()
    (block,) = [block for block in blocks("sh") if "kcat -P" in block]
    port = str(free_port())
    commands = block.replace("9092", port).replace("kwire up", f"kwire up --port {port}")
    kwire = f'kwire() {{ {shlex.join(KWIRE)} "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-ec", kwire + commands + commands], capture_output=True, text=True, timeout=50
    )
    ready, *drinks, stopped = done.stdout.splitlines()[:4]
    assert ready == f"ready bootstrap=127.0.0.1:{port}", done
    assert sorted(drinks) == ["ann drinks tea", "bob drinks coffee"], done
    assert stopped.startswith(f"stopped kwire up at 127.0.0.1:{port} ")
    assert done.stdout.splitlines()[4] == ready
    assert sorted(done.stdout.splitlines()[5:7]) == sorted(drinks)


def test_python_example(broker: Broker) -> None:
    (code,) = [block for block in blocks("python") if "KafkaConsumer" in block]
    code = code.replace("localhost:9092", broker.bootstrap_servers)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40)
    assert done.stdout == "b'hello'\n", done.stderr


def test_as_version_offers_what_that_release_does(tmp_path: Path) -> None:
    import socket

    broker = Up(tmp_path, "kwire up --as-version 2.8")
    broker.start()
    body = struct.pack(">hhih", 18, 0, 1, -1)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=5) as sock:
        sock.sendall(struct.pack(">i", len(body)) + body)
        stream = sock.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    broker.kill9()
    offered = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10:])}
    assert offered[1] == (0, 12)  # Fetch
    assert 75 not in offered  # DescribeTopicPartitions
