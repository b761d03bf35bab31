"""Selects the replica that a consumer should read from: one in its rack (KIP-392).

Answers to RackAwareReplicaSelector and ReplicaManager.findPreferredReadReplica of Kafka 3.9. Used
by leaders for consumers with a client.rack if replica.selector.class is this selector; there is no
other here.
"""

from __future__ import annotations

from kwire.replication.replica.isr import NEVER_MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.replica.partition import Partition


def preferred_read_replica(
    partition: Partition, metadata: MetadataCache, node_id: int, rack: str, fetch_offset: int
) -> int:
    """Return the follower to read from instead of this leader (`node_id`); -1: the leader itself.

    A candidate is alive, in the committed ISR, in the reader's rack and has `fetch_offset`. The
    largest log end offset wins, then the latest caught-up time, then the largest id. A leader in
    the reader's rack is never replaced.
    """
    brokers = metadata.brokers
    leader = brokers.get(node_id)
    if leader is not None and leader.rack == rack:
        return -1
    in_sync = partition.isr
    best, best_rank = -1, (-1, NEVER_MS, 0)
    for broker_id, replica in partition.remote_replicas.items():
        broker = brokers.get(broker_id)
        if (
            broker is not None
            and broker.rack == rack
            and broker_id in in_sync
            and replica.log_start_offset <= fetch_offset <= replica.log_end_offset
        ):
            rank = (replica.log_end_offset, replica.last_caught_up_time_ms, broker_id)
            if best < 0 or rank > best_rank:
                best, best_rank = broker_id, rank
    return best
