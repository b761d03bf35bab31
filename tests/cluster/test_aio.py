"""kwire.aio.Cluster: what is different for code on an event loop."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from kwire import Cluster, errors
from kwire import aio as aio_module
from kwire import cluster as cluster_module
from kwire.aio import Cluster as AsyncCluster
from kwire.backends.waiting import source_of

pytestmark = pytest.mark.timeout(60)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 40))


def test_predicates_may_be_coroutines_or_not() -> None:
    async def main() -> None:
        async with AsyncCluster(3, topics=["t:1:3"]) as cluster:
            old = (await cluster.partition("t", 0)).leader
            await cluster.broker(old).kill()

            async def another_leads(c: AsyncCluster) -> bool:
                return (await c.partition("t", 0)).leader not in (-1, old)

            assert await cluster.wait_for(another_leads) is True
            assert await cluster.wait_for(lambda c: [b.id for b in c.brokers if b.running])
            with pytest.raises(errors.WaitTimeoutError, match="another_leads_not"):

                async def another_leads_not(c: AsyncCluster) -> bool:
                    return not await another_leads(c)

                await cluster.wait_for(another_leads_not, timeout=0.01)

    run(main())


def test_clusters_on_one_loop_do_not_know_each_other() -> None:
    async def main() -> None:
        async with AsyncCluster(2) as one, AsyncCluster(2) as other:
            await asyncio.gather(one.create_topic("a", 2, 2), other.create_topic("b", 1, 2))
            assert (await one.topics(), await other.topics()) == ({"a": 2}, {"b": 1})
            await one.broker(1).kill()
            assert other.broker(1).running

    run(main())


def test_questions_may_be_asked_at_the_same_time() -> None:
    async def main(isolation: str) -> None:
        async with AsyncCluster(3, isolation=isolation, topics=["t:6:3"]) as cluster:
            found = await asyncio.gather(*(cluster.partition("t", i) for i in range(6)))
            assert [p.partition for p in found] == list(range(6))
            assert all(len(p.found) == 3 for p in found)

    run(main("thread"))
    run(main("process"))


def test_a_question_that_is_given_up_does_not_spoil_the_next() -> None:
    """The answers of a process come in the order of the questions: who leaves does not leave his answer behind."""

    async def main() -> None:
        async with AsyncCluster(2, isolation="process", topics=["t:2:2"]) as cluster:
            for _ in range(20):
                asking = asyncio.create_task(cluster.partition("t", 0))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                asking.cancel()
                found = await cluster.partition("t", 1)
                assert found.partition == 1 and found.replica(1).log_end_offset == 0
                assert sorted(found.found) == [1, 2]
                assert await cluster.topics() == {"t": 2}

    run(main())


def test_a_cancelled_start_leaves_nothing_running() -> None:
    async def main() -> None:
        cluster = AsyncCluster(3, isolation="process")
        starting = asyncio.create_task(cluster.start())
        await asyncio.sleep(0.05)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not cluster.started
        await cluster.stop()

    run(main())


def test_a_context_whose_body_failed_keeps_the_error_and_stops() -> None:
    async def main() -> None:
        cluster = AsyncCluster()
        with pytest.raises(ZeroDivisionError):
            async with cluster:
                _ = 1 / 0
        assert not cluster.started

    run(main())


def test_calls_from_several_threads() -> None:
    import threading

    with Cluster(2) as cluster:
        names = [f"t{number}" for number in range(8)]
        threads = [threading.Thread(target=cluster.create_topic, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(cluster.topics()) == names


def test_what_was_waited_for_is_told_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # fmt: off
    assert source_of(lambda c: c.partition("t", 0).isr == {1}) == 'c.partition("t", 0).isr == {1}'
    both = (lambda c: (c, 1), lambda c: c)
    # fmt: on
    assert source_of(both[0]) == "(c, 1)"
    assert source_of(eval("lambda c: c")) == "a lambda"
    monkeypatch.setattr(inspect, "getsource", lambda _: "import sys\n")  # of `python -c`, on 3.13
    assert source_of(eval("lambda c: c")) == "a lambda"
    assert source_of(test_a_cancelled_start_leaves_nothing_running).startswith("test_a_cancelled")


DIFFERENT = {  # what the two say differently, and rightly so
    "Cluster": {
        *("connect", "started", "wait_for", "brokers", "broker"),
        *("controllers", "controller", "active_controller"),
    },
    "Broker": set[str](),
    "Controller": set[str](),
}


@pytest.mark.parametrize("name", ["Cluster", "Broker", "Controller"])
def test_the_two_doors_have_the_same_calls_options_and_descriptions(name: str) -> None:
    one, other = getattr(cluster_module, name), getattr(aio_module, name)
    names = {each for each in dir(one) if not each.startswith("_")} | {"__init__"}
    inner = {"inside", "node", "observations", "of"}
    there = {each for each in dir(other) if not each.startswith("_")} | {"__init__"}
    assert names == there - inner
    for each in names - DIFFERENT[name]:
        if name != "Cluster" and each == "__init__":
            continue
        sync, asynchronous = getattr(one, each), getattr(other, each)
        assert inspect.getdoc(sync) == inspect.getdoc(asynchronous), each
        if callable(sync):
            assert inspect.signature(sync) == inspect.signature(asynchronous), each
