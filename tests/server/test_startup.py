"""What a start must not load. Times are bench/'s business; what costs them is this test's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Each costs milliseconds and none is needed before somebody asks for it.
LATE = {
    "construct", "cramjam", "json", "tempfile", "importlib.metadata", "click", "uvloop",
    "kwire.protocol.language.compiler", "kwire.protocol.message_set", "kwire.apis.releases",
    "kwire.protocol.conversion",
}  # fmt: skip


ROOT = Path(__file__).resolve().parents[2]


def loaded_by(program: str) -> set[str]:
    code = f"import sys\nbefore = set(sys.modules)\n{program}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        cwd=ROOT,
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


MODULES_AT_START = 109
"""How many modules of kwire `kwire up` may have imported when it is ready; each is 0.1 to 1 ms. Whoever needs fewer
lowers the number; a higher one needs a reason."""


def modules_of(*command: str) -> set[str]:
    """The modules that `kwire up` has imported when it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "kwire", "up", "--port", "0", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    process.terminate()
    _, log = process.communicate(timeout=20)
    lines = [line.split("|") for line in log.splitlines() if line.startswith("import time:")]
    return {parts[2].strip() for parts in lines[1:]}


@pytest.mark.parametrize("more", [(), ("-c", "num.partitions=2", "--log-level", "error")])
def test_a_start_imports_nothing_that_it_does_not_need(more: tuple[str, ...]) -> None:
    loaded = modules_of(*more)
    assert "uvloop" in loaded
    unused = {"uuid", "platform", "shutil", "kwire.cli.up", "ssl", "inspect", "ast", "dis"}
    assert not loaded & (LATE - {"uvloop"} | unused)
    own = {name for name in loaded if name.partition(".")[0] == "kwire"}
    assert len(own) <= MODULES_AT_START, f"{len(own)}: {sorted(own)}"


BROKER = """
import random
from kwire.broker import Broker
from kwire.protocol.api import encode_request, key_of, parse_response
from kwire.replication.core.clock import Clock
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Outbox, Reply
outbox, clock = Outbox(), Clock(1, 1)
store = MemoryLogStore(lambda: 1)
broker = Broker(BrokerConfig({"node.id": "1"}), store, clock, outbox, random.Random(1))
broker.start([Endpoint("PLAINTEXT", "127.0.0.1", 9092)])
broker.connection_opened(1, "PLAINTEXT", "127.0.0.1")

class Client:
    asked = []

    def ask(self, request, version=None):
        key = key_of(request)
        version = broker.sessions.ranges[key][1] if version is None else version
        frame = b"".join(bytes(part) for part in encode_request(key, version, 7, "x", request))
        broker.receive_frame(1, frame[4:])
        self.asked.append(key)
        while True:
            for effect in outbox.drain():
                if isinstance(effect, Reply):
                    assert not broker.failed
                    return parse_response(key, version, b"".join(effect.parts)[4:])[1]
            clock.now_ms += 1
            broker.tick()
"""


def test_a_started_broker_that_answered_metadata_has_not_loaded_construct() -> None:
    program = """
from kwire.protocol.schemas.metadata import MetadataRequest
Client().ask(MetadataRequest(topics=None), 12)
"""
    loaded = loaded_by(BROKER + program)
    assert "kwire.apis.metadata" in loaded
    assert not loaded & {"construct", "cramjam", "click", "asyncio", "ssl"}


def test_the_first_producer_and_the_first_group_compile_no_codec() -> None:
    """Compiling the codecs of these requests was half of their price: 20 ms of CPU."""
    program = """
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from bench.lifetime import flow
client = Client()
client.ask(ApiVersionsRequest(client_software_name="c", client_software_version="1"))
flow(client, "orders")
assert len(set(client.asked)) == 14, client.asked
"""
    loaded = loaded_by(BROKER + program)
    assert "kwire.apis.groups" in loaded
    assert "kwire.protocol.language.interpreter" in loaded
    compilers = {"compiler", "decode_writer", "encode_writer", "source_writer"}
    assert not loaded & {f"kwire.protocol.language.{name}" for name in compilers}


AFTERWARDS = """
import sys
from kwire.cli.placeholders import import_event_loop

import_event_loop()
assert not {"ssl", "inspect"} & set(sys.modules)
import asyncio, functools, signal

async def wait(): await asyncio.sleep(0)
class Waiter:
    async def wait(self): ...
    def stop(self): ...

for coroutine in (wait, Waiter().wait, functools.partial(wait)):
    assert asyncio.iscoroutinefunction(coroutine), coroutine
for function in (print, Waiter().stop, functools.partial(Waiter().stop), Waiter):
    assert not asyncio.iscoroutinefunction(function), function

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    await asyncio.open_connection(*server.sockets[0].getsockname())
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
    assert await process.wait() == 0

import uvloop
uvloop.run(main())
asyncio.run(main())

import inspect, ssl
assert inspect.signature(wait).parameters == {}
assert ssl.create_default_context().check_hostname
"""


def test_an_event_loop_without_ssl_and_inspect_works_and_both_can_be_imported_later() -> None:
    loaded_by(AFTERWARDS)
