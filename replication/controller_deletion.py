"""Topics on their way out: until the last replica is deleted a topic is still there, and its name taken.

Answers to kafka.controller.TopicDeletionManager and the deletion states of ReplicaStateMachine. All brokers hear first
that the topic is gone (leader -2); then its replicas are stopped and deleted. A topic waits while a replica's broker is
dead or a partition is being reassigned, and a replica that could not be deleted is tried again when its broker returns.

Invariant: the topic's records leave the journal when every replica has been deleted, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.protocol.errors import ErrorCode
from kwire.replication.controller_batch import RequestBatch
from kwire.replication.controller_state import (
    DELETION_INELIGIBLE,
    DELETION_STARTED,
    DELETION_SUCCESSFUL,
    OFFLINE_REPLICA,
    REPLICA_MOVES,
    config_record,
)
from kwire.replication.metadata import LEADER_DURING_DELETE, TOPIC_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kwire.protocol.schemas.control_plane import StopReplicaRequest, StopReplicaResponse
    from kwire.replication.controller import Controller
    from kwire.replication.controller_state import Record, TopicState


class _Waiter:
    __slots__ = ("callback", "topics")

    def __init__(self, topics: set[str], callback: Callable[[], None]) -> None:
        self.topics = topics
        self.callback = callback


class TopicDeletions:
    """The topics that are being deleted, and how far their replicas are."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._replicas: dict[str, dict[tuple[int, int], str]] = {}  # (partition, broker): state
        self._begun: set[str] = set()  # by the request that is being handled
        self._waiters: list[_Waiter] = []

    def mark(self, topic: TopicState) -> None:
        """The topic is to be deleted; no error when it is already. `run` begins with it."""
        if topic.name not in self._controller.state.deleting:
            value = {"id": topic.topic_id.hex()}
            self._controller.commit([(f"deleting/{topic.name}", value)])

    def replica_states(self, topic: str) -> dict[tuple[int, int], str]:
        """(partition, broker): the state of a replica of a topic that is being deleted."""
        return dict(self._replicas.get(topic, ()))

    def deleted_on(self, broker_id: int, topic: str) -> set[int]:
        """The partitions of a topic that is being deleted which this broker has deleted already."""
        states = self._replicas.get(topic, {})
        return {
            key[0] for key, s in states.items() if key[1] == broker_id and s == DELETION_SUCCESSFUL
        }

    def run(self, names: Iterable[str]) -> None:
        """Goes on with topics as far as their brokers live."""
        controller = self._controller
        self._begun = set(names)
        batch = RequestBatch(controller)
        for name in self._begun:
            topic = controller.state.topics[name]
            if not controller.state.is_leaving(topic):
                controller.say(f"the deletion of {name} waits for its reassignment")
                continue
            self._stop_replicas(topic, batch)
        batch.send()
        for name in list(self._begun):
            self._look_at(name)

    def _stop_replicas(self, topic: TopicState, batch: RequestBatch) -> None:
        states = self._replicas.get(topic.name)
        if states is None:
            states = self._replicas[topic.name] = {
                (index, broker): OFFLINE_REPLICA
                for index, partition in enumerate(topic.partitions)
                for broker in partition.replicas
            }
        for index in range(len(topic.partitions)):
            batch.news(topic, index, deleted=True)
        for (index, broker), state in list(states.items()):
            if state in (DELETION_STARTED, DELETION_SUCCESSFUL):
                continue
            if state == DELETION_INELIGIBLE:
                self._move(states, (index, broker), OFFLINE_REPLICA)
            if broker in self._controller.brokers:
                self._move(states, (index, broker), DELETION_STARTED)
                batch.stop(broker, topic.name, index, LEADER_DURING_DELETE, delete=True)
            else:
                self._move(states, (index, broker), DELETION_INELIGIBLE)

    @staticmethod
    def _move(states: dict[tuple[int, int], str], key: tuple[int, int], target: str) -> None:
        assert states[key] in REPLICA_MOVES[target], f"{states[key]} -> {target}"
        states[key] = target

    # --- what brokers do ------------------------------------------------------------------------------------------

    def answered(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> None:
        """A broker's answer to StopReplica: what it deleted is done, the rest waits for its return."""
        errors = {
            (error.topic_name, error.partition_index): error.error_code
            for error in response.partition_errors
        }
        for of_topic in request.topic_states:
            name = of_topic.topic_name
            states = self._replicas.get(name)
            if states is None:
                continue
            for stopped in of_topic.partition_states:
                key = stopped.partition_index, broker_id
                if not stopped.delete_partition or states.get(key) != DELETION_STARTED:
                    continue
                code = response.error_code or errors.get(
                    (name, stopped.partition_index), int(ErrorCode.UNKNOWN_SERVER_ERROR)
                )
                self._move(states, key, DELETION_INELIGIBLE if code else DELETION_SUCCESSFUL)
                if code:
                    self._controller.say(
                        f"{name}-{stopped.partition_index} could not be deleted on broker {broker_id}: error {code}"
                    )
            self._look_at(name)

    def broker_failed(self, broker_id: int) -> None:
        """What it was to delete waits for its return."""
        for name, states in list(self._replicas.items()):
            for key, state in states.items():
                if key[1] == broker_id and state == DELETION_STARTED:
                    self._move(states, key, DELETION_INELIGIBLE)
            self._look_at(name)

    def broker_started(self, broker_id: int) -> None:
        """Deletions that waited for the broker go on."""
        waiting = [
            name
            for name, states in self._replicas.items()
            if any(k[1] == broker_id and s == DELETION_INELIGIBLE for k, s in states.items())
        ]
        if waiting:
            self.run(waiting)

    def resume(self) -> None:
        """A new controller: everything once more; what is gone already is answered with success."""
        self.run(list(self._controller.state.deleting))

    # --- the end ----------------------------------------------------------------------------------------------------

    def _look_at(self, name: str) -> None:
        states = self._replicas.get(name)
        if states is not None and all(s == DELETION_SUCCESSFUL for s in states.values()):
            self._forget(name)
        if not self._is_running(name):
            for waiter in list(self._waiters):
                waiter.topics.discard(name)
                if not waiter.topics:
                    self._finish(waiter)

    def _is_running(self, name: str) -> bool:
        return DELETION_STARTED in self._replicas.get(name, {}).values()

    def _forget(self, name: str) -> None:
        controller = self._controller
        state = controller.state
        del self._replicas[name]
        records: list[Record] = [(f"topic/{name}", None), (f"deleting/{name}", None)]
        has_config = (TOPIC_RESOURCE, name) in state.configs
        if has_config:
            records.append(config_record(TOPIC_RESOURCE, name, {}))
        # The records of single partitions, so that compaction can forget them.
        for index in sorted(state.changed_partitions.get(name, ())):
            records.append((f"partition/{name}/{index}", None))
        controller.commit(records)
        if has_config:
            controller.config_changed(TOPIC_RESOURCE, name, {})
        controller.say(f"{name} has been deleted")

    def when_done(self, timeout_ms: int, callback: Callable[[], None]) -> None:
        """Calls back when no topic of the last request is being deleted any more (gone, or waiting for a broker)."""
        topics = {name for name in self._begun if self._is_running(name)}
        if not topics:
            callback()
            return
        waiter = _Waiter(topics, callback)
        self._waiters.append(waiter)
        controller = self._controller
        if controller.timers is not None:
            deadline_ms = controller.now_ms + max(timeout_ms, 0)
            controller.timers.schedule(waiter, deadline_ms, lambda: self._finish(waiter))

    def _finish(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            if self._controller.timers is not None:
                self._controller.timers.cancel(waiter)
            waiter.callback()

    def give_up(self) -> None:
        """The controller has resigned: nobody waits for it any longer."""
        for waiter in list(self._waiters):
            self._finish(waiter)
