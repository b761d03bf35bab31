"""Replica placement: the brokers that get the replicas of a new partition.

Answers to kafka.admin.AdminUtils (replica placement with and without racks) and to the checks on
manual assignments of KRaft's ReplicationControlManager. From KRaft's StripedReplicaPlacer: if fewer
brokers are live than the replication factor, registered brokers that are down get the other
replicas, after the live ones. Randomness comes from the `Random` argument.

Invariants: leaders and followers are spread evenly; with racks on every broker no rack gets a
second replica of a partition while another has none. If only some brokers have a rack, racks are
ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

BrokerRack = tuple[int, str | None]


def assign_replicas(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    random: Random,
    *,
    first_partition: int = 0,
    start_index: int = -1,
    down: Sequence[int] = (),
) -> list[list[int]]:
    """Return replica lists for `partitions` new partitions, the preferred leader first.

    `first_partition` and `start_index` (>= 0) continue an existing topic's pattern. `down`:
    registered brokers that are not live. KafkaError(INVALID_REPLICATION_FACTOR): fewer brokers
    are registered than the replication factor, or none is live."""
    problem = None
    if not brokers:
        problem = "All brokers are currently fenced."
    elif replication_factor > len(brokers) + len(down):
        problem = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers) + len(down)} broker(s) are registered."
        )
    if problem is not None:
        text = f"Unable to replicate the partition {replication_factor} time(s): {problem}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    missing = replication_factor - len(brokers)
    if missing > 0:
        placed = assign_replicas(
            brokers,
            partitions,
            len(brokers),
            random,
            first_partition=first_partition,
            start_index=start_index,
        )
        return [
            [*living, *(down[(index + step) % len(down)] for step in range(missing))]
            for index, living in enumerate(placed, first_partition)
        ]
    ordered = sorted(brokers)
    count = len(ordered)
    racks = {rack for _, rack in ordered}
    by_rack = None not in racks and len(racks) > 1
    if by_rack:
        ordered = _alternate_racks(ordered)
    start = start_index if start_index >= 0 else random.randrange(count)
    shift = start_index if start_index >= 0 else random.randrange(count)
    result = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        if by_rack:
            result.append(_spread(ordered, first, shift, replication_factor, len(racks)))
        else:
            followers = (
                ordered[_follower_index(first, shift, j, count)][0]
                for j in range(replication_factor - 1)
            )
            result.append([ordered[first][0], *followers])
    return result


def _follower_index(first: int, shift: int, step: int, count: int) -> int:
    return (first + 1 + (shift + step) % (count - 1)) % count


def _alternate_racks(brokers: Sequence[BrokerRack]) -> list[BrokerRack]:
    """Order brokers so that racks alternate."""
    waiting: dict[str | None, list[BrokerRack]] = {}
    for broker in brokers:
        waiting.setdefault(broker[1], []).append(broker)
    queues = [waiting[rack] for rack in sorted(waiting, key=str)]
    result: list[BrokerRack] = []
    while any(queues):
        result.extend(queue.pop(0) for queue in queues if queue)
    return result


def _spread(
    ordered: Sequence[BrokerRack], first: int, shift: int, replication_factor: int, racks: int
) -> list[int]:
    count = len(ordered)
    broker, rack = ordered[first]
    replicas, used_racks = [broker], {rack}
    step = 0
    while len(replicas) < replication_factor:
        broker, rack = ordered[_follower_index(first, shift * racks, step, count)]
        step += 1
        if broker not in replicas and (rack not in used_racks or len(used_racks) == racks):
            replicas.append(broker)
            used_racks.add(rack)
    return replicas


def check_manual_assignment(
    replicas: Sequence[int], registered: Sequence[int], replication_factor: int | None
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless the list is non-empty, distinct and of registered
    brokers.

    `replication_factor`: of the partitions checked before, None for the first."""
    prefix = "The manual partition assignment includes"
    if not replicas:
        problem = f"{prefix} an empty replica list."
    elif len(set(replicas)) < len(replicas):
        double = next(b for i, b in enumerate(replicas) if b in replicas[:i])
        problem = f"{prefix} the broker {double} more than once."
    elif missing := [broker for broker in replicas if broker not in registered]:
        problem = f"{prefix} broker {missing[0]}, but no such broker is registered."
    elif replication_factor is not None and len(replicas) != replication_factor:
        problem = (
            f"{prefix} a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {replication_factor} replica(s)."
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
