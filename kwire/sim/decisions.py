"""Check the controller's decisions record by record: I12, I13, I14, I20 and I28 of design §6.

Also finds elections that may lose data: `GhostPartition.reset_epoch` is the last one after which
committed data may be missing, because the leader came from outside the ISR or because every ISR
member had lost its tail.
"""

from __future__ import annotations

from kwire.replication.controller.state import PartitionState
from kwire.sim.ghost import GhostPartition, Loss
from kwire.sim.state.deciding import check_election, check_finished
from kwire.sim.state.pieces import count_take_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.replication.controller.controller import Controller
    from kwire.replication.controller.state import Record
    from kwire.replication.core.types import TopicPartition
    from kwire.sim.disks import Disks
    from kwire.sim.invariants import Invariants


class Decisions:
    """The checker of one run's successive controllers.

    A deposed controller may run on and send requests; it must not commit a decision."""

    def __init__(self, checker: Invariants, disks: Mapping[int, Disks]) -> None:
        """`disks`: by node id."""
        self._checker = checker
        self._disks = disks
        self.unclean_requested = False  # an administrator has asked for an unclean election
        self._current: Controller | None = None
        self._controller_epoch = -1
        self._broker_epochs: dict[int, int] = {}
        self._truths: dict[TopicPartition, PartitionState] = {}
        self._ids: dict[str, bytes] = {}

    def is_active_controller(self, controller: Controller) -> bool:
        """Whether the controller committed the last decision and is still active."""
        return controller is self._current and controller.active

    def missing_decisions(self, controller: Controller) -> str | None:
        """The first earlier decision that a new controller lacks before its first commit, or None."""
        if controller is self._current:
            return None
        state = controller.state
        for name, topic_id in self._ids.items():
            topic = state.topics.get(name)
            if topic is None or topic.topic_id != topic_id:
                return f"it does not know topic {name}"
        for (name, index), truth in self._truths.items():
            if index >= len(state.topics[name].partitions):
                return f"it does not know partition {index} of {name}"
            found = state.topics[name].partitions[index]
            if _truth(found) != _truth(truth):
                return f"it has {name}-{index} as {_truth(found)}, it was {_truth(truth)}"
        return None

    def check_takeover(self, controller: Controller, lacks: str | None, *, deposes: bool) -> None:
        """I13, I25, after the first commit of a new controller. `deposes`: the old one still runs."""
        epoch = controller.state.controller_epoch
        if epoch <= self._controller_epoch:
            self._checker.violated(
                "I13",
                f"the controller of epoch {epoch} decides, there was one of epoch {self._controller_epoch}",
            )
        if lacks is not None:
            self._checker.violated("I25", f"the new controller of epoch {epoch}: {lacks}")
        count_take_over(self._checker, self._current)
        if self._current is not None:
            self._checker.counts["controllers"] += 1
            self._checker.counts["deposed controllers"] += deposes
        self._current = controller

    def check_controller(self, controller: Controller) -> None:
        """I12, I13, I14, I28, after a step of a controller."""
        if controller is not self._current:
            return
        state = controller.state
        if state.controller_epoch < self._controller_epoch:
            self._checker.violated("I13", f"controller epoch fell to {state.controller_epoch}")
        self._controller_epoch = state.controller_epoch
        for broker_id, live in controller.brokers.items():
            last = self._broker_epochs.get(broker_id, -1)
            if live.epoch < last:
                self._checker.violated(
                    "I13", f"epoch of broker {broker_id} fell from {last} to {live.epoch}"
                )
            self._broker_epochs[broker_id] = live.epoch
        truths, count = self._truths, 0
        for name, topic in state.topics.items():
            if self._ids.get(name) != topic.topic_id:
                self._forget_topic(name)
                self._ids[name] = topic.topic_id
            for index, partition in enumerate(topic.partitions):
                count += 1
                if (name, index) not in truths:
                    truths[name, index] = partition
                    self._check_decision(name, topic.topic_id, index, None, partition)
        if count != len(truths):
            for name in [name for name in self._ids if name not in state.topics]:
                self._forget_topic(name)

    def check_commit(self, controller: Controller, records: list[Record]) -> None:
        """Check every committed partition state, not only the last of several in one step."""
        before: dict[TopicPartition, PartitionState] = {}
        for key, value in records:
            kind, _, rest = key.partition("/")
            if kind != "partition" or value is None:
                continue
            name, _, index = rest.rpartition("/")
            old = self._truths.get((name, int(index)))
            if old is not None and self._ids.get(name, b"").hex() == value["id"]:
                state = PartitionState(*value["state"])
                before.setdefault((name, int(index)), old)
                self._truths[name, int(index)] = state
                self._check_decision(name, self._ids[name], int(index), old, state)
                place, disks = (name, int(index)), self._disks[controller.node_id]
                check_election(self._checker, controller, disks, place, old, state)
        for place, first in before.items():
            check_finished(self._checker, place, first, self._truths[place])
        self.check_controller(controller)

    def _forget_topic(self, name: str) -> None:
        topic_id = self._ids.pop(name, None)
        if topic_id is not None:
            self._checker.gone.add(topic_id)
            self._checker.gone_names.add(name)
        for key in [key for key in self._truths if key[0] == name]:
            del self._truths[key]
            if topic_id is not None:
                self._checker.partitions.pop((topic_id, key[1]), None)

    def _check_decision(
        self,
        name: str,
        topic_id: bytes,
        index: int,
        old: PartitionState | None,
        new: PartitionState,
    ) -> None:
        ghost = self._checker.ghost(name, topic_id, index)
        what = f"{ghost.name}: {_truth(old)} -> {_truth(new)}"
        if self._checker.trace_lines is not None:
            self._checker.trace_lines.append(f"controller {what}")
        isr = set(new.isr)
        if not isr <= set(new.replicas) or len(isr) != len(new.isr):
            self._checker.violated("I12", f"ISR outside the replicas, {what}")
        if new.leader >= 0 and new.leader not in isr:
            self._checker.violated("I12", f"leader outside the ISR, {what}")
        if not isr and old is not None and old.isr and not new.last_known_elr:
            self._checker.violated("I12", f"empty ISR, {what}")
        if isr & set(new.elr) or not set(new.elr) <= set(new.replicas):
            self._checker.violated("I12", f"eligible leaders {new.elr}, {what}")
        if new.recovering and new.isr != [new.leader] and new.leader >= 0:
            self._checker.violated(
                "I12", f"recovering with more than the leader in the ISR, {what}"
            )
        if old is not None:
            self._check_change(ghost, old, new, what)
        for node_id in sorted(ghost.lossy):
            if node_id in isr and old is not None and node_id not in old.isr:
                self._clear_lossy(ghost, node_id, leads=node_id == new.leader)
        ghost.truth = new
        if new.leader >= 0:
            named = ghost.named.setdefault(new.leader_epoch, new.leader)
            if named != new.leader:
                self._checker.violated("I13", f"two leaders in epoch {new.leader_epoch}, {what}")
            seen = self._checker.seen.get(new.leader, {}).get((name, index))
            if (
                seen is not None
                and seen.is_leader
                and seen.leader_epoch == new.leader_epoch
                and seen.partition.topic_id == topic_id
                and new.leader_epoch >= ghost.reset_epoch
            ):
                self._checker.check_isr(new.leader, ghost, new, seen)

    def _clear_lossy(self, ghost: GhostPartition, node_id: int, *, leads: bool) -> None:
        """The ISR has readmitted a broker: it has all data again, unless it has restarted since.

        The leader's proposal may have waited for a controller and mean the broker's previous
        incarnation. The broker leaves the ISR when it registers, as in Kafka (KIP-903). `leads`: it
        was elected from outside the ISR, and its log is what counts now."""
        broker = self._checker.brokers.get(node_id)
        if leads or broker is None or broker.services.replica_manager.broker_epoch >= 0:
            ghost.find(node_id)

    def _check_change(
        self, ghost: GhostPartition, old: PartitionState, new: PartitionState, what: str
    ) -> None:
        if new.leader_epoch < old.leader_epoch or new.partition_epoch < old.partition_epoch:
            self._checker.violated("I13", f"epochs fell, {what}")
        record_changed = (
            new.leader != old.leader
            or new.isr != old.isr
            or new.leader_epoch != old.leader_epoch
            or new.recovering != old.recovering
        )
        if new.partition_epoch != old.partition_epoch + record_changed:
            self._checker.violated(
                "I13", f"the partition epoch did not rise by one for a change, {what}"
            )
        if new.leader != old.leader and new.leader_epoch == old.leader_epoch and old.isr:
            self._checker.violated("I13", f"another leader in the same epoch, {what}")
        counts = self._checker.counts
        counts["elections"] += new.leader >= 0 and new.leader != old.leader
        counts["ISR shrinks"] += len(new.isr) < len(old.isr)
        counts["ISR expands"] += (
            len(new.isr) > len(old.isr) and new.leader_epoch == old.leader_epoch
        )
        counts["reassignments"] += old.reassigning and not new.reassigning
        lost = [node for node in old.replicas if node not in new.replicas]
        ghost.left.update(lost)
        if lost and set(lost) <= set(old.original) and not old.adding and not old.removing:
            self._checker.violated("I28", f"replicas {lost} gone without a reassignment, {what}")
        if lost and any(node in old.removing for node in lost):
            missing = set(new.replicas) - set(old.isr) - set(new.isr)
            if missing:
                self._checker.violated(
                    "I28", f"replicas {lost} given up while {missing} is not in sync, {what}"
                )
        if new.leader >= 0 and new.leader_epoch > old.leader_epoch:
            if new.leader in old.elr:
                self._checker.counts["eligible"] += 1
                if self._knows_loss(ghost, new.leader):
                    self._checker.violated("I20", f"lost its tail and is still eligible, {what}")
            elif not old.isr and old.last_known_elr and not old.elr:
                self._check_last_known_leader(ghost, old, new, what)
            elif (old.isr or old.last_known_elr) and new.leader not in old.isr:
                if not self._unclean_allowed(ghost):
                    self._checker.violated(
                        "I20", f"elected outside the ISR, which nobody allowed, {what}"
                    )
                self._allow_loss(ghost, new, "unclean", f"elected outside the ISR, {what}")
                if not new.recovering:
                    self._checker.violated(
                        "I12", f"an unclean election that is not recovering, {what}"
                    )
            elif new.leader in ghost.lossy and ghost.lossy.issuperset(old.isr):
                self._allow_loss(
                    ghost, new, "survivor", f"the last of the ISR lost its tail, {what}"
                )

    def _knows_loss(self, ghost: GhostPartition, node_id: int) -> bool:
        """Whether a broker that lost its tail has registered since, so that the controller must know.

        Before, as far as the controller can tell, it is the process that had all data: in Kafka, too, it
        is no more eligible from its next registration on (KIP-966), and until then cannot obey."""
        assert self._current is not None
        live = self._current.brokers.get(node_id)
        if node_id not in ghost.lossy or live is None:
            return False
        return live.incarnation in self._checker.starts[node_id][ghost.lost_at[node_id] :]

    def _unclean_allowed(self, ghost: GhostPartition) -> bool:
        """Whether the topic allows unclean elections now, or one has been requested."""
        assert self._current is not None
        topic = ghost.name.rpartition("-")[0]
        flag = self._current.state.topic_config(topic).get("unclean.leader.election.enable")
        return flag == "true" or self.unclean_requested

    def _check_last_known_leader(
        self, ghost: GhostPartition, old: PartitionState, new: PartitionState, what: str
    ) -> None:
        """KIP-966: all eligible replicas had unclean shutdowns, so the last known leader leads."""
        if new.leader not in old.last_known_elr and not self._unclean_allowed(ghost):
            self._checker.violated("I20", f"neither eligible nor the last leader, {what}")
        if not new.recovering:
            self._checker.violated("I12", f"the last known leader does not recover, {what}")
        self._allow_loss(ghost, new, "last known leader", f"nobody is eligible, {what}")

    def _allow_loss(self, ghost: GhostPartition, new: PartitionState, kind: str, text: str) -> None:
        ghost.reset_epoch = new.leader_epoch
        self._checker.counts[kind] += 1
        log = ghost.logs.get(new.leader)
        end = 0 if log is None else log.end
        ghost.losses.append(Loss(kind, new.leader, end, ghost.committed.end, text))


def _truth(state: PartitionState | None) -> str:
    if state is None:
        return "nothing"
    moving = f" +{state.adding} -{state.removing}" if state.adding or state.removing else ""
    recovering = " recovering" if state.recovering else ""
    return (
        f"(leader {state.leader}, epoch {state.leader_epoch}/{state.partition_epoch}, ISR {state.isr} "
        f"of {state.replicas}{moving}{recovering})"
    )
