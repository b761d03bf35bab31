"""What the examples share: clients as their applications make them, and the seed of a bug."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

from kwire import virtual


def fresh(name: str) -> str:
    """A name that no earlier run has used, for a cluster that goes on running."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


class Consumer(AIOKafkaConsumer):
    """aiokafka's, but for a bug that these tests have found: in aiokafka 0.14 `stop` raises CancelledError when a fetch
    has just failed and waits for its next try (Fetcher.close awaits the task that it has cancelled)."""

    async def stop(self) -> None:
        task = asyncio.current_task()
        try:
            await super().stop()
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise


def consumer(bootstrap: str, *topics: str, group: str | None = None, **more: Any) -> Consumer:
    settings = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 10_000,
    }
    return Consumer(*topics, bootstrap_servers=bootstrap, group_id=group, **{**settings, **more})


def producer(bootstrap: str, **more: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=bootstrap, **{"acks": "all", **more})


async def started(make: Callable[[], Any]) -> Any:
    """A client that has started: another one is made while no broker answers."""
    while True:
        client = make()
        try:
            await client.start()
            return client
        except KafkaConnectionError:
            await client.stop()
            await asyncio.sleep(1)


async def write(bootstrap: str, topic: str, values: list[str], **more: Any) -> None:
    async with producer(bootstrap, enable_idempotence=True) as sender:
        for value in values:
            await sender.send_and_wait(topic, value.encode(), **more)


async def until(condition: Callable[[], object], seconds: float = 300.0) -> None:
    """Wait until a condition is true. TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


async def stop(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait for their ends, at most ten seconds: those of a crashed host have none."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=10)


def finds(
    seed: int, scenario: Callable[..., Coroutine[Any, Any, None]], *app: Any, **settings: Any
) -> None:
    """The scenario fails with this application at this seed, and with the same words each time."""
    with pytest.raises((AssertionError, TimeoutError)) as first:
        virtual.run(lambda_of(scenario, *app), seed, **settings)
    with pytest.raises(type(first.value)) as second:
        virtual.run(lambda_of(scenario, *app), seed, **settings)
    lines = [str(each.value).partition("\n")[0] for each in (first, second)]  # more has addresses
    assert lines[0] == lines[1]


def lambda_of(scenario: Callable[..., Coroutine[Any, Any, None]], *app: Any) -> Any:
    async def main(world: virtual.World) -> None:
        await scenario(world, *app)

    return main
