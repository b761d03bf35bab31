"""The weather of a world, and what `--kwire-shrink` makes of it."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer

from kwire import virtual
from kwire.virtual import Weather, World, running
from kwire.virtual.shrinking import shrink
from kwire.virtual.weather.kinds import KINDS


async def under_way(world: World) -> list[str]:
    """A cluster and a consumer for two minutes; the story."""
    async with world.cluster(brokers=3, topics=["t:2:3"]) as cluster:
        with world.host("c1"):
            consumer = AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g"
            )
            await asyncio.create_task(consumer.start())
        await asyncio.sleep(120)
        await world.calm()
        await cluster.wait_in_sync(timeout=60)
        assert [each.running for each in cluster.brokers] == [True] * 3
        assert world.loop.frozen_hosts == []
        assert await cluster.failures() == []
        happened = len(world.weather.happened)
        await asyncio.sleep(60)
        assert len(world.weather.happened) == happened
        await consumer.stop()
    return world.story.lines()


WORDS = {
    "latency": "each segment takes",
    "cut": "cut off from each other",
    "reset": "connection(s) reset",
    "freeze": "is frozen",
    "kill": "is killed",
    "slow disk": "each write takes",
    "rebalance": "groups rebalance",
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_happens_and_is_over_after_calm(kind: str) -> None:
    story = virtual.run(under_way, 1, weather=Weather(every=6, kinds=(kind,), longest=20))
    assert sum(WORDS[kind] in line and "weather" in line for line in story) >= 2


def test_all_kinds_together() -> None:
    seen = set()
    for seed in range(3):
        story = "\n".join(virtual.run(under_way, seed, weather=Weather(every=5)))
        seen |= {kind for kind, words in WORDS.items() if words in story}
    assert seen == set(WORDS)


async def fails_when_a_broker_was_killed(world: World) -> None:
    with world.host("idle"):
        asyncio.create_task(asyncio.sleep(1000))  # noqa: RUF006
    async with world.cluster(brokers=3) as cluster:
        await asyncio.sleep(300)
        killed = await cluster.events("KILL_REQUESTED")
        assert not killed, "a broker was killed"


def test_shrink_leaves_the_event_that_the_failure_needs() -> None:
    settings = {"weather": Weather(every=10)}
    first = running.attempt(fails_when_a_broker_was_killed, 1, **settings)
    assert isinstance(first.error, AssertionError) and len(first.weather) > 5
    best, text = shrink(
        first,
        lambda without: running.attempt(fails_when_a_broker_was_killed, 1, without, **settings),
    )
    assert len(best.weather) == 1
    assert any("is killed" in line for line in best.story)
    assert best.without and "idle" in best.without
    assert "to 1 (weather" in text
    assert running.replay_options(best).startswith('--kwire-seed=1 --kwire-without="')
    again = running.attempt(fails_when_a_broker_was_killed, 1, best.without, **settings)
    assert again.digest == best.digest
