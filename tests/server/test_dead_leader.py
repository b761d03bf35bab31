"""What brokers say of a leader in the moment after its death."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kwire.client.streams import ask
from kwire.launch.spec import ClusterSpec, NodeSpec
from kwire.launch.supervisor import Supervisor
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.timeout(60)


def test_no_broker_names_a_leader_whose_connections_have_just_ended(tmp_path: Path) -> None:
    async def run() -> None:
        values = {"listeners": "PLAINTEXT://127.0.0.1:0"}
        node = NodeSpec(node_id=1, values=values, data_dir=str(tmp_path))
        supervisor = Supervisor(ClusterSpec(brokers=3, node=node))
        await supervisor.start()
        try:
            await supervisor.create_topics([("t", 3, 3)])
            request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            others = [supervisor.brokers[node_id] for node_id in (2, 3)]
            for other in others:
                before = await ask(other.address, request, version=12)
                assert {p.leader_id for p in before.topics[0].partitions} == {1, 2, 3}
            await supervisor.brokers[1].kill()
            for answer in await asyncio.gather(
                *(ask(other.address, request, version=12) for other in others)
            ):
                assert {broker.node_id for broker in answer.brokers} == {2, 3}
                assert {p.leader_id for p in answer.topics[0].partitions} == {2, 3}
        finally:
            await supervisor.kill()

    asyncio.run(run())
