"""Of three schedulers the one that has the partition runs the jobs. One that was frozen for a while goes on where it
stood, and does not know that another has taken over: a job runs twice. A transactional id fences it."""

import asyncio
import random

from aiokafka.errors import KafkaError
from kit import consumer, finds, fresh, producer, stop

from kwire import virtual

JOBS = 25


async def scheduler(bootstrap: str, group: str, fenced: bool) -> None:
    """Read what has run, then run the next job each second, as long as it has the partition of "leader"."""
    leader = consumer(bootstrap, "leader", group=group, heartbeat_interval_ms=1000)
    async with leader:
        while True:
            await leader.getmany(timeout_ms=200)
            if not leader.assignment():
                continue
            more = {"transactional_id": group} if fenced else {"enable_idempotence": True}
            try:
                async with producer(bootstrap, **more) as jobs:
                    await lead(bootstrap, leader, jobs, fenced)
            except KafkaError:
                continue  # fenced: somebody else leads


async def lead(bootstrap: str, leader, jobs, fenced: bool) -> None:
    async with consumer(bootstrap, "jobs", isolation_level="read_committed") as log:
        (tp,) = log.assignment()
        end = (await log.end_offsets([tp]))[tp]
        last = -1
        while await log.position(tp) < end:
            for records in (await log.getmany(timeout_ms=200)).values():
                last = int(records[-1].value)
    while leader.assignment():
        await asyncio.sleep(random.uniform(0.5, 1.5))  # prepare the job
        last += 1
        if fenced:
            async with jobs.transaction():
                await jobs.send_and_wait("jobs", str(last).encode())
        else:
            await jobs.send_and_wait("jobs", str(last).encode())


async def scenario(world, fenced: bool) -> None:
    async with world.cluster(topics=["leader", "jobs"]) as cluster:
        bootstrap, group = cluster.bootstrap_servers, fresh("scheduler")
        tasks = []
        for name in ("s1", "s2", "s3"):
            with world.host(name):
                tasks.append(asyncio.create_task(scheduler(bootstrap, group, fenced)))
        for _ in range(4 if world.virtual else 0):
            await asyncio.sleep(random.uniform(5, 15))
            frozen = f"s{random.randint(1, 3)}"
            world.freeze(frozen)
            await asyncio.sleep(random.uniform(5, 40))
            world.thaw(frozen)
        found: list[int] = []
        log = consumer(bootstrap, "jobs", isolation_level="read_committed")
        async with log, asyncio.timeout(300):
            while len(found) < JOBS:
                found.append(int((await log.getone()).value))
        assert found == list(range(JOBS)), f"jobs: {found}"
        await stop(*tasks)


@virtual.test(seeds=100)
async def test_a_job_runs_once(world):
    await scenario(world, fenced=True)


def test_a_scheduler_that_wakes_up():
    finds(0, scenario, False)
