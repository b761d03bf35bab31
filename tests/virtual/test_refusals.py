"""What virtual time does not have is refused in one line."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kwire import virtual
from kwire.errors import ConfigurationError, NotSupportedError
from kwire.virtual import World

Main = Callable[[World], Coroutine[Any, Any, Any]]


async def subprocess(world: World) -> None:
    await asyncio.create_subprocess_exec("true")


async def reader(world: World) -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def blocking_socket(world: World) -> None:
    socket.create_connection(("127.0.0.1", 9))


async def bound_socket(world: World) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        await asyncio.start_server(lambda r, w: None, sock=bound)


async def tls(world: World) -> None:
    await asyncio.open_connection("127.0.0.1", 9092, ssl=True)


async def datagrams(world: World) -> None:
    await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol)


async def thread(world: World) -> None:
    loop = asyncio.get_running_loop()
    other = threading.Thread(target=call, args=(loop,))
    other.start()
    other.join()
    await asyncio.sleep(1)


def call(loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(virtual.RefusedError):
        loop.call_soon_threadsafe(print)


async def confluent(world: World) -> None:
    from confluent_kafka import Producer

    Producer({})


async def kafka_python(world: World) -> None:
    from kafka import KafkaProducer

    KafkaProducer(bootstrap_servers="127.0.0.1:9092")


async def blocking_cluster(world: World) -> None:
    import kwire

    with kwire.Cluster():
        pass


async def uvloops(world: World) -> None:
    import uvloop

    uvloop.new_event_loop()


async def plain_cluster(world: World) -> None:
    import kwire.aio

    async with kwire.aio.Cluster():
        pass


async def world_in_world(world: World) -> None:
    virtual.run(subprocess)


REFUSED: list[tuple[Main, str]] = [
    (subprocess, "no subprocesses"),
    (reader, "no real sockets"),
    (blocking_socket, "a blocking socket in virtual time"),
    (bound_socket, "no real sockets"),
    (tls, "no TLS"),
    (datagrams, "no real sockets"),
    (thread, "thread .* calls into the loop"),
    (confluent, "confluent-kafka cannot run in virtual time"),
    (kafka_python, "kafka-python cannot run in virtual time"),
    (blocking_cluster, r"world\.cluster\(\) makes one"),
    (uvloops, "asyncio's own loop only"),
    (plain_cluster, r"made by world\.cluster\(\)"),
    (world_in_world, "a loop runs already in this thread"),
]


@pytest.mark.parametrize(("main", "text"), REFUSED, ids=[main.__name__ for main, _ in REFUSED])
def test_refused_in_one_line(main: Main, text: str) -> None:
    with pytest.raises(virtual.RefusedError, match=text) as raised:
        virtual.run(main)
    assert "\n" not in str(raised.value)


def test_clients_are_let_in_again_afterwards() -> None:
    import confluent_kafka

    with pytest.raises(virtual.RefusedError):
        virtual.run(confluent)
    assert confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1"}) is not None
    with socket.socket() as bound, socket.socket() as other:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        other.connect(bound.getsockname())


@pytest.mark.parametrize("option", ["isolation", "data_dir", "tls"])
def test_options_of_a_cluster_that_a_world_does_not_have(option: str) -> None:
    async def main(world: World) -> None:
        values: dict[str, Any] = {"isolation": "process", "data_dir": "/tmp/x", "tls": True}
        with pytest.raises(ConfigurationError, match=f"^{option}: "):
            world.cluster(**{option: values[option]})

    virtual.run(main)


def test_snapshots_say_why_not() -> None:
    async def main(world: World) -> None:
        async with world.cluster() as cluster:
            for call in (cluster.snapshot, cluster.snapshots, cluster.fork):
                with pytest.raises(NotSupportedError, match="in memory"):
                    await call()

    virtual.run(main)
