"""What a start must not load. Times are bench/'s business; what costs them is this test's."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each costs milliseconds and none is needed before somebody asks for it.
LATE = {
    "construct", "cramjam", "json", "tempfile", "importlib.metadata", "click", "uvloop",
    "kwire.protocol.language.compiler", "kwire.protocol.message_set", "kwire.apis.releases",
}  # fmt: skip


def loaded_by(program: str) -> set[str]:
    code = f"import sys\nbefore = set(sys.modules)\n{program}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    return set(done.stdout.split())


def test_importing_the_node_loads_no_schema_no_handler_and_nothing_heavy() -> None:
    loaded = loaded_by("import kwire.server.node")
    assert "kwire.server.node" in loaded
    assert not loaded & LATE
    schemas = {
        name for name in loaded if name.startswith(("kwire.protocol.schemas.", "kwire.apis."))
    }
    assert not schemas


@pytest.mark.parametrize("module", ["kwire.launch.up", "kwire.broker"])
def test_the_rest_of_the_server_loads_no_codec_and_no_definition_language(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert not loaded & (LATE - {"kwire.protocol.language.compiler"})


def test_a_started_broker_that_answered_metadata_has_not_loaded_construct() -> None:
    program = """
import os, random
sys.path.insert(0, "tests/server")
from kwire.broker import Broker
from kwire.protocol.api import encode_request
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.replication.core.clock import Clock
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Outbox
outbox, clock = Outbox(), Clock(1, 1)
store = MemoryLogStore(lambda: 1)
broker = Broker(BrokerConfig({"node.id": "1"}), store, clock, outbox, random.Random(1))
broker.start([Endpoint("PLAINTEXT", "127.0.0.1", 9092)])
broker.connection_opened(1, "PLAINTEXT", "127.0.0.1")
request = b"".join(bytes(p) for p in encode_request(3, 12, 7, "x", MetadataRequest(topics=None)))
broker.receive_frame(1, request[4:])
assert len(outbox.drain()) == 1 and not broker.failed
"""
    loaded = loaded_by(program)
    assert "kwire.apis.metadata" in loaded
    assert not loaded & {"construct", "cramjam", "click", "asyncio", "ssl"}
