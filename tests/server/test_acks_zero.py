"""Producers with acks=0 get no response: what they have sent is appended, however large and even if they are gone."""

from __future__ import annotations

import os
import socket

import pytest

import kwire
from kwire.protocol.language.schema import Message
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

VERSION = 9
TOPIC_CONFIG = {"max.message.bytes": str(64 << 20)}


def framed(request: Message) -> bytes:
    body = b"\0\0" + VERSION.to_bytes(2, "big") + b"\0\0\0\7\0\1p\0" + request.encode(VERSION)
    return len(body).to_bytes(4, "big") + body


def produce(records: bytes) -> bytes:
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[data])
    return framed(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic]))


@pytest.mark.parametrize(("requests", "records"), [(100, 10), (20, 3000), (12, 9000), (3, 150_000)])
def test_what_a_producer_with_acks_0_has_sent_is_appended_after_it_has_closed(
    requests: int, records: int
) -> None:
    frame = produce(bytes(build_batch([Record(-1, 1, None, os.urandom(100))] * records)))
    with kwire.Cluster() as cluster:
        cluster.create_topic("t", config=TOPIC_CONFIG)
        host, port = cluster.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as client:
            for _ in range(requests):
                client.sendall(frame)  # times out if the broker no longer reads
        expected = requests * records
        cluster.wait_for(lambda c: c.partition("t", 0).high_watermark == expected, timeout=20)
        assert not cluster.failures()
