"""Who is alive when a clock is advanced, and what is still under way between nodes after an event.

An advance waits, in real time, until all who live have shown it, and after an event until its consequences at other
nodes are done: an ISR is changed, a marker written, a record committed.
"""

from __future__ import annotations

from kwire.controller_node import ControllerNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from kwire.broker import Broker
    from kwire.replication.replica.isr import RemoteReplica
    from kwire.replication.replica.partition import Partition


def produces(core: Broker | ControllerNode) -> set[Hashable]:
    """Appends that wait for followers: their time-outs are those of leases, see `Timers.schedule_lively`."""
    if isinstance(core, ControllerNode):
        return set()
    watchers = core.services.replica_manager.produce_purgatory.watchers
    return {operation for some in watchers.values() for operation in some}


def let_pass(core: Broker | ControllerNode, delay_ms: int, began_ms: int) -> None:
    """Let an advance that began at `began_ms` count for the followers that do not fetch.

    Those at the log end lack nothing, and those that have fetched since would have gone on."""
    if isinstance(core, ControllerNode):
        return
    for partition in core.services.replica_manager.partitions():
        if partition.is_leader:
            for replica in partition.remote_replicas.values():
                if not _is_silent(partition, replica, began_ms):
                    replica.defer(delay_ms)


def _is_silent(partition: Partition, replica: RemoteReplica, began_ms: int) -> bool:
    """Whether a follower lacks records and has not fetched since `began_ms`."""
    behind = replica.log_end_offset != partition.log.log_end_offset
    return behind and replica.last_fetch_time_ms <= began_ms


def waits(core: Broker | ControllerNode) -> set[Hashable]:
    """Requests that wait for records or followers: under a frozen clock they wait in real time."""
    if isinstance(core, ControllerNode):
        return set()
    replicas = core.services.replica_manager
    purgatories = (
        replicas.produce_purgatory,
        replicas.fetch_purgatory,
        replicas.delete_records_purgatory,
    )
    watchers = [some for each in purgatories for some in each.watchers.values()]
    return {operation for some in watchers for operation in some}


class Life:
    """What an advance of one core waits for, in words."""

    def __init__(self, core: Broker | ControllerNode, began: int, began_ms: int) -> None:
        """`began`, `began_ms`: the number of the last timer, and the time, when the advance began."""
        self._core = core
        self._began = began
        self._began_ms = began_ms
        self._ends: dict[Partition, int] = {}

    def show(self) -> None:
        """Show the controller that this broker is alive."""
        core = self._core
        if not isinstance(core, ControllerNode) and core.member is not None:
            core.member.show_life()

    def awaited(self) -> list[str]:
        """The brokers, followers and appends that have not shown since the beginning that they are alive."""
        core = self._core
        timers = core.timers
        if isinstance(core, ControllerNode):
            if not core.controller.active:
                return []
            leases = ((each, ("controller", "lease", each)) for each in core.controller.brokers)
            return [
                f"lease {each}" for each, key in leases if not timers.set_since(key, self._began)
            ]
        found = [f"follower {name}" for name in self._silent_followers()]
        waiting = produces(core)
        return found + [f"append {id(x)}" for x in waiting if not timers.set_since(x, self._began)]

    def _silent_followers(self) -> Iterator[str]:
        for partition in self._led():
            for member in partition.isr_state.isr:
                replica = partition.remote_replicas.get(member)
                if replica is not None and _is_silent(partition, replica, self._began_ms):
                    yield f"{member} of {partition.topic}-{partition.index}"

    def note_ends(self) -> None:
        """Remember which records are to be committed before time goes on."""
        self._ends = {each: each.log.log_end_offset for each in self._led()}

    def under_way(self) -> list[str]:
        """What has been begun between nodes and is not done."""
        core = self._core
        found = ["work"] if core.work.unfinished else []
        if isinstance(core, ControllerNode):
            channels = core.channels
            return found + ([f"order {each}" for each in channels.owing()] if channels else [])
        for partition in self._led():
            name = f"{partition.topic}-{partition.index}"
            if partition.isr_state.in_flight:
                found.append(f"isr {name}")
            if partition.log.high_watermark < self._ends.get(partition, 0):
                found.append(f"commit {name}")
        return found + [f"transaction {each}" for each in self._prepared()]

    def _prepared(self) -> Iterator[str]:
        from kwire.transactions.metadata import PREPARED

        assert not isinstance(self._core, ControllerNode)
        transactions = self._core.services.transactions_if_used
        if transactions is not None and transactions.runtime is not None:
            for context in transactions.runtime.contexts.values():
                for transactional_id, metadata in context.shard.transactions.items():
                    if metadata.state in PREPARED or metadata.is_pending:
                        yield transactional_id

    def _led(self) -> Iterator[Partition]:
        if isinstance(self._core, ControllerNode):
            return
        for partition in self._core.services.replica_manager.partitions():
            if partition.is_leader and partition.remote_replicas:
                yield partition
