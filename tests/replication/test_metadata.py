from __future__ import annotations

from typing import Any

from kwire.protocol.schemas.control_plane import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kwire.replication.core.metadata import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataCache

ID = b"1234567890123456"
OTHER_ID = b"6543210987654321"


def update(
    cache: MetadataCache,
    topic: str | None = None,
    leaders: dict[int, int] | None = None,
    topic_id: bytes = ID,
    brokers: tuple[int, ...] = (1, 2),
    **fields: Any,
) -> list[tuple[str, int]]:
    states: list[Any] = []
    if topic is not None:
        partitions = [
            UpdateMetadataPartitionState(partition_index=index, leader=leader)
            for index, leader in (leaders or {}).items()
        ]
        states = [
            UpdateMetadataTopicState(
                topic_name=topic, topic_id=topic_id, partition_states=partitions
            )
        ]
    live = [
        UpdateMetadataBroker(
            id=i,
            endpoints=[UpdateMetadataEndpoint(host=f"h{i}", port=i, listener="L")],
            rack=None,
        )
        for i in brokers
    ]
    request = UpdateMetadataRequest(
        controller_id=1, topic_states=states, live_brokers=live, **fields
    )
    return cache.apply(request)


def test_partition_states_merge() -> None:
    cache = MetadataCache()
    update(cache, "t", {0: 1, 1: 2})
    update(cache, "t", {1: 1})
    assert cache.partition_count("t") == 2
    states = [cache.partition("t", index) for index in (0, 1, 2)]
    assert [state and state.leader for state in states] == [1, 1, None]
    assert (cache.topic_id("t"), cache.topic_name(ID)) == (ID, "t")


def test_the_broker_list_is_replaced() -> None:
    cache = MetadataCache()
    update(cache, brokers=(1, 2))
    update(cache, brokers=(2, 3))
    assert [cache.is_alive(i) for i in (1, 2, 3)] == [False, True, True]
    endpoint = cache.endpoint(3, "L")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("h3", 3)
    assert cache.endpoint(3, "other") is cache.endpoint(1, "L") is None


def test_leader_minus_two_deletes_partition_and_topic() -> None:
    cache = MetadataCache()
    update(cache, "t", {0: 1, 1: 1})
    cache.set_config(TOPIC_RESOURCE, "t", {"retention.ms": "1"})
    assert update(cache, "t", {1: -2}) == [("t", 1)]
    assert cache.partition_count("t") == 1
    assert update(cache, "t", {0: -2}) == [("t", 0)]
    assert not cache.contains("t")
    assert cache.topic_name(ID) is None
    assert cache.topic_config("t") == {}
    assert update(cache, "t", {0: -2}) == []


def test_a_new_id_replaces_the_old_one() -> None:
    cache = MetadataCache()
    update(cache, "t", {0: 1})
    update(cache, "t", {0: 1}, topic_id=OTHER_ID)
    assert (cache.topic_name(ID), cache.topic_name(OTHER_ID)) == (None, "t")


def test_overrides_are_replaced_as_a_whole() -> None:
    cache = MetadataCache()
    cache.set_config(BROKER_RESOURCE, "", {"a": "1", "b": "2"})
    cache.set_config(BROKER_RESOURCE, "", {"b": "3"})
    assert cache.config(BROKER_RESOURCE, "") == {"b": "3"}
    assert cache.config_names(BROKER_RESOURCE) == [""]
    cache.set_config(BROKER_RESOURCE, "", {})
    assert cache.config_names(BROKER_RESOURCE) == []


def test_only_a_changed_broker_list_counts_as_one() -> None:
    cache = MetadataCache()
    update(cache, brokers=(1,))
    before = cache.brokers_version
    update(cache, "t", {0: 1}, brokers=(1,))
    assert cache.brokers_version == before
    update(cache, brokers=(1, 2))
    assert cache.brokers_version == before + 1


def test_a_full_request_deletes_what_it_does_not_list() -> None:
    cache = MetadataCache()
    update(cache, "gone", {0: 1}, topic_id=OTHER_ID)
    update(cache, "t", {0: 1, 1: 1})
    cache.set_config(TOPIC_RESOURCE, "gone", {"retention.ms": "1"})
    cache.set_config(TOPIC_RESOURCE, "t", {"retention.ms": "2"})
    assert update(cache, "t", {0: 2}, topic_id=b"n" * 16, type=2) == [("gone", 0), ("t", 1)]
    assert (cache.topic_id("t"), cache.topic_name(ID)) == (b"n" * 16, None)
    assert (cache.partition_count("t"), cache.partition_count("gone")) == (1, None)
    assert cache.config_names(TOPIC_RESOURCE) == ["t"]
    # any other type only adds
    assert update(cache, type=1) == []
    assert cache.contains("t")


def test_every_change_is_another_version() -> None:
    cache = MetadataCache()
    versions = [cache.version]
    for change in (
        lambda: update(cache, "t", {0: 1}),
        lambda: update(cache, "t", {0: 1}),
        lambda: cache.set_config(TOPIC_RESOURCE, "t", {"a": "b"}),
        lambda: cache.set_config(TOPIC_RESOURCE, "t", {}),
    ):
        change()
        versions.append(cache.version)
    assert len(set(versions)) == 5


def test_only_what_was_there_is_told_as_deleted() -> None:
    cache = MetadataCache()
    update(cache, "t", {0: 1})
    assert update(cache, "t", {0: -2, 7: -2}) == [("t", 0)]
    assert update(cache, "unknown", {0: -2}) == []


def test_no_topic_has_the_id_of_none() -> None:
    cache = MetadataCache()
    update(cache, "t", {0: 1})
    update(cache, "t", {0: 1}, topic_id=bytes(16))
    assert (cache.topic_id("t"), cache.topic_name(bytes(16)), cache.topic_name(ID)) == (
        bytes(16),
        None,
        None,
    )


def test_a_broker_at_another_address_or_in_another_rack_is_another_list() -> None:
    cache = MetadataCache()
    versions = []
    for port, rack in ((1, None), (2, None), (2, "a"), (2, "a")):
        endpoint = UpdateMetadataEndpoint(host="h", port=port, listener="L")
        broker = UpdateMetadataBroker(id=1, endpoints=[endpoint], rack=rack)
        cache.apply(UpdateMetadataRequest(controller_id=1, live_brokers=[broker]))
        versions.append(cache.brokers_version)
        found = cache.endpoint(1, "L")
        assert found is not None and found.port == port and cache.brokers[1].rack == rack
    assert len(set(versions)) == 3 and versions[2] == versions[3]


def test_resources_are_listed_by_their_type() -> None:
    cache = MetadataCache()
    cache.set_config(TOPIC_RESOURCE, "t", {"a": "b"})
    cache.set_config(BROKER_RESOURCE, "1", {"a": "b"})
    assert (cache.config_names(TOPIC_RESOURCE), cache.config_names(BROKER_RESOURCE)) == (
        ["t"],
        ["1"],
    )
