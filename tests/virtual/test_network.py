"""The network in memory: what TCP promises, and what a test does to it."""

import asyncio

import pytest

from kwire import virtual
from kwire.virtual import World


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(world: World) -> asyncio.AbstractServer:
    with world.host("server"):
        return await asyncio.create_task(asyncio.start_server(echo, "127.0.0.1", 7000))


def test_bytes_arrive_in_order_and_late_and_the_end_after_them() -> None:
    async def main(world: World) -> None:
        server = await serve(world)
        reader, writer = await asyncio.open_connection("localhost", 7000)
        sent = b"".join(b"%d," % number for number in range(20_000))
        began = world.now
        for start in range(0, len(sent), 777):
            writer.write(sent[start : start + 777])
            await writer.drain()
        writer.write_eof()
        assert await reader.read() == sent
        assert 0.0002 < world.now - began < 1
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("localhost", 7000)

    virtual.run(main)


def test_a_writer_waits_for_a_reader_that_stands_still() -> None:
    async def main(world: World) -> None:
        await serve(world)
        reader, writer = await asyncio.open_connection("localhost", 7000)
        world.freeze("server")
        writer.write(bytes(1_000_000))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await writer.drain()
        world.thaw("server")
        assert len(await reader.readexactly(1_000_000)) == 1_000_000
        await writer.drain()

    virtual.run(main)


def test_what_is_sent_over_a_cut_link_arrives_when_it_is_healed() -> None:
    async def main(world: World) -> None:
        await serve(world)
        with world.host("client"):
            opening = asyncio.create_task(asyncio.open_connection("localhost", 7000))
        reader, writer = await opening
        world.network.cut("client", "server")
        writer.write(b"late")
        with world.host("client"):
            second = asyncio.create_task(asyncio.open_connection("localhost", 7000))
        await asyncio.sleep(10)
        assert not second.done()
        world.network.heal("client")
        assert await reader.readexactly(4) == b"late"
        assert 10 < world.now < 10.1
        _, other = await second
        other.close()

    virtual.run(main)


def test_delays_and_resets() -> None:
    async def main(world: World) -> None:
        await serve(world)
        with world.host("client"):
            opening = asyncio.create_task(asyncio.open_connection("localhost", 7000))
        reader, writer = await opening
        world.network.delay("client", "server", ms=500)
        began = world.now
        writer.write(b"x")
        await reader.readexactly(1)
        assert 1 < world.now - began < 1.1
        world.network.heal()
        began = world.now
        writer.write(b"x")
        await reader.readexactly(1)
        assert world.now - began < 0.1
        assert world.network.reset("client") == 1
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        with pytest.raises(virtual.VirtualTimeError, match="milliseconds from 0"):
            world.network.delay("client", ms=-1)
        with pytest.raises(virtual.VirtualTimeError, match="there is no host 'nobody'"):
            world.network.cut("client", "nobody")

    virtual.run(main)


def test_a_crashed_host_runs_no_more_and_its_connections_are_reset() -> None:
    async def main(world: World) -> None:
        ticks: list[float] = []
        await serve(world)

        async def client() -> None:
            await asyncio.open_connection("localhost", 7000)
            while True:
                ticks.append(world.now)
                await asyncio.sleep(1)

        with world.host("client"):
            task = asyncio.create_task(client())
        await asyncio.sleep(3.5)
        world.crash("client")
        await asyncio.sleep(60)
        await world.calm()
        assert len(ticks) == 4 and not task.done()

    virtual.run(main)
