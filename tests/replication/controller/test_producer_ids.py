from __future__ import annotations

import pytest

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.varint import INT64_MAX
from kwire.replication.controller.producer_ids import (
    FILE_NAME,
    ProducerIdBlocks,
    ProducerIds,
)
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.types import PRODUCER_ID_BLOCK


def test_ids_go_on_over_blocks_and_restarts():
    store = MemoryLogStore()
    ids = ProducerIds(ProducerIdBlocks(store))
    first_run = [ids.generate() for _ in range(PRODUCER_ID_BLOCK + 1)]
    assert first_run == list(range(PRODUCER_ID_BLOCK + 1))
    assert ProducerIds(ProducerIdBlocks(store)).generate() == 2 * PRODUCER_ID_BLOCK


def test_two_brokers_never_share_a_block():
    blocks = ProducerIdBlocks(MemoryLogStore())
    one, other = ProducerIds(blocks), ProducerIds(blocks)
    assert [one.generate(), other.generate(), one.generate()] == [0, PRODUCER_ID_BLOCK, 1]


@pytest.mark.parametrize("content", [b"", b"0", b"1\n5\n", b"0\nx\n", b"0\n-4\n"])
def test_a_damaged_file_gives_no_id_rather_than_one_twice(content):
    store = MemoryLogStore()
    store.write_file(FILE_NAME, content)
    with pytest.raises(KafkaError) as raised:
        ProducerIds(ProducerIdBlocks(store)).generate()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failing_disk_gives_no_id():
    store = MemoryLogStore()

    def fail(*_, **__):
        raise OSError(28, "no space left")

    store.write_file = fail
    with pytest.raises(KafkaError):
        ProducerIds(ProducerIdBlocks(store)).generate()


def test_the_last_ids_are_not_overrun():
    store = MemoryLogStore()
    store.write_file(FILE_NAME, b"0\n%d\n" % (INT64_MAX - 5))
    with pytest.raises(KafkaError):
        ProducerIds(ProducerIdBlocks(store)).generate()
