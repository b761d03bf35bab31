"""A service asks another one over two topics, and gives up after two seconds. An answer that comes later, on a slow
day, ends the task that reads answers: nobody gets one any more."""

import asyncio
import itertools
import random

from kit import consumer, finds, producer, stop

from kwire import virtual

QUESTIONS = 80


class Client:
    def __init__(self, bootstrap: str, careful: bool) -> None:
        self._bootstrap, self._careful = bootstrap, careful
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count()

    async def run(self, questions: int) -> list[bytes | None]:
        sender = producer(self._bootstrap, enable_idempotence=True)
        async with sender, consumer(self._bootstrap, "answers") as answers:
            reading = asyncio.create_task(self._read(answers))
            found = []
            for _ in range(questions):
                found.append(await self._ask(sender))
                await asyncio.sleep(random.uniform(0, 1))
            reading.cancel()
            return found

    async def _ask(self, sender) -> bytes | None:
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        await sender.send("questions", b"?", key=str(number).encode())
        try:
            async with asyncio.timeout(2):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    async def _read(self, answers) -> None:
        async for answer in answers:
            if self._careful:  # the repair
                future = self._waiting.get(int(answer.key))
            else:  # the bug: KeyError
                future = self._waiting[int(answer.key)]
            if future is not None and not future.done():
                future.set_result(answer.value)


async def answer(bootstrap: str) -> None:
    sender = producer(bootstrap, enable_idempotence=True)
    async with sender, consumer(bootstrap, "questions") as questions:
        async for question in questions:
            await sender.send("answers", b"!", key=question.key)


async def scenario(world, careful: bool) -> None:
    async with world.cluster(topics=["questions", "answers"]) as cluster:
        with world.host("service"):
            service = asyncio.create_task(answer(cluster.bootstrap_servers))
        with world.host("client"):
            client = Client(cluster.bootstrap_servers, careful)
            asking = asyncio.create_task(client.run(QUESTIONS if world.virtual else 10))
        if world.virtual:
            for _ in range(3):
                await asyncio.sleep(random.uniform(0, 6))
                world.freeze("service")
                await asyncio.sleep(random.uniform(0.1, 4))
                world.thaw("service")
        found = await asking
        assert found[-5:] == [b"!"] * 5, f"the last answers: {found[-5:]}"
        await stop(service)


@virtual.test(seeds=100, real=True)
async def test_late_answers_do_no_harm(world):
    await scenario(world, careful=True)


def test_an_answer_after_the_time_out():
    finds(0, scenario, False)
