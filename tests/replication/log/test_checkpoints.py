"""Checkpoint files and the marks of a log directory, byte by byte as Kafka has them."""

from __future__ import annotations

import pytest

from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log import checkpoints
from kwire.replication.log.checkpoints import CorruptCheckpoint


@pytest.fixture
def store() -> MemoryLogStore:
    return MemoryLogStore()


def test_offsets_are_lines_of_topic_partition_offset(store: MemoryLogStore) -> None:
    offsets = {("orders", 0): 12, ("a.b-c_d", 11): 0}
    data = checkpoints.format_offsets(offsets.items())
    assert data == b"0\n2\norders 0 12\na.b-c_d 11 0\n"
    store.write_file("x", data)
    assert checkpoints.read_offsets(store, "x") == offsets
    assert checkpoints.format_offsets([]) == b"0\n0\n"


def test_absent_and_empty_files_have_no_entries(store: MemoryLogStore) -> None:
    assert checkpoints.read_offsets(store, "x") == {}
    store.write_file("x", b"")
    assert checkpoints.read_offsets(store, "x") == {}
    store.write_file("x", b"0\n0\n")
    assert checkpoints.read_offsets(store, "x") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"x\n",
        b"0\n",
        b"0\nx\n",
        b"0\n-1\n",
        b"0\n1\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 1 2\n",
        b"0\n1\nt zero 1\n",
        b"0\n1\nt 0 one\n",
        b"0\n3\nt 0 1\nt 1 2\n",
        b"0\n1\nt 0 1\nt 1 2\n",
        b"0\n1\n\xff\xfe 0 1\n",
        b"\0" * 20,
    ],
)
def test_a_malformed_checkpoint_is_an_error_that_names_the_file(
    store: MemoryLogStore, data: bytes
) -> None:
    store.write_file("some-checkpoint", data)
    with pytest.raises(CorruptCheckpoint, match="some-checkpoint"):
        checkpoints.read_offsets(store, "some-checkpoint")


def test_partition_metadata(store: MemoryLogStore) -> None:
    topic_id = bytes([0xFB, 0xEF, 0xFF, *range(13)])
    data = checkpoints.format_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: --__AAECAwQFBgcICQoLDA"
    store.make_dir("t-0")
    assert checkpoints.read_topic_id(store, "t-0") is None
    store.write_file("t-0/partition.metadata", data)
    assert checkpoints.read_topic_id(store, "t-0") == topic_id
    for bad in (
        b"",
        data[:-1],
        data.replace(b": 0", b": 1"),
        b"version: 0\ntopic_id: " + b"!" * 22,
        b"version: 0\ntopic_id: " + b"A" * 26,
    ):
        store.write_file("t-0/partition.metadata", bad)
        with pytest.raises(CorruptCheckpoint):
            checkpoints.read_topic_id(store, "t-0")


def test_the_clean_shutdown_file_is_read_once(store: MemoryLogStore) -> None:
    assert checkpoints.pop_clean_shutdown(store) is None
    checkpoints.write_clean_shutdown(store, 17)
    assert store.read_file(".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":17}'
    assert checkpoints.pop_clean_shutdown(store) == 17
    assert checkpoints.pop_clean_shutdown(store) is None
    for old in (b"", b"[]", b"{", b'{"version":0,"brokerEpoch":"x"}'):
        store.write_file(".kafka_cleanshutdown", old)
        assert checkpoints.pop_clean_shutdown(store) == -1


def test_meta_properties(store: MemoryLogStore) -> None:
    assert checkpoints.read_meta_properties(store) == {}
    store.write_file(
        "meta.properties", b"#\n#Tue Jan 02 2024\nversion=1\ncluster.id = a=b\n\n! x\n"
    )
    assert checkpoints.read_meta_properties(store) == {"version": "1", "cluster.id": "a=b"}
    checkpoints.write_meta_properties(store, {"version": "1", "node.id": "3"})
    assert checkpoints.read_meta_properties(store) == {"version": "1", "node.id": "3"}
