"""LeaderAndIsr, StopReplica and UpdateMetadata at a broker."""

from __future__ import annotations

import pytest

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.control_plane import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicV1,
)


def partition(node):
    return node.manager.by_key["t", 0]


def test_S63_leader_and_isr_epochs(node):
    assert node.order(leader_epoch=3, partition_epoch=4, controller_epoch=5) == 0
    assert node.order(leader_epoch=9, controller_epoch=4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert node.order(leader_epoch=2, controller_epoch=5) == ErrorCode.STALE_CONTROLLER_EPOCH
    same = node.order(leader_epoch=3, partition_epoch=9, controller_epoch=5)
    assert same == ErrorCode.STALE_CONTROLLER_EPOCH and partition(node).partition_epoch == 4
    kraft = {"controller_epoch": 5, "is_kraft_controller": True}
    assert node.order(leader_epoch=3, partition_epoch=5, **kraft) == 0
    assert partition(node).partition_epoch == 5
    isr_state = partition(node).isr_state
    assert node.order(leader_epoch=3, partition_epoch=5, **kraft) == 0  # known: nothing is undone
    assert partition(node).isr_state is isr_state
    assert node.order(leader_epoch=4, partition_epoch=6, controller_epoch=5) == 0
    assert node.order(leader_epoch=5, partition_epoch=1, controller_epoch=5) == 0
    assert (partition(node).leader_epoch, partition(node).partition_epoch) == (4, 6)


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_errors_for_the_whole_request_are_on_every_partition(node, version):
    node.order(controller_epoch=5)
    state = LeaderAndIsrPartitionState(topic_name="t", partition_index=0, replicas=[1], leader=1)
    request = LeaderAndIsrRequest(controller_epoch=4, ungrouped_partition_states=[state])
    response = node.manager.become_leader_or_follower(request, version)
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    errors = response.topics[0].partition_errors if version >= 5 else response.partition_errors
    assert [e.error_code for e in errors] == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert type(response).decode(response.encode(version), version).error_code == 11


def test_S64_leader_and_isr_members_and_topic_ids(node):
    assert node.order(replicas=(2, 3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ("t", 0) not in node.manager.by_key and node.log_manager.get("t", 0) is None
    assert node.order(id_=bytes(16)) == 0
    assert node.order(id_=b"i" * 16) == 0  # the id is news, the epoch is not
    assert partition(node).topic_id == node.log().topic_id == b"i" * 16
    assert b"aWlpaWlpaWlpaWlpaWlpaQ" in node.store.read_file("t-0/partition.metadata")
    assert node.order(leader_epoch=1, id_=b"j" * 16) == ErrorCode.INCONSISTENT_TOPIC_ID
    assert partition(node).leader_epoch == 0


@pytest.mark.parametrize("epoch", [4, 5, 6])
def test_S86_an_order_for_another_topic_of_that_name_is_inconsistent_whatever_its_epoch(
    node, epoch
):
    assert node.order(leader_epoch=5) == 0
    assert node.order(leader_epoch=epoch, id_=b"j" * 16) == ErrorCode.INCONSISTENT_TOPIC_ID
    assert partition(node).leader_epoch == 5


def test_S64_an_id_that_comes_with_a_new_epoch_is_kept_beside_the_log(node):
    assert node.order(id_=bytes(16)) == 0
    assert node.order(leader_epoch=1, id_=b"i" * 16) == 0
    assert node.log().topic_id == b"i" * 16
    assert b"aWlpaWlpaWlpaWlpaWlpaQ" in node.store.read_file("t-0/partition.metadata")


def test_S64_a_controller_without_ids_may_repeat_itself_to_a_follower(node):
    node.update_metadata("t", {0: 2})
    assert node.order(leader=2, replicas=(1, 2)) == 0
    assert node.order(leader=2, replicas=(1, 2), id_=bytes(16)) == 0
    assert partition(node).topic_id != bytes(16)
    for leader in (-1, 9):  # whoever it names: the epoch is known
        assert node.order(leader=leader, replicas=(1, 2), id_=bytes(16)) == 0
    assert partition(node).leader_id == 2
    node.create("led")
    assert node.order("led", id_=bytes(16)) == ErrorCode.STALE_CONTROLLER_EPOCH


def test_S64_a_kraft_controller_may_bring_an_id_and_a_partition_epoch_in_one(node):
    assert node.order(id_=bytes(16), replicas=(1, 2)) == 0
    order = {"partition_epoch": 3, "is_kraft_controller": True}
    assert node.order(id_=b"i" * 16, replicas=(1, 2), isr=(1,), **order) == 0
    assert (node.log().topic_id, partition(node).partition_epoch) == (b"i" * 16, 3)
    assert partition(node).isr == {1}


def test_S64_a_log_of_another_topic_is_not_taken_over(node):
    node.create()
    node.manager.by_key.clear()
    assert node.order(leader_epoch=1, id_=b"j" * 16) == ErrorCode.INCONSISTENT_TOPIC_ID
    assert ("t", 0) not in node.manager.by_key


def test_S64_a_full_request_sets_the_log_of_a_former_topic_of_that_name_aside(node, make_batch):
    """The old topic was deleted and another made while this broker was away and no replica of the old one any more."""
    node.create()
    assert node.produce(make_batch(b"a")).error_code == 0
    node.manager.by_key.clear()
    assert node.order(id_=b"j" * 16, type=2) == 0
    assert (node.log().topic_id, node.log().log_end_offset) == (b"j" * 16, 0)
    assert [name for name in node.store.list_dir() if name.endswith("-stray")]


def test_S64_a_partition_whose_log_cannot_be_made_is_offline(node, make_batch):
    def fail(*_):
        raise OSError(28, "no space left")

    node.update_metadata("t", {0: 1})
    node.store.make_dir = fail
    assert node.order() == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.order(leader_epoch=1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.produce(make_batch(b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.stop() == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_whose_log_cannot_be_made_never_had_a_role(node):
    def fail(*_):
        raise OSError(28, "no space left")

    roles, offline = [], []
    node.manager.role_listeners.append(lambda partition, leads: roles.append(partition.key))
    node.manager.offline_listeners.append(lambda key, reason: offline.append(key))
    node.create()
    assert roles == [("t", 0)]
    node.store.make_dir = fail
    assert node.order(index=1) == ErrorCode.KAFKA_STORAGE_ERROR
    node.advance(0)
    assert set(offline) == node.manager.offline >= {("t", 1)}
    assert ("t", 1) not in node.manager.by_key and ("t", 1) not in roles


def test_S65_an_unknown_leader_is_not_followed(node):
    assert node.order(leader=9, leader_epoch=3, replicas=(1, 9)) == 0
    assert node.log_manager.get("t", 0) is not None
    assert (partition(node).leader_id, partition(node).leader_epoch) == (-1, -1)
    node.alive.append(9)
    node.update_metadata()
    assert node.order(leader=9, leader_epoch=4, replicas=(1, 9)) == 0
    assert (partition(node).leader_id, partition(node).leader_epoch) == (9, 4)


def test_S05_the_new_epoch_begins_at_the_log_end_before_any_append(node, make_batch):
    node.create()
    node.produce(make_batch(b"a", b"b"))
    node.order(leader_epoch=5, partition_epoch=1)
    node.produce(make_batch(b"c", b"d"))
    node.order(leader_epoch=8, partition_epoch=2)
    assert [tuple(e) for e in node.log().leader_epochs.entries] == [(0, 0), (5, 2), (8, 4)]
    assert partition(node).leader_epoch_start_offset == 4
    assert node.log().end_offset_for_epoch(8) == (8, 4)


def test_S66_a_leader_elected_again_keeps_what_it_knows_of_followers(node):
    node.create(replicas=(1, 2), leader_epoch=1)
    partition(node).remote_replicas[2].log_end_offset = 0
    assert node.order(leader_epoch=2, partition_epoch=1, replicas=(1, 2)) == 0
    assert partition(node).remote_replicas[2].log_end_offset == 0
    node.order(leader=2, leader_epoch=3, partition_epoch=2, replicas=(1, 2))
    node.order(leader=1, leader_epoch=4, partition_epoch=3, replicas=(1, 2))
    assert partition(node).remote_replicas[2].log_end_offset == -1


def test_listeners_are_called_when_a_role_changes(node):
    heard = []
    node.manager.role_listeners.append(lambda p, leads: heard.append((p.topic, leads)))
    node.create(replicas=(1, 2))
    assert heard == [("t", True)]
    node.order(leader_epoch=1, partition_epoch=1, replicas=(1, 2))
    assert heard == [("t", True)]
    node.order(leader=2, leader_epoch=2, partition_epoch=2, replicas=(1, 2))
    node.stop(leader_epoch=2)
    assert heard == [("t", True), ("t", False), ("t", False)]


def test_S67_stop_matrix(node):
    node.update_metadata("t", {0: 1})
    for epoch, error in ((2, 0), (1, 0), (-1, 0), (-2, 0), (0, ErrorCode.FENCED_LEADER_EPOCH)):
        node.order(leader_epoch=1)
        assert node.stop(leader_epoch=epoch, delete=False) == error
        assert partition(node).is_leader
        assert node.stop(leader_epoch=epoch) == error
        assert (("t", 0) in node.manager.by_key) is bool(error)
    assert node.stop("unknown", 3) == 0
    assert node.stop(controller_epoch=-1) == ErrorCode.STALE_CONTROLLER_EPOCH


def test_S67_a_disk_error_on_deletion_is_a_storage_error(node):
    def fail(*_):
        raise OSError(5, "Input/output error")

    node.create()
    node.store.rename = fail
    assert node.stop() == ErrorCode.KAFKA_STORAGE_ERROR
    assert ("t", 0) not in node.manager.by_key


def test_S67_a_leftover_log_is_deleted_without_a_partition(node):
    node.create()
    node.manager.by_key.clear()
    assert node.stop() == 0
    assert node.log_manager.get("t", 0) is None


def test_stop_replica_in_the_shapes_of_its_old_versions(node):
    node.create(partitions=2)
    flat = StopReplicaPartitionV0(topic_name="t", partition_index=0)
    node.manager.stop_replicas(
        StopReplicaRequest(delete_partitions=True, ungrouped_partitions=[flat])
    )
    assert [p.index for p in node.manager.partitions()] == [1]
    topic = StopReplicaTopicV1(name="t", partition_indexes=[1])
    node.manager.stop_replicas(StopReplicaRequest(delete_partitions=True, topics=[topic]))
    assert list(node.manager.partitions()) == []


def test_S68_orders_for_an_earlier_incarnation_are_refused(node):
    node.manager.broker_epoch = 3
    assert node.order(broker_epoch=2) == ErrorCode.STALE_BROKER_EPOCH
    assert node.stop(broker_epoch=2) == ErrorCode.STALE_BROKER_EPOCH
    assert node.update_metadata(broker_epoch=2) == ErrorCode.STALE_BROKER_EPOCH
    assert node.manager.by_key == {}
    assert node.order("v", broker_epoch=3) == 0
    assert node.order(broker_epoch=4) == 0
    assert node.order("u", broker_epoch=-1) == 0


def test_S69_a_broker_missing_from_the_list_leads_nothing(node):
    from kwire.replication.core.metadata import LEADER_DURING_DELETE

    node.alive.append(3)
    node.update_metadata("t", {0: 3})
    assert node.metadata.endpoint(3, "PLAINTEXT") is not None
    node.alive.remove(3)
    node.update_metadata()
    assert node.metadata.partition("t", 0).leader == 3
    assert node.metadata.endpoint(3, "PLAINTEXT") is None  # Metadata answers 5
    node.update_metadata("t", {0: LEADER_DURING_DELETE})
    assert not node.metadata.contains("t")


def test_S69_update_metadata_is_fenced_by_the_controller_epoch(node):
    assert node.update_metadata("t", {0: 1}, controller_epoch=5) == 0
    assert node.update_metadata("t", {0: 2}, controller_epoch=4) == 11
    assert node.metadata.partition("t", 0).leader == 1


def test_S52_a_dead_joiner_does_not_hold_the_high_watermark_back(node, make_batch):
    node.create(replicas=(1, 2), isr=(1,))
    partition(node).remote_replicas[2].last_caught_up_time_ms = node.clock.now_ms
    partition(node).remote_replicas[2].log_end_offset = 0
    node.produce(make_batch(b"a"), acks=1)
    assert node.log().high_watermark == 0
    node.alive.remove(2)
    node.update_metadata()
    assert node.log().high_watermark == 1


def test_a_full_request_sets_aside_the_logs_that_it_does_not_name(node):
    node.create(partitions=2)
    assert node.order("u", type=2) == 0
    node.advance(10 * 60_000)
    kept = [name for name in node.store.list_dir() if name.endswith("-stray")]
    assert [name.split(".")[0] for name in kept] == ["t-0", "t-1"]
    assert [log.topic for log in node.log_manager.logs()] == ["u"]
    assert [p.topic for p in node.manager.partitions()] == ["u"]


def test_S86_role_listeners_are_called_when_a_stray_loses_its_leader_role(node):
    node.create("__consumer_offsets")
    heard = []
    node.manager.role_listeners.append(lambda p, leads: heard.append((p.topic, p.index, leads)))
    assert node.order("u", type=2) == 0
    assert heard == [("__consumer_offsets", 0, False), ("u", 0, True)]


def test_S86_who_waits_for_a_stray_is_answered(node):
    from kwire.replication.replica.fetch_data import FetchParams, FetchPartition

    node.create()
    answer = []
    params = FetchParams(max_wait_ms=1000, min_bytes=1)
    node.manager.fetch_records(params, [(("t", 0), FetchPartition(0, 1000))], answer.extend)
    assert answer == [] and node.waiting() == 1
    assert node.order("u", type=2) == 0
    assert [data.error for data in answer] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert node.waiting() == 0


def test_listeners_are_called_with_deleted_partitions(node):
    from kwire.replication.core.metadata import LEADER_DURING_DELETE

    heard = []
    node.manager.deletion_listeners.append(heard.append)
    node.update_metadata("t", {0: 1, 1: 1})
    node.update_metadata("t", {1: LEADER_DURING_DELETE})
    assert heard == [[("t", 1)]]


def test_logs_obey_a_changed_configuration(node, make_batch):
    from kwire.replication.core.metadata import TOPIC_RESOURCE

    node.create()
    node.metadata.set_config(TOPIC_RESOURCE, "t", {"max.message.bytes": "10"})
    node.manager.topic_config_changed("t")
    assert node.produce(make_batch(b"a")).error_code == ErrorCode.MESSAGE_TOO_LARGE
    node.metadata.set_config(TOPIC_RESOURCE, "t", {})
    node.manager.broker_config_changed()
    assert node.produce(make_batch(b"a")).error_code == 0


def test_a_new_partition_obeys_a_configuration_that_came_before_its_metadata(node, make_batch):
    """LeaderAndIsr, a changed configuration, then UpdateMetadata: the log was made before the change."""
    from kwire.replication.core.metadata import TOPIC_RESOURCE

    node.create()
    assert node.order("t", 1) == 0
    node.metadata.set_config(TOPIC_RESOURCE, "t", {"max.message.bytes": "10"})
    node.manager.topic_config_changed("t")
    logs = [node.manager.by_key["t", index].log for index in (0, 1)]
    assert [log.config.max_message_bytes == 10 for log in logs] == [True, False]
    node.update_metadata("t", {1: 1})
    assert [log.config.max_message_bytes for log in logs] == [10, 10]
