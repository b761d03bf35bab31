"""A cluster of a world is kwire.aio.Cluster with its verbs."""

import asyncio
import logging

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kwire import virtual
from kwire.virtual import World

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def test_an_application_survives_the_death_of_a_leader() -> None:
    async def main(world: World) -> None:
        async with world.cluster(brokers=3, topics=["t:1:3"]) as cluster:
            with world.host("p"):
                producer = AIOKafkaProducer(
                    bootstrap_servers=cluster.bootstrap_servers, acks="all", enable_idempotence=True
                )
                await producer.start()
            for number in range(10):
                await producer.send_and_wait("t", b"%d" % number)
            leader = (await cluster.partition("t", 0)).leader
            await cluster.broker(leader).kill()
            for number in range(10, 20):
                await producer.send_and_wait("t", b"%d" % number)
            await cluster.broker(leader).start()
            await cluster.wait_in_sync("t", timeout=60)
            await producer.stop()
            assert [int(each.value) for each in await cluster.records("t")] == list(range(20))
            await cluster.elect("t", 0, leader)
            assert [each.name for each in await cluster.events("LEADER_ELECTED", topic="t")]
            assert await cluster.failures() == []

    virtual.run(main)


def test_a_dead_member_is_replaced_after_45_seconds() -> None:
    async def main(world: World) -> float:
        async with world.cluster(brokers=3, topics={"t": 4}) as cluster:
            consumers = []
            for name in ("c1", "c2"):
                with world.host(name):
                    consumer = AIOKafkaConsumer(
                        "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g",
                        session_timeout_ms=45_000,
                    )  # fmt: skip
                    await asyncio.create_task(consumer.start())
                    consumers.append(consumer)
            while [len(each.assignment()) for each in consumers] != [2, 2]:
                await asyncio.sleep(0.1)
            world.freeze("c2")
            began = world.now
            while len(consumers[0].assignment()) < 4:
                await asyncio.sleep(0.1)
            taken = world.now - began
            world.thaw("c2")
            while [len(each.assignment()) for each in consumers] != [2, 2]:
                await asyncio.sleep(0.1)
            for each in consumers:
                await each.stop()
            return taken

    assert 40 < virtual.run(main) < 49


def test_verbs_of_a_cluster() -> None:
    async def main(world: World) -> None:
        async with world.cluster(
            brokers=3, topics=["t:1:3"], controllers=2, recent_requests=True
        ) as cluster:
            assert cluster.hosts == [
                "controller-1000",
                "controller-1001",
                "broker-1",
                "broker-2",
                "broker-3",
            ]
            await cluster.broker(2).pause()
            await asyncio.sleep(15)
            assert 2 not in (await cluster.partition("t", 0)).isr
            await cluster.broker(2).resume()
            await cluster.wait_in_sync("t", timeout=30)
            async with cluster.network.cut(1, 3):
                await asyncio.sleep(60)
            await cluster.wait_in_sync("t", timeout=30)
            fault = await cluster.faults.inject("Produce", error="NOT_ENOUGH_REPLICAS", times=1)
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send_and_wait("t", b"x")
            assert await fault.hits() == 1
            before = cluster.clock.now()
            assert (await cluster.clock.advance(hours=1) - before).seconds == 3600
            assert await cluster.requests(api="Produce")
            await cluster.broker(3).stop()
            await cluster.broker(3).start()
            await cluster.reset()
            assert await cluster.topics() == {}

    virtual.run(main)


def test_what_was_acknowledged_survives_the_kill_of_the_only_broker() -> None:
    async def main(world: World) -> None:
        async with world.cluster(topics=["t"]) as cluster:
            for number in range(5):
                await cluster.produce("t", str(number))
            await cluster.broker(1).kill()
            await cluster.broker(1).start()
            assert [each.value for each in await cluster.records("t")] == [
                b"0",
                b"1",
                b"2",
                b"3",
                b"4",
            ]

    virtual.run(main)


def test_a_record_is_gone_after_eight_days_of_retention() -> None:
    config = {
        "log.retention.ms": 7 * 86_400_000, "log.roll.ms": 86_400_000,
        "broker.heartbeat.interval.ms": 600_000, "broker.session.timeout.ms": 3_000_000,
    }  # fmt: skip

    async def main(world: World) -> None:
        async with world.cluster(topics=["t"], config=config) as cluster:
            await cluster.produce("t", "old")
            await asyncio.sleep(8 * 86_400)
            assert (await cluster.partition("t", 0)).replica(1).log_start_offset == 1

    virtual.run(main, limit=9 * 86_400)


def test_two_clusters_of_a_world_have_names() -> None:
    async def main(world: World) -> None:
        async with world.cluster() as east, world.cluster(name="west") as west:
            assert west.hosts == ["west-controller-1000", "west-broker-1"]
            assert east.bootstrap_servers != west.bootstrap_servers
            with pytest.raises(virtual.VirtualTimeError, match="give the second a name="):
                world.cluster()
            with (
                pytest.raises(virtual.VirtualTimeError, match="is a node of a cluster"),
                world.host("broker-1"),
            ):
                pass

    virtual.run(main)
