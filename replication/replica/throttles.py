"""Throttles of replication between brokers: replicas that are not in sync are copied only so fast (KIP-73).

Answers to kafka.server.ReplicationQuotaManager, ReplicaManager.shouldLeaderThrottle and
RemoteLeaderEndPoint.shouldFollowerThrottle (3.9). A topic's lists name replicas, a broker's rates are
for all of these that it leads, and for all that it fetches, together. Records of replicas in sync
count, too, but these are never throttled.

Deliberate differences: records count, and not what a frame has around them; a follower that the metadata
has in the ISR is not throttled either while its lag is unknown (Kafka may throttle it until its first fetch).
"""

from __future__ import annotations

from kwire.replication.core.rates import SimpleRate
from kwire.replication.core.types import (
    FOLLOWER_THROTTLE_KEY,
    FOLLOWER_THROTTLED_KEY,
    LEADER_THROTTLE_KEY,
    LEADER_THROTTLED_KEY,
    REPLICATION,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.replica.fetch_data import FetchPartition, FetchPartitionData
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition


class ReplicationThrottle:
    """One direction: the replicas of one list of each topic, and one rate for all of them."""

    __slots__ = ("_broker", "_list_key", "_manager", "_parsed", "_rate", "_rate_key")

    def __init__(self, manager: ReplicaManager, rate_key: str, list_key: str) -> None:
        self._manager = manager
        self._rate_key = rate_key
        self._list_key = list_key
        self._broker = str(manager.node_id)
        samples, seconds = (int(manager.log_manager.config.text(key) or 1) for key in REPLICATION)
        self._rate = SimpleRate(samples, seconds * 1000)
        self._parsed: dict[
            str, frozenset[int]
        ] = {}  # by the text of a list, as long as that is used

    def includes(self, key: TopicPartition) -> bool:
        """Whether this broker's replica is in the list of its topic."""
        topic, index = key
        metadata = self._manager.metadata
        if topic not in metadata.throttled_topics:
            return False
        text = metadata.topic_config(topic).get(self._list_key, "").strip()
        if text == "*":
            return True
        indexes = self._parsed.get(text)
        if indexes is None:
            self._parsed.clear()
            replicas = (item.split(":") for item in text.split(",") if ":" in item)
            indexes = frozenset(int(i) for i, broker in replicas if broker.strip() == self._broker)
            self._parsed[text] = indexes
        return index in indexes

    def record(self, key: TopicPartition, size_bytes: int) -> None:
        """Count what was copied of a partition, also while there is no rate."""
        if size_bytes and self.includes(key):
            self._rate.record(size_bytes, self._manager.clock.now_ms)

    def wait_ms(self) -> int:
        """How long until the rate is down to the throttle; 0: it is not above, or no throttle is set.

        At most a fetch's wait: as often followers look, in Kafka too, whether that has changed."""
        config = self._manager.log_manager.config
        bound, now_ms = throttle_of(config, self._rate_key), self._manager.clock.now_ms
        if bound is None or not self._rate.measure(now_ms) > bound:
            return 0
        most_ms = max(config.replica_fetch_wait_max_ms, 1)
        if not bound:
            return most_ms
        return min(max(self._rate.throttle_ms(bound, now_ms), 1), most_ms)


class ReplicationThrottles:
    """Both directions at one broker; made with the first list."""

    __slots__ = ("_manager", "follower", "leader")

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self.leader = ReplicationThrottle(manager, LEADER_THROTTLE_KEY, LEADER_THROTTLED_KEY)
        self.follower = ReplicationThrottle(manager, FOLLOWER_THROTTLE_KEY, FOLLOWER_THROTTLED_KEY)

    # --- the leader's side

    def stops(self, partition: Partition, replica_id: int) -> bool:
        """Whether a follower gets no records of a partition now. Replicas in the ISR always get them."""
        return (
            replica_id not in partition.isr
            and self.leader.includes(partition.key)
            and self.leader.wait_ms() > 0
        )

    def counting(
        self,
        partitions: list[tuple[TopicPartition, FetchPartition]],
        answer: Callable[[list[FetchPartitionData]], None],
    ) -> Callable[[list[FetchPartitionData]], None]:
        """`answer`, which counts what a follower is sent before."""

        def count_and_answer(results: list[FetchPartitionData]) -> None:
            for (key, _), data in zip(partitions, results, strict=True):
                self.leader.record(key, len(data.records))
            answer(results)

        return count_and_answer

    # --- the follower's side

    def pause_ms(self, key: TopicPartition, lag: int) -> int:
        """For how long a partition is left out of this broker's fetches; 0: it is not. `lag` -1: unknown."""
        if lag == 0 or not self.follower.includes(key):
            return 0
        known = self._manager.metadata.partition(*key)
        if known is not None and self._manager.node_id in known.isr:
            return 0
        return self.follower.wait_ms()


def throttle_of(config: BrokerConfig, key: str) -> int | None:
    """A throttle in bytes a second; None: no throttle is set. Only a dynamic value is one."""
    text = config.dynamic.get(key, config.dynamic_default.get(key))
    return None if text is None else int(text)
