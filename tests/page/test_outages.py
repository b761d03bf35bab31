"""A page that stays open while the cluster is reset, restored, paused, and while all its brokers are down."""

from __future__ import annotations

import asyncio

import pytest
from page_reader import Page

from kwire import aio
from kwire.control.live.hub import hub_of

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_page_goes_on_through_resets_restores_and_outages(isolation: str) -> None:
    async def main() -> None:
        async with aio.Cluster(2, isolation=isolation, topics=["t:2:2"]) as cluster:
            await cluster.snapshot("base")
            async with Page(hub_of(cluster)) as page:
                await page.until(lambda: page.ends("t", 1) == {1: 0, 2: 0})
                await cluster.create_topic("u", 1, 2)
                await page.until(lambda: ("u", 0) in page.partitions)
                await cluster.restore("base")
                await page.until(lambda: set(page.partitions) == {("t", 0), ("t", 1)})
                await page.until(lambda: not page.ends("u"))

                await cluster.broker(1).pause()
                await page.until(
                    lambda: [each["paused"] for each in page.last["nodes"]].count(True) == 1
                )
                await cluster.broker(1).resume()
                await page.until(lambda: not any(each["paused"] for each in page.last["nodes"]))

                for broker in cluster.brokers:
                    await broker.kill()
                await page.until(
                    lambda: page.partitions["t", 0][0] == page.partitions["t", 1][0] == -1
                )
                assert [each["running"] for each in page.last["nodes"]].count(False) == 2
                for broker in cluster.brokers:
                    await broker.start()
                await page.until(
                    lambda: all(
                        state[0] > 0 and len(state[3]) == 2 for state in page.partitions.values()
                    )
                )

                await cluster.reset()
                await page.until(lambda: not page.partitions and not any(page.names.values()))
                await cluster.create_topic("v", 1, 2)
                await page.until(lambda: page.ends("v") == {1: 0, 2: 0})
                assert page.beginnings == 1

    asyncio.run(main())
