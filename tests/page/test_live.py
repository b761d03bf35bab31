"""What the page lives on: the state of a cluster and its changes, read from the nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from page_reader import Page

from kwire import aio
from kwire.control.live.hub import MAX_WAITING, NOTHING_NEW, _Reader, hub_of
from kwire.control.live.merged import Merged
from kwire.control.live.page import stream
from kwire.control.live.traffic import IDLE_MS, Traffic
from kwire.control.routes import ask_cluster
from kwire.launch.handles import ThreadHandle

pytestmark = pytest.mark.timeout(60)

Json = dict[str, Any]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_page_is_told_what_changes(isolation: str) -> None:
    async def main() -> None:
        async with aio.Cluster(3, isolation=isolation, topics=["t:2:3"]) as cluster:
            async with Page(hub_of(cluster)) as page, Page(hub_of(cluster)) as other:
                await page.until(lambda: len(page.partitions) == 2 and len(page.copies) == 3)
                assert page.ends("t") == {1: 0, 2: 0, 3: 0}
                assert page.beginnings == 1
                await cluster.produce("t", b"v", partition=0)
                await page.until(lambda: page.ends("t") == {1: 1, 2: 1, 3: 1})
                assert page.ends("t", 1) == {1: 0, 2: 0, 3: 0}

                leader, epoch, *_ = page.partitions["t", 0]
                await cluster.broker(leader).kill()
                await page.until(lambda: page.partitions["t", 0][0] not in (-1, leader))
                assert page.partitions["t", 0][1] == epoch + 1
                assert leader not in page.partitions["t", 0][3]
                state = {each["id"]: each["running"] for each in page.last["nodes"]}
                assert state[leader] is False and sum(state.values()) == 3
                await page.until(lambda: f"kill broker {leader}" in page.words())
                now = page.partitions["t", 0][0]
                await page.until(
                    lambda: f"t-0: broker {now} leads in epoch {epoch + 1}" in page.words()
                )

                await cluster.broker(leader).start()
                await page.until(lambda: len(page.partitions["t", 0][3]) == 3)
                await cluster.delete_topic("t")
                await page.until(lambda: not page.partitions)
                await page.until(lambda: not any(page.names.values()))
                await cluster.create_topic("t", 1, 3)
                await page.until(lambda: page.ends("t") == {1: 0, 2: 0, 3: 0})
                assert page.beginnings == 1, "changes only"

                await other.until(lambda: other.ends("t") == page.ends("t"))
                assert other.partitions == page.partitions, "one that did not read has the same"
            assert hub_of(cluster).pages == 0
            await no_views_are_asked(cluster)

    asyncio.run(main())


async def no_views_are_asked(cluster: aio.Cluster) -> None:
    hub = hub_of(cluster)
    assert hub._running is None and not hub._asked


def test_a_page_that_comes_late_is_told_everything_and_one_object_has_it_too() -> None:
    async def main() -> None:
        async with aio.Cluster(2, topics=["t:3:2"]) as cluster:
            async with Page(hub_of(cluster)) as first:
                await first.until(lambda: len(first.partitions) == 3)
                await cluster.network.cut(1, 2)
                await cluster.network.delay(1, 2, 5, one_way=True)
                await cluster.broker(2).disk.slow(1)
                await cluster.faults.inject("Produce", error="NOT_ENOUGH_REPLICAS", topic="t")
                await first.until(lambda: first.last["faults"])
                async with Page(hub_of(cluster)) as late:
                    await late.until(lambda: late.last.get("events") and len(late.copies) == 2)
                    assert late.partitions == first.partitions and late.copies == first.copies
                    network = {"cuts": [[1, 2, False]], "delays": [[1, 2, 5, True]]}
                    assert late.last["network"] == network
                    assert [each["node"] for each in late.last["disks"]] == [2]
                    assert late.last["faults"][0]["text"].startswith("Produce topic=t")
                    assert "cut 1 | 2" in late.words()
                once = Page(hub_of(cluster))
                once.take(await ask_cluster(cluster, "GET", "/v1/live", {}))
                assert once.partitions == first.partitions and once.copies == first.copies
            alone = Page(hub_of(cluster))
            alone.take(await ask_cluster(cluster, "GET", "/v1/live", {}))
            assert alone.partitions == once.partitions and alone.ends("t") == {1: 0, 2: 0}

    asyncio.run(main())


def test_a_standby_that_takes_over_tells_everything_again() -> None:
    async def main() -> None:
        options: Json = {"controllers": 2, "topics": ["t:2:2"], "fast": True}
        async with aio.Cluster(2, **options) as cluster, Page(hub_of(cluster)) as page:
            await page.until(lambda: len(page.partitions) == 2)
            active = page.last["controller"]["id"]
            await cluster.controller(active).kill()
            await page.until(lambda: page.last["controller"]["id"] not in (None, active))
            await page.until(lambda: len(page.partitions) == 2)
            await cluster.create_topic("u", 1, 2)
            await page.until(lambda: ("u", 0) in page.partitions)

    asyncio.run(main())


def test_groups_transactions_and_requests_are_read_without_asking_for_them() -> None:
    async def main() -> None:
        async with aio.Cluster(2, topics=["t:2:2"]) as cluster, Page(hub_of(cluster)) as page:
            await page.until(lambda: len(page.partitions) == 2)
            work = asyncio.create_task(
                asyncio.to_thread(use, cluster.bootstrap_servers, done := asyncio.Event())
            )
            (group,) = await page.until(
                lambda: (found := page.last["groups"]) and found[0]["offsets"] and found
            )
            (member,) = group["members"]
            assert (group["id"], group["state"], member["client_id"]) == ("shop", "Stable", "till")
            assert member["partitions"] == [["t", 0], ["t", 1]]
            assert sum(offset for _, _, offset in group["offsets"]) == 3
            (transaction,) = await page.until(lambda: page.last["transactions"])
            assert transaction["id"] == "pay" and transaction["state"] == "Ongoing"
            assert transaction["partitions"] == [["t", 1]]
            await page.until(
                lambda: any(each[1:3] == ["till", "Fetch"] for each in page.last["rates"])
            )
            await page.until(lambda: any(each[2] == "pay-client" for each in page.last["requests"]))
            done.set()
            await work
            await page.until(lambda: not page.last["transactions"])

    asyncio.run(main())


def use(bootstrap: str, done: asyncio.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for index in (0, 0, 1):
        producer.produce("t", b"v", partition=index)
    producer.flush(10)
    settings = {"group.id": "shop", "client.id": "till", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
    consumer.subscribe(["t"])
    seen = 0
    while seen < 3:
        seen += consumer.poll(0.1) is not None
    consumer.commit(asynchronous=False)
    payer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "pay", "client.id": "pay-client"}
    )
    payer.init_transactions(10)
    payer.begin_transaction()
    payer.produce("t", b"v", partition=1)
    payer.flush(10)
    while not done.is_set():
        consumer.poll(0.1)
    payer.abort_transaction(10)
    consumer.close()


# --- one that does not read


def test_a_page_that_does_not_read_has_little_in_memory_and_begins_anew() -> None:
    async def main() -> None:
        reader = _Reader()
        reader.add(b"before it was told everything")
        assert await reader.next() == NOTHING_NEW and reader.is_new
        reader.start()
        for number in range(MAX_WAITING):
            reader.add(b"%d" % number)
        assert await reader.next() == b"0" and not reader.is_new
        reader.add(b"again")
        reader.add(b"one too many")
        assert reader.is_new and await reader.next() == NOTHING_NEW
        reader.start()
        reader.add(b"x")
        assert await reader.next() == b"x"

    asyncio.run(main())


def test_a_cluster_that_is_costly_to_look_at_is_looked_at_less_often() -> None:
    async def main() -> None:
        async with aio.Cluster() as cluster:
            hub = hub_of(cluster)
            for cost, interval in ((0.0, 0.1), (0.003, 0.1), (0.03, 0.75), (9.0, 2.0)):
                hub._cost = cost
                assert hub.interval == pytest.approx(interval)

    asyncio.run(main())


def test_no_more_pages_than_can_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    from kwire.control.errors import ControlError

    async def main() -> None:
        async with aio.Cluster() as cluster:
            monkeypatch.setattr("kwire.control.live.page.MAX_PAGES", 0)
            with pytest.raises(ControlError, match="0 pages are open") as refused:
                await stream(cluster, {})
            assert refused.value.status == 503

    asyncio.run(main())


# --- what nodes have told


def told(number: int, *, whole: bool = False, node: int = 1, **more: Any) -> Json:
    replicas = {"names": [], "offsets": [], "gone": []}
    return {"id": node, "number": number, "whole": whole, "replicas": replicas | more}


def nodes(*running: int) -> list[Json]:
    return [{"id": each, "running": each in running} for each in (1, 2, 1000)]


def test_what_nodes_tell_is_put_together() -> None:
    merged = Merged()
    flat = [1, 0, 5, 5, 0, 1, 2, 0, 0, 0, 0, 0]
    merged.take([told(1, whole=True, names=[[1, "t", 0], [2, "t", 1]], offsets=flat)], nodes(1))
    part = merged.take([told(2, offsets=[2, 0, 7, 8, 1, 1], gone=[1])], nodes(1))
    assert part["replicas"] == {"1": {"offsets": [2, 0, 7, 8, 1, 1], "gone": [1]}}
    assert "nodes" not in part and "groups" not in part, "they are as before"
    assert merged.parts(1000)[1:] == [
        {"replicas": {"1": {"names": [[2, "t", 1]], "offsets": [2, 0, 7, 8, 1, 1], "whole": True}}}
    ]
    assert merged.take([told(3)], nodes(1)) == {}


def test_large_clusters_are_told_in_parts() -> None:
    merged = Merged()
    names = [[number, "t", number] for number in range(5)]
    flat = [value for number in range(5) for value in (number, 0, 0, 0, 0, 0)]
    merged.take([told(1, whole=True, names=names, offsets=flat)], nodes(1))
    parts = [part["replicas"]["1"] for part in merged.parts(2)[1:]]
    assert [len(part["names"]) for part in parts] == [2, 2, 1]
    assert [part.get("whole", False) for part in parts] == [True, False, False]
    assert [each for part in parts for each in part["offsets"]] == flat


def active(epoch: int, node: int, *partitions: list[Any], gone: tuple[str, ...] = ()) -> Json:
    state = {"active": True, "epoch": epoch, "partitions": [*partitions], "gone": [*gone]}
    return {"id": node, "number": 2, "whole": False, "controller": state}


def test_the_controller_of_the_newest_epoch_is_right() -> None:
    merged, t, u = Merged(), ["t", 0, 1, 0, [1], [1]], ["u", 0, 1, 0, [1], [1]]
    part = merged.take([active(1, 1000, t, u)], nodes(1, 1000))
    assert part["partitions"] == [t, u] and part["controller"] == {"id": 1000, "epoch": 1}
    part = merged.take([active(2, 1001, u)], nodes(1, 1000))
    assert part["begin"] and part["partitions"] == [u], "it tells everything when it becomes active"
    assert merged.take([active(1, 1000, t)], nodes(1, 1000)) == {}, "one that does not know yet"
    part = merged.take([active(2, 1001, gone=("u",))], nodes(1, 1000))
    assert part["gone"] == ["u"] and len(merged.parts(9)) == 1


# --- requests are counted while somebody asks


def broker_of(cluster: aio.Cluster) -> Any:
    handle = cluster.inside.handles[1]
    assert isinstance(handle, ThreadHandle) and handle.runner is not None
    return handle.runner.core


@pytest.mark.parametrize("kept", [False, True])
def test_requests_are_counted_while_somebody_asks(kept: bool) -> None:
    async def main() -> None:
        async with aio.Cluster(topics=["t"], recent_requests=kept) as cluster:
            core, before = broker_of(cluster), broker_of(cluster).sessions.recent
            assert (before is not None) is kept
            await ask_cluster(cluster, "GET", "/v1/live", {})
            traffic = core.sessions.recent
            assert isinstance(traffic, Traffic) and (traffic.kept is before) is kept
            await produce(cluster)
            traffic._asked_ms -= 1000
            found = await ask_cluster(cluster, "GET", "/v1/live", {})
            rates = {(client, api): rate for _, client, api, rate in found["rates"]}
            assert rates["counted", "Produce"] > 0
            assert any(each[2] == "counted" for each in found["requests"])
            for _ in range(40):
                traffic._count(1.0)
            assert traffic.told()["rates"] == [], "none for a while"
            assert await cluster.requests() if kept else True
            traffic._asked_ms -= IDLE_MS + 1
            await produce(cluster)
            assert core.sessions.recent is before, "nobody has asked for a while"

    asyncio.run(main())


async def produce(cluster: aio.Cluster) -> None:
    def work() -> None:
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "counted"}
        )
        producer.produce("t", b"v")
        assert producer.flush(10) == 0

    await asyncio.to_thread(work)


# --- all of it where there is one broker


def test_a_standalone_broker_has_a_page_as_well() -> None:
    from browser_kit import kwire_up

    from kwire.control.client import call

    with kwire_up("--topic", "t:2") as up:
        found = call(up.url, "GET", "/v1/live")
        assert [each["role"] for each in found["nodes"]] == ["broker"] and found["nodes"][0][
            "alone"
        ]
        assert [each[:3] for each in found["partitions"]] == [["t", 0, 1], ["t", 1, 1]]
        assert found["network"] == {"cuts": [], "delays": []}
