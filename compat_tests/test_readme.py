"""README.md: its blocks are run by `test_pages_run.py`; here is the rest of what it says."""

import re
import struct
from pathlib import Path

import pytest

from compat_tests import tooling
from compat_tests.brokers import KwireBroker

ROOT = tooling.HERE.parent
pytestmark = [pytest.mark.timeout(60), pytest.mark.kwire_only]


class As28(KwireBroker):
    options = ("--as-version", "2.8")


def test_there_are_six_examples() -> None:
    assert re.findall(r"^\*\*(\d)\. ", (ROOT / "README.md").read_text(), re.MULTILINE) == list(
        "123456"
    )


def test_as_version_offers_what_that_release_does(tmp_path: Path) -> None:
    import socket

    broker = As28(tmp_path)
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
