"""A payment that fails is tried again a day later, from a retry topic. A consumer that sleeps until then, between two
polls, is taken for dead: its partition goes round and round, and the payment is tried again and again."""

import asyncio
import time

from kit import consumer, finds, fresh, stop, write

from kwire import virtual

DAY = 86_400.0
PATIENT = {
    "session_timeout_ms": 300_000,
    "heartbeat_interval_ms": 60_000,
    "fetch_max_wait_ms": 30_000,
    "consumer_timeout_ms": 30_000,
}
"""A day of polls costs real time: a second for some thousand of them."""
BROKER = {"broker.heartbeat.interval.ms": 60_000, "broker.session.timeout.ms": 300_000}


async def sleep_until_due(bootstrap: str, group: str, tried: list[float], back_off: float) -> None:
    """The bug: nothing is polled for a day, max.poll.interval.ms is five minutes."""
    retries = consumer(bootstrap, "retries", group=group, **PATIENT)
    async with retries:
        async for payment in retries:
            await asyncio.sleep(max(0.0, payment.timestamp / 1000 + back_off - time.time()))
            tried.append(time.time())
            await retries.commit()


async def pause_until_due(bootstrap: str, group: str, tried: list[float], back_off: float) -> None:
    """The repair: the partition is paused, and the consumer goes on polling."""
    retries = consumer(bootstrap, "retries", group=group, **PATIENT)
    async with retries:
        due: dict[object, float] = {}
        while True:
            batch = await retries.getmany(timeout_ms=30_000, max_records=1)
            for partition, (payment,) in batch.items():
                at = payment.timestamp / 1000 + back_off
                if time.time() < at:
                    due[partition] = at
                    retries.seek(partition, payment.offset)
                    retries.pause(partition)
                    continue
                tried.append(time.time())
                await retries.commit({partition: payment.offset + 1})
            for partition in [each for each, at in due.items() if at <= time.time()]:
                del due[partition]
                retries.resume(partition)


async def scenario(world, app, back_off: float) -> None:
    async with world.cluster(topics=["retries"], config=BROKER) as cluster:
        bootstrap, group, tried = cluster.bootstrap_servers, fresh("payments"), []
        began = time.time()
        await write(bootstrap, "retries", ["payment 1"])
        tasks = []
        for name in ("w1", "w2"):
            with world.host(name):
                tasks.append(asyncio.create_task(app(bootstrap, group, tried, back_off)))
        await asyncio.sleep(back_off + 3600)
        hours = [round((at - began) / 3600, 1) for at in tried]
        assert hours == [back_off / 3600], f"tried after {hours} hours"
        await stop(*tasks)


@virtual.test(seeds=2, limit=3 * DAY)
async def test_a_payment_is_tried_after_a_day(world):
    await scenario(world, pause_until_due, DAY)


def test_a_consumer_that_sleeps_for_an_hour():
    finds(0, scenario, sleep_until_due, 3600.0)
