"""What is wrong with a call is told in one line, by an error of kwire's own, and nothing is left running."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster, aio, errors
from kwire.backends.launched import Launched

pytestmark = pytest.mark.timeout(60)

ASK = "the cluster does not run: start it, or use it as a context"


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    threads = threading.active_count()
    yield
    assert threading.active_count() == threads
    assert list(tmp_path.glob("kwire-*")) == []


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a topic; nothing in these tests changes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("shared")))
        cluster = Cluster(2, topics=["u"])
        cluster.start()
    yield cluster
    cluster.stop()


def refused(kind: type[errors.KwireError], call: Callable[[], object]) -> str:
    with pytest.raises(errors.KwireError) as found:
        call()
    assert type(found.value) is kind, repr(found.value)
    text = str(found.value)
    assert "\n" not in text and len(text) < 400
    return text


# -- options ----------------------------------------------------------------------------------------------------------

OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"brokers": "3"}, "brokers: expected a number from 1, not '3'"),
    ({"brokers": 0}, "brokers: expected a number from 1, not 0"),
    ({"brokers": True}, "brokers: expected a number from 1, not True"),
    ({"brokers": 101}, "brokers: at most 100, not 101"),
    ({"config": ["a=b"]}, "config: expected keys and values, not ['a=b']"),
    ({"config": {1: 2}}, "config: a key: expected a text, not 1"),
    ({"config": {"num.partitions": None}}, "Invalid value None for configuration num.partitions"),
    ({"config": {"compression.type": "rar"}}, "compression.type"),
    ({"config": {"listeners": "x"}}, "listeners"),
    ({"config": {"listeners": "SSL://127.0.0.1:0"}}, "no listener speaks it (SSL)"),
    ({"isolation": "vm"}, 'isolation: expected "thread", "process" or "docker", not \'vm\''),
    ({"isolation": None}, 'isolation: expected "thread", "process" or "docker", not None'),
    ({"topics": 5}, "topics: expected names, not 5"),
    ({"topics": [5]}, "topics: expected NAME[:PARTITIONS[:REPLICATION]], not 5"),
    ({"topics": ["t:0"]}, "topics: expected NAME[:PARTITIONS[:REPLICATION]], not 't:0'"),
    ({"topics": {"t": -1}}, "not 't:-1'"),
    ({"racks": "ab"}, """racks: expected names, ["a", "b"], not 'ab'"""),
    ({"racks": [1]}, "racks: expected a text, not 1"),
    ({"racks": [""]}, "racks: a rack has no name"),
    ({"racks": ["a", "b"]}, "racks: 2 racks (a, b) for 1 broker(s)"),
    ({"racks": ["a"], "brokers": "1"}, "brokers: expected a number from 1, not '1'"),
    ({"config": {"replica.lag.time.max.ms": 9}}, "at least replica.fetch.wait.max.ms (500, the"),
    (
        {"fast": True, "config": {"replica.fetch.wait.max.ms": 5000}},
        "replica.lag.time.max.ms (3000)",
    ),
    (
        {"config": {"2:num.partitions": 1}},
        "config: 2:num.partitions: there is no broker 2, but 1 only",
    ),
    ({"config": {"1:num.partitions": "x"}}, "Invalid value x for configuration num.partitions"),
    ({"data_dir": 5}, "data_dir: expected a path, not 5"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS, ids=str)
def test_options(options: dict[str, Any], said: str) -> None:
    assert said in refused(errors.ConfigurationError, lambda: Cluster(**options).start())


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'partitions'"):
        Cluster(partitions=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("topic", "kafka_error"),
    [("a b", "INVALID_TOPIC_EXCEPTION"), ("t:1:3", "INVALID_REPLICATION_FACTOR")],
)
def test_a_topic_of_the_start_that_cannot_be(topic: str, kafka_error: str) -> None:
    assert kafka_error in refused(errors.RequestError, Cluster(topics=[topic]).start)


# -- ports and directories --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_port_in_use(isolation: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        cluster = Cluster(2, config={"listeners": f"PLAINTEXT://{address}"}, isolation=isolation)
        said = refused(errors.StartError, cluster.start)
        assert said.startswith("broker 1: ") and address in said
        assert not cluster.started


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_directories_that_cannot_be(isolation: str, tmp_path: Path) -> None:
    def start(path: Path) -> Callable[[], None]:
        return Cluster(2, isolation=isolation, data_dir=path).start

    file = tmp_path / "file"
    file.touch()
    assert f"data directory {file} is not a directory" in refused(errors.StartError, start(file))
    assert f"{file}/x: Not a directory" in refused(errors.StartError, start(file / "x"))
    one, other = tmp_path / "one", tmp_path / "other"
    with Cluster(2, data_dir=one):
        assert "is in use: another process" in refused(errors.StartError, start(one))
    with Cluster(2, data_dir=other):
        pass
    shutil.rmtree(one / "broker-2")
    shutil.move(other / "broker-2", one / "broker-2")
    assert "belongs to cluster" in refused(errors.StartError, start(one))


# -- a cluster elsewhere ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "servers", ["", "nowhere", "localhost:99999", "localhost:x", 5, "a:1,,b:2"]
)
def test_no_addresses(servers: Any) -> None:
    said = refused(errors.ConfigurationError, lambda: Cluster.connect(servers))
    assert said == f"bootstrap servers: expected HOST:PORT[,HOST:PORT…], not {servers!r}"


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_nobody_answers(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{host}:{server.getsockname()[1]}"
    said = refused(errors.BrokerNotAvailableError, lambda: Cluster.connect(address))
    assert said.startswith(f"no broker answers: {address}: ")


def test_who_answers_is_no_kafka() -> None:
    def talk(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        thread = threading.Thread(target=talk, args=(server,))
        thread.start()
        said = refused(errors.BrokerNotAvailableError, lambda: Cluster.connect(address))
        thread.join()
    assert said.startswith(f"no broker answers: {address}: this is an HTTP server, no Kafka broker")


# -- calls ------------------------------------------------------------------------------------------------------------

CALLS: list[tuple[Callable[[Cluster], object], type[errors.KwireError], str]] = [
    (lambda c: c.broker("1"), errors.ClusterStateError, "no broker '1'; the brokers are [1, 2]"),  # type: ignore[arg-type]
    (lambda c: c.broker(0), errors.ClusterStateError, "no broker 0; the brokers are [1, 2]"),
    (lambda c: c.create_topic(5), errors.ConfigurationError, "topic: expected a text, not 5"),  # type: ignore[arg-type]
    (lambda c: c.create_topic("x" * 40_000), errors.RequestError, "INVALID_"),
    (lambda c: c.create_topic("t", 0), errors.RequestError, "INVALID_PARTITIONS"),
    (lambda c: c.create_topic("t", "3"), errors.RequestError, "num_partitions"),  # type: ignore[arg-type]
    (lambda c: c.create_topic("t", 2**40), errors.RequestError, "num_partitions"),
    (lambda c: c.create_topic("t", config={"retention.ms": "x"}), errors.RequestError, "LONG"),
    (lambda c: c.create_topic("t", config={"no.key": 1}), errors.RequestError, "no.key"),
    (lambda c: c.create_topic("t", config=[1]), errors.ConfigurationError, "config: expected"),  # type: ignore[arg-type]
    (lambda c: c.create_topic("t", 1, assignment=[[1]]), errors.ConfigurationError, "not beside"),
    (lambda c: c.create_topic("t", assignment=[1]), errors.ConfigurationError, "not [1]"),  # type: ignore[list-item]
    (lambda c: c.create_topic("t", assignment=[]), errors.ConfigurationError, "not []"),
    (lambda c: c.create_topic("t", assignment=[[9]]), errors.RequestError, "broker 9"),
    (lambda c: c.delete_topic(None), errors.ConfigurationError, "topic: expected a text"),  # type: ignore[arg-type]
    (lambda c: c.partition("u", "0"), errors.ConfigurationError, "partition: expected a whole"),  # type: ignore[arg-type]
    (lambda c: c.partition(["u"], 0), errors.ConfigurationError, "topic: expected a text"),  # type: ignore[arg-type]
    (lambda c: c.partition("u", -1), errors.UnknownTopicOrPartitionError, "no partition u--1"),
    (lambda c: c.partition("u", 0).replica(9), errors.ClusterStateError, "no replica of u-0"),
    (lambda c: c.elect("u", 0, "1"), errors.ConfigurationError, "leader: expected a whole"),  # type: ignore[arg-type]
    (lambda c: c.elect("u", 0, 9), errors.RequestError, "broker 9 cannot lead u-0"),
    (lambda c: c.network.cut(None, 2), errors.ConfigurationError, "ids of nodes, not None"),  # type: ignore[arg-type]
    (lambda c: c.network.cut("12", 2), errors.ConfigurationError, "ids of nodes, not '12'"),  # type: ignore[arg-type]
    (lambda c: c.network.cut(1, [2, 9]), errors.ClusterStateError, "no broker 9"),
    (lambda c: c.network.cut(1, {1, 2}), errors.ConfigurationError, "two different sets"),
    (lambda c: c.network.delay(1, 2, -5), errors.ConfigurationError, "milliseconds"),
    (lambda c: c.network.delay(1, 2, "5"), errors.ConfigurationError, "milliseconds"),  # type: ignore[arg-type]
    (lambda c: c.network.delay(1, 2, float("nan")), errors.ConfigurationError, "not nan"),
    (lambda c: c.network.delay(1, 2, float("inf")), errors.ConfigurationError, "not inf"),
    (lambda c: c.network.heal(9), errors.ClusterStateError, "no broker 9"),
    (lambda c: c.wait_for(5), errors.ConfigurationError, "wait_for: expected a function, not 5"),  # type: ignore[arg-type]
    (
        lambda c: c.wait_for(lambda c: 1, "5"),
        errors.ConfigurationError,
        "timeout: expected seconds",
    ),  # type: ignore[arg-type]
    (lambda c: c.wait_for(lambda c: asyncio.sleep(0)), errors.ConfigurationError, "kwire.aio"),
]


@pytest.mark.parametrize(("call", "kind", "said"), CALLS)
def test_calls(
    call: Callable[[Cluster], object], kind: type[errors.KwireError], said: str, shared: Cluster
) -> None:
    assert said in refused(kind, lambda: call(shared))
    assert shared.topics() == {"u": 1} and shared.failures() == []


def test_a_question_that_a_process_cannot_answer_is_answered_all_the_same() -> None:
    async def ask(cluster: aio.Cluster) -> None:
        assert isinstance(cluster.inside, Launched)
        for method, path, said in (
            ("PUT", "/v1/network", "rules: missing"),
            ("GET", "/v1/topics/u/partitions/x/replica", "expected a number, not 'x'"),
            ("GET", "/v1/topics", "no controller runs in this process"),
            ("GET", "/v1/nothing", "there is no GET /v1/nothing"),
        ):
            with pytest.raises(errors.RequestError, match=said):
                await cluster.inside.ask(1, method, path)
        assert await cluster.topics() == {"u": 1}

    async def main() -> None:
        for isolation in ("thread", "process"):
            async with aio.Cluster(isolation=isolation, topics=["u"]) as cluster:
                await asyncio.wait_for(ask(cluster), 20)

    asyncio.run(main())


# -- at the wrong time, from the wrong place --------------------------------------------------------------------------

ANY_TIME: list[Callable[[Cluster], object]] = [
    lambda c: c.bootstrap_servers,
    lambda c: c.brokers,
    lambda c: c.broker(1),
    lambda c: c.controller_id,
    lambda c: c.topics(),
    lambda c: c.create_topic("t"),
    lambda c: c.partition("t", 0),
    lambda c: c.groups(),
    lambda c: c.group("g"),
    lambda c: c.records("t"),
    lambda c: c.produce("t", "v"),
    lambda c: c.network.cut(1, 2),
    lambda c: c.network.heal(),
    lambda c: c.reset(),
    lambda c: c.describe(),
    lambda c: c.failures(),
    lambda c: c.wait_for(lambda c: c.topics(), 60),
]


def test_before_the_start_and_after_the_end() -> None:
    cluster = Cluster(2)
    for call in ANY_TIME:
        assert refused(errors.ClusterStateError, lambda call=call: call(cluster)) == ASK  # type: ignore[misc]
    with cluster:
        broker = cluster.broker(1)
    for call in ANY_TIME:
        assert refused(errors.ClusterStateError, lambda call=call: call(cluster)) == ASK  # type: ignore[misc]
    for name in ("kill", "stop", "start", "pause", "resume"):
        assert refused(errors.ClusterStateError, getattr(broker, name)) == ASK
    cluster.stop()


def test_a_broker_that_is_down_or_paused() -> None:
    with Cluster(2) as cluster:
        broker = cluster.broker(1)
        broker.pause()
        assert "is paused: resume it" in refused(errors.ClusterStateError, broker.start)
        assert "is paused" in refused(
            errors.BrokerNotAvailableError, lambda: cluster.network.cut(1, 2)
        )
        broker.resume()
        for end in (broker.kill, broker.stop, broker.resume):
            end()
        assert "does not run: start it" in refused(errors.ClusterStateError, broker.pause)


def test_a_cut_that_a_paused_broker_cannot_be_told_of_changes_nothing() -> None:
    async def main() -> None:
        async with aio.Cluster(2) as cluster:
            network = cluster.network

            def delays() -> list[float]:
                """The delays that hold: from broker 1 to 2, and back."""
                handles = (cluster.node(1), cluster.node(2))
                peers = [each.runner.node.peer_connections() for each in handles]  # type: ignore[attr-defined]
                return [peers[0].delay_of(2), peers[1].delay_of(1)]

            await cluster.broker(1).pause()
            with pytest.raises(errors.BrokerNotAvailableError, match="broker 1 is paused"):
                await network.delay(2, 1, 500)
            assert network.rules_of(2) == [] and delays() == [0, 0]
            await cluster.broker(1).resume()
            await network.delay(2, 1, 500)
            assert delays() == [0.5, 0.5]
            await cluster.broker(1).pause()
            with pytest.raises(errors.BrokerNotAvailableError, match="broker 1 is paused"):
                await network.heal()
            assert len(network.rules_of(2)) == 1 and delays() == [0.5, 0.5]
            await cluster.reset()
            assert network.rules_of(2) == [] and delays() == [0, 0]

    asyncio.run(main())


def test_from_its_own_loop_another_loop_and_a_child_process(shared: Cluster) -> None:
    async def inner() -> object:
        return shared.topics()

    assert shared._thread is not None
    said = refused(errors.ClusterStateError, lambda: shared._thread.run(inner()))  # type: ignore[union-attr]
    assert "not for its own loop" in said

    pid = os.fork()
    if pid == 0:
        try:
            shared.topics()
        except errors.ClusterStateError as error:
            os._exit(7 if "the process that started it" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

    loop = asyncio.new_event_loop()
    cluster = aio.Cluster()
    loop.run_until_complete(cluster.start())
    begin = time.monotonic()
    for call in (
        lambda: cluster.create_topic("t"),
        lambda: cluster.topics(),
        lambda: cluster.partition("t", 0),
        lambda: cluster.broker(1).kill(),
        lambda: cluster.stop(),
    ):
        said = refused(errors.ClusterStateError, lambda call=call: asyncio.run(call()))  # type: ignore[misc]
        assert "another event loop" in said
    assert time.monotonic() - begin < 5
    loop.run_until_complete(cluster.stop())
    loop.close()


# -- kwire up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_several_brokers_at_the_command_line(isolation: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    taken = socket.create_server(("127.0.0.1", 0))
    port = str(taken.getsockname()[1])
    held = Cluster(2, data_dir=tmp_path / "held")
    held.start()
    try:
        for arguments, status, said in [
            (["--port", port], 1, f"broker 1: cannot listen on 127.0.0.1:{port}"),
            (["--data-dir", str(file)], 1, f"data directory {file} is not a directory"),
            (
                ["--data-dir", str(tmp_path / "held")],
                1,
                f"{tmp_path}/held is in use: another process",
            ),
            (["--topic", "a b"], 2, "--topic a b"),
            (["--topic", "a:1:3"], 2, "eplication factor"),
            (["-c", "num.partitions=x"], 2, "num.partitions"),
            (["--isolation", "docker"], 2, "--isolation"),
            (["--ready-file", str(file / "x")], 1, "ready file"),
        ]:
            command = ["-m", "kwire", "up", "--brokers", "2", "--isolation", isolation]
            command += ["--log-level", "error", *([] if "--port" in arguments else ["--port", "0"])]
            done = subprocess.run(
                [sys.executable, *command, *arguments], capture_output=True, text=True, timeout=30
            )
            assert done.returncode == status, (arguments, done)
            (line,) = done.stderr.splitlines()
            assert line.startswith("kwire up: ") and said in line, line
            assert done.stdout == ""
    finally:
        held.stop()
        taken.close()
    assert nodes_of(tmp_path) == []


def nodes_of(folder: Path) -> list[str]:
    """Command lines of processes that have to do with this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line and b"kwire" in line:
                found.append(line.decode())
    return found
