"""Bit rot: a byte of a closed segment changes on the disk of one broker.

Who reads it must notice by the CRC: a consumer, a follower, a move to another directory. Nothing may
take it for good. It ends like other faults, as if the sector were restored from a mirror: no other
copy has been damaged, so all is well then.
"""

from __future__ import annotations

from kwire.protocol.records import HEADER_SIZE, iter_batches
from kwire.sim.ghost import GhostPartition
from kwire.sim.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.memory_log_store import MemoryLogStore
    from kwire.replication.replica.partition import Partition
    from kwire.sim.faults.nemesis import Nemesis


class Rot:
    """A damaged batch: where it is, and how it looks since."""

    __slots__ = ("batch", "ghost", "node", "path", "place", "position", "store", "within")

    def __init__(
        self,
        node: Node,
        ghost: GhostPartition,
        place: tuple[int, int],
        store: MemoryLogStore,
        path: str,
        position: int,
        within: int,
    ) -> None:
        """`place`: its epoch and base offset; `position`: in the file; `within`: of the byte in it."""
        self.node = node
        self.ghost = ghost
        self.place = place
        self.store = store
        self.path = path
        self.position = position
        self.within = within
        self.batch = b""

    def heal(self) -> None:
        """Restore the byte, if the damaged batch is still there."""
        store = self.store
        if store.exists(self.path):
            data = store.content(self.path)
            if data[self.position : self.position + len(self.batch)] == self.batch:
                store.flip(self.path, self.position + self.within)
        self.ghost.rotten.discard((self.node.node_id, self.place))


def bit_rot(nemesis: Nemesis) -> None:
    """Change a byte of the records of a batch that is flushed and in a closed segment."""
    simulation, random = nemesis.simulation, nemesis.random
    node = nemesis.pick()
    if node is None:
        return
    hosted = [
        partition
        for partition in simulation.broker(node.node_id).services.replica_manager.partitions()
        if _is_suitable(simulation.invariants.ghost_of(partition), partition)
    ]
    if not hosted:
        return
    partition = random.choice(hosted)
    log = partition.log
    store = next(s for s in simulation.stores[node.node_id].stores if s.exists(log.directory))
    segment = random.choice(_closed_segments(partition))
    path = f"{log.directory}/{segment:020d}.log"
    data = store.content(path)
    header = random.choice(list(iter_batches(data)))
    within = random.randrange(HEADER_SIZE, header.size)
    place = header.partition_leader_epoch, header.base_offset
    ghost = simulation.invariants.ghost_of(partition)
    if (node.node_id, place) in ghost.rotten or store.is_broken(log.directory):
        return
    rot = Rot(node, ghost, place, store, path, header.position, within)
    store.flip(path, header.position + within)
    rot.batch = store.content(path)[header.position : header.position + header.size]
    ghost.rotten.add((node.node_id, place))
    nemesis.rots.append(rot)
    simulation.invariants.counts["bits rotten"] += 1
    simulation.report_fault(f"{node}: bit rot in {log.name} at offset {header.base_offset}")
    simulation.schedule.after(4 * nemesis.outage_us(), heal, nemesis, rot)


def heal(nemesis: Nemesis, rot: Rot) -> None:
    """Restore what a bit flip changed; nothing if that has happened already."""
    if rot in nemesis.rots:
        nemesis.rots.remove(rot)
        nemesis.simulation.report_fault(f"{rot.node}: {rot.path} is whole again")
        rot.heal()


def _is_suitable(ghost: GhostPartition, partition: Partition) -> bool:
    # What compaction copies and what coordinators load is not followed byte by byte (compaction.py).
    return ghost.compacted is None and not ghost.leaving and bool(_closed_segments(partition))


def _closed_segments(partition: Partition) -> list[int]:
    """The base offsets of segments that are closed and flushed: no recovery reads them."""
    log = partition.log
    return [
        segment.base_offset
        for segment, following in zip(log.segments, log.segments[1:], strict=False)
        if segment.size and following.base_offset <= log.recovery_point
    ]
