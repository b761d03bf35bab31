"""Safety rules of replication, each switched off: what the simulator must notice.

A mutation patches the real classes. `rules` are the invariants of design §6 that may be the first to break. `focus`
makes plans in which the rule matters more often; everything else of a plan stays as its seed has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kwire.apis import offsets
from kwire.coordinator.classic_group import ClassicGroup
from kwire.coordinator.offsets import OffsetManager
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import iter_batches
from kwire.replication.controller import election
from kwire.replication.controller.brokers.leases import Leases
from kwire.replication.controller.brokers.registry import BrokerRegistry
from kwire.replication.controller.claim import ClaimedJournal
from kwire.replication.controller.journal import StoreJournal
from kwire.replication.controller.partitions import PartitionControl
from kwire.replication.core.metadata import MetadataCache
from kwire.replication.core.types import RACK_AWARE
from kwire.replication.core.work import Steps
from kwire.replication.fetcher import fetcher as replica_fetcher
from kwire.replication.log import loader, retention, validation, verification
from kwire.replication.log.indexes import TransactionIndex
from kwire.replication.log.leader_epochs import LeaderEpochCache
from kwire.replication.log.log import Log
from kwire.replication.log.producer_state import ProducerStateManager
from kwire.replication.log.segment import LogSegment
from kwire.replication.log_dirs.cleaner_filter import CleanedTransactions
from kwire.replication.log_dirs.cleaning import OffsetMap
from kwire.replication.member.cluster_member import ClusterMember
from kwire.replication.member.controller_link import ControllerLink
from kwire.replication.replica import control as replica_control
from kwire.replication.replica import moves, selector, throttles
from kwire.replication.replica.alter_partition import AlterPartitionManager
from kwire.replication.replica.delayed import DelayedFetch
from kwire.replication.replica.fetch_session import CachedPartition
from kwire.replication.replica.isr import CommittedIsr, PendingExpandIsr, PendingShrinkIsr
from kwire.replication.replica.lookup import LATEST_TIMESTAMP, offset_for_timestamp
from kwire.replication.replica.manager import ReplicaManager
from kwire.replication.replica.partition import Partition
from kwire.shards.context import ShardContext
from kwire.sim.plan import ClientPlan, Plan, TopicPlan
from kwire.transactions import guards, markers, shard
from kwire.transactions.metadata import COMPLETE_ABORT, ONGOING, TransactionMetadata
from kwire.transactions.shard import TransactionShard
from kwire.transactions.waiting import Waiting

Patch = Callable[[pytest.MonkeyPatch], None]
Focus = Callable[[Plan], None]


def high_watermark_by_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    def increment(self: Partition) -> bool:
        return self.log.maybe_increment_high_watermark(self.log.log_end_offset)

    patch.setattr(Partition, "maybe_increment_high_watermark", increment)


def high_watermark_by_the_proposed_isr(patch: pytest.MonkeyPatch) -> None:
    """A shrink counts before the controller has agreed to it."""
    patch.setattr(PendingShrinkIsr, "maximal_isr", property(lambda self: self.isr - self.leaving))


def high_watermark_without_the_joiner(patch: pytest.MonkeyPatch) -> None:
    """Who is proposed for the ISR does not count before the answer (KIP-497), nor does who is about to join."""
    patch.setattr(PendingExpandIsr, "maximal_isr", property(lambda self: self.isr))
    increment = Partition.maybe_increment_high_watermark

    def ignoring(self: Partition) -> bool:
        others = self.remote_replicas
        members = self.isr_state.isr
        self.remote_replicas = {b: r for b, r in others.items() if b in members}
        try:
            if not self.remote_replicas:
                return self.log.maybe_increment_high_watermark(self.log.log_end_offset)
            return increment(self)
        finally:
            self.remote_replicas = others

    patch.setattr(Partition, "maybe_increment_high_watermark", ignoring)


def truncation_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """As before KIP-101: a new follower first cuts its log to what it knows to be committed."""
    add = replica_fetcher.ReplicaFetcher.add

    def cut_and_add(self: Any, partition: Partition, initial_offset: int) -> None:
        log = partition.log
        if log.high_watermark < log.log_end_offset:
            log.truncate_to(log.high_watermark)
        add(self, partition, log.log_end_offset)

    patch.setattr(replica_fetcher.ReplicaFetcher, "add", cut_and_add)


def no_truncation(patch: pytest.MonkeyPatch) -> None:
    """A leader never says that a follower's log has left its own."""
    patch.setattr(Partition, "_diverging_epoch", lambda self, request: None)


def no_leader_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """A fetch of another epoch is served, and counts as progress (before KIP-320)."""

    def check(self: Partition, current_leader_epoch: int, require_leader: bool) -> None:
        if require_leader and not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    patch.setattr(Partition, "check_leader_epoch", check)
    patch.setattr(Partition, "_diverging_epoch", lambda self, request: None)


def isr_without_broker_epochs(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-903: a proposal does not say which incarnation of a follower it means."""
    patch.setattr(AlterPartitionManager, "_epoch_of", lambda self, broker_id, partition: -1)


def election_outside_the_isr(patch: pytest.MonkeyPatch) -> None:
    """Unclean elections although the topic forbids them."""
    patch.setattr(PartitionControl, "_unclean_allowed", lambda self, topic: True)


def a_follower_appends_past_a_gap(patch: pytest.MonkeyPatch) -> None:
    """An answer that begins beyond the log end is taken, too."""
    append = Partition.append_records_to_follower

    def skipping(self: Partition, records: Any, leader_epoch: int) -> Any:
        from kwire.protocol.records import iter_batches

        headers = list(iter_batches(records))
        if len(headers) > 1:
            records = memoryview(bytes(records))[headers[1].position :]
        return append(self, records, leader_epoch)

    patch.setattr(Partition, "append_records_to_follower", skipping)


def acks_all_before_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "replication_outcome", lambda self, required_offset: ErrorCode.NONE)


def no_epoch_before_the_first_append(patch: pytest.MonkeyPatch) -> None:
    """A new leader's epoch gets into its cache with the first record only, and so at the wrong place or never."""
    assign = LeaderEpochCache.assign

    def late(self: LeaderEpochCache, epoch: int, start_offset: int, **kind: bool) -> bool:
        if start_offset > 0 and epoch > self.latest_epoch:
            start_offset += 1
        return assign(self, epoch, start_offset, **kind)

    patch.setattr(LeaderEpochCache, "assign", late)


def a_lease_that_nobody_fences(patch: pytest.MonkeyPatch) -> None:
    """The controller takes proposals of a leader whose time is over, and so of any epoch."""
    alter = PartitionControl._alter_isr

    def unfenced(
        self: Any, sender: int, topic: Any, wanted: Any, version: int, changes: Any
    ) -> None:
        partition = changes.current(topic, wanted.partition_index)
        isr = [state.broker_id for state in wanted.new_isr_with_epochs]
        if isr and set(isr) <= set(partition.replicas) and partition.leader in isr:
            for state in wanted.new_isr_with_epochs:
                state.broker_epoch = -1
            wanted.leader_epoch = partition.leader_epoch
            wanted.partition_epoch = partition.partition_epoch
            sender = partition.leader
        alter(self, sender, topic, wanted, version, changes)

    patch.setattr(PartitionControl, "_alter_isr", unfenced)


def a_broker_obeys_old_controllers_and_old_orders(patch: pytest.MonkeyPatch) -> None:
    """No fencing by controller epoch and broker epoch (KIP-380)."""

    def check(self: ReplicaManager, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    patch.setattr(ReplicaManager, "check_epochs", check)


def orders_before_registration(patch: pytest.MonkeyPatch) -> None:
    """A broker obeys orders for its last incarnation as long as it does not know its own epoch.

    It neither waits for its registration nor compares the part of the epoch that it has drawn itself."""
    patch.setattr(ClusterMember, "is_registered", True)
    patch.setattr(ClusterMember, "is_own_epoch", lambda self, broker_epoch: True)


def who_lost_its_tail_stays_eligible(patch: pytest.MonkeyPatch) -> None:
    """KIP-966: the registration of a broker after an unclean shutdown leaves the eligible leaders as they are."""
    patch.setattr(PartitionControl, "remove_from_elr", lambda self, broker_id: None)


def a_restarted_broker_stays_in_the_isr(patch: pytest.MonkeyPatch) -> None:
    """A broker that registers again is not taken out of ISRs first."""

    def not_failed(self: Any, broker_id: int, why: str) -> Steps:
        if why != "registered_again":
            yield from fail(self, broker_id, why)

    fail = BrokerRegistry.fence
    patch.setattr(BrokerRegistry, "fence", not_failed)
    patch.setattr(Leases, "connection_lost", lambda self, broker_id, epoch: None)
    patch.setattr(Leases, "is_in_grace_period", lambda self, broker: True)


def a_pending_change_is_dropped_on_any_error(patch: pytest.MonkeyPatch) -> None:
    """A leader takes a lost answer for "was not done"."""
    on_response = AlterPartitionManager._on_response
    count = [0]

    def losing(self: Any, response: Any, *rest: Any) -> None:
        count[0] += 1
        if response is None or count[0] % 3 == 0:
            batch, self._in_flight = self._in_flight, {}
            for proposal in batch.values():
                if self._is_pending(proposal):
                    proposal.partition.isr_state = CommittedIsr(proposal.state.isr)
            return
        on_response(self, response, *rest)

    patch.setattr(AlterPartitionManager, "_on_response", losing)


def the_isr_is_joined_too_early(patch: pytest.MonkeyPatch) -> None:
    """A follower is proposed whether or not it has reached the high watermark."""

    def expand(self: Partition, replica: Any) -> bool:
        state = self.isr_state
        if state.in_flight or replica.broker_id in state.isr:
            return False
        self.isr_state = PendingExpandIsr(state.isr, replica.broker_id)
        self._host.propose_isr(self)
        return True

    patch.setattr(Partition, "maybe_expand_isr", expand)


def duplicates_are_appended(patch: pytest.MonkeyPatch) -> None:
    """A retried batch is not recognised."""

    def check(self: Any, *batch: Any) -> None:
        return None

    patch.setattr(ProducerStateManager, "check", check)


def consumers_read_to_the_log_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "read_bound", lambda self, params: self.log.log_end_offset)


def strays_are_kept(patch: pytest.MonkeyPatch) -> None:
    """A broker goes on with a replica of a topic that was deleted while it was away."""
    patch.setattr(replica_control, "_drop_strays", lambda manager, orders: None)


def deleted_topics_stay_known(patch: pytest.MonkeyPatch) -> None:
    """A broker that was cut off does not take from a full UpdateMetadata what has gone meanwhile."""
    patch.setattr(MetadataCache, "_forget_unlisted", lambda self, request: [])


def the_journal_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    """The controller announces what a power cut can take from it."""
    patch.setattr(StoreJournal, "flush", lambda self: None)


def the_topic_id_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    """Data may get to the disk without the file that says whose it is, and is kept."""
    patch.setattr(loader.LogLoader, "remove_unflushed", lambda self: None)


def a_deposed_controller_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A controller does not look whether another has taken over before it decides."""
    patch.setattr(ClaimedJournal, "check", lambda self: None)
    patch.setattr(ClaimedJournal, "delete_older", lambda self: None)


def a_new_controller_lacks_the_last_decision(patch: pytest.MonkeyPatch) -> None:
    """It begins with the journal as it was some time ago."""
    inherited = ClaimedJournal._read_inherited

    def stale(self: ClaimedJournal, before: list[int]) -> bytes:
        data = inherited(self, before)
        batches = list(iter_batches(data))
        return data[: batches[-1].position] if len(batches) > 8 else data

    patch.setattr(ClaimedJournal, "_read_inherited", stale)


def a_failed_disk_is_kept_quiet(patch: pytest.MonkeyPatch) -> None:
    """The controller does not hear of it, and leaves the partition to its leader."""
    patch.setattr(ControllerLink, "report_disk_failure", lambda self, *rest: None)


def a_failed_disk_takes_all_partitions_offline(patch: pytest.MonkeyPatch) -> None:
    mark_offline = ReplicaManager.mark_offline

    def mark_all(self: ReplicaManager, key: tuple[str, int], reason: str, **named: Any) -> None:
        for each in list(self.by_key):
            mark_offline(self, each, reason, **named)

    patch.setattr(ReplicaManager, "mark_offline", mark_all)


def the_cleaner_removes_last_values(patch: pytest.MonkeyPatch) -> None:
    get = OffsetMap.get
    patch.setattr(OffsetMap, "get", lambda self, key: get(self, key) + 1)


def _without_waking(patch: pytest.MonkeyPatch, purgatory: str) -> None:
    """Who waits there is answered by its timer: late, but within the request's time-out."""
    complete = ReplicaManager.complete_waiting

    def forgetful(self: ReplicaManager, key: tuple[str, int]) -> None:
        forgotten = getattr(self, purgatory)
        watchers = forgotten.watchers.pop(key, None)
        try:
            complete(self, key)
        finally:
            if watchers is not None:
                forgotten.watchers[key] = watchers | forgotten.watchers.get(key, {})

    patch.setattr(ReplicaManager, "complete_waiting", forgetful)


def nobody_wakes_a_producer(patch: pytest.MonkeyPatch) -> None:
    _without_waking(patch, "produce_purgatory")


def nobody_wakes_a_reader(patch: pytest.MonkeyPatch) -> None:
    _without_waking(patch, "fetch_purgatory")


def nobody_wakes_who_deletes_records(patch: pytest.MonkeyPatch) -> None:
    _without_waking(patch, "delete_records_purgatory")


def a_new_high_watermark_waits_for_the_next_fetch(patch: pytest.MonkeyPatch) -> None:
    """A follower gets it with records or at max_wait_ms only, as in Kafka."""
    patch.setattr(DelayedFetch, "_expire_soon", lambda self: None)


def a_session_leaves_out_new_high_watermarks(patch: pytest.MonkeyPatch) -> None:
    """An incremental answer to a consumer lists only partitions with records."""
    update = CachedPartition.update_answered

    def only_records(self: CachedPartition, data: Any) -> bool:
        is_consumer = self.log_start_offset < 0
        return update(self, data) and not (is_consumer and not data.error and not data.records)

    patch.setattr(CachedPartition, "update_answered", only_records)


def every_partition_may_exceed_the_limit(patch: pytest.MonkeyPatch) -> None:
    """Not only the first of an answer (KIP-74)."""
    read = Partition.read

    def generous(self: Partition, request: Any, params: Any, max_bytes: int, _: bool) -> Any:
        return read(self, request, params, max_bytes, True)

    patch.setattr(Partition, "read", generous)


def a_reader_is_answered_with_nothing(patch: pytest.MonkeyPatch) -> None:
    """A long poll ends with the next record anywhere, whether or not it may be read."""
    patch.setattr(DelayedFetch, "is_satisfied_after", lambda self, key: True)


def readers_are_sent_to_any_follower(patch: pytest.MonkeyPatch) -> None:
    """Whatever its rack, and whether or not it is in sync."""

    def any_follower(partition: Partition, *_: Any) -> int:
        return max(partition.remote_replicas, default=-1)

    patch.setattr(selector, "preferred_read_replica", any_follower)


def look_ups_by_time_skip_a_record(patch: pytest.MonkeyPatch) -> None:
    find = Log.offset_by_timestamp

    def late(self: Log, timestamp: int, end: int) -> Any:
        return find(self, timestamp + 1, end)

    patch.setattr(Log, "offset_by_timestamp", late)


def the_latest_offset_is_the_log_end(patch: pytest.MonkeyPatch) -> None:
    def to_the_end(partition: Partition, timestamp: int, *rest: Any) -> Steps:
        if timestamp == LATEST_TIMESTAMP:
            return partition.log.log_end_offset, -1, partition.leader_epoch
        return (yield from offset_for_timestamp(partition, timestamp, *rest))

    patch.setattr(offsets, "offset_for_timestamp", to_the_end)


def the_unclean_flag_counts_once_it_was_true(patch: pytest.MonkeyPatch) -> None:
    """A controller does not hear that it was switched off again."""
    allowed = PartitionControl._unclean_allowed
    once: set[str] = set()

    def remembered(self: PartitionControl, topic: str) -> bool:
        if allowed(self, topic):
            once.add(topic)
        return topic in once

    patch.setattr(PartitionControl, "_unclean_allowed", remembered)


def retention_deletes_one_segment_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention, "_is_excess", lambda log, limit: lambda *_: log.size_bytes > limit)


def retention_takes_the_age_of_files(patch: pytest.MonkeyPatch) -> None:
    """A record is as old as the segment that it is in, not as the newest record there."""
    patch.setattr(LogSegment, "largest_timestamp", lambda self: self.first_timestamp or 0)


def retention_does_not_ask_for_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    delete = retention.delete_old_segments

    def careless(log: Log, *rest: Any) -> Any:
        known = log.high_watermark
        log.high_watermark = log.log_end_offset
        try:
            return delete(log, *rest)
        finally:
            log.high_watermark = known

    patch.setattr(retention, "delete_old_segments", careless)


def a_move_loses_the_last_segment(patch: pytest.MonkeyPatch) -> None:
    replace = moves.LogDirMoves._replace

    def hasty(self: Any, partition: Partition, future: Log) -> None:
        replace(self, partition, future)
        log = partition.log
        if log.active.base_offset > log.log_start_offset:
            log.truncate_to(log.active.base_offset)

    patch.setattr(moves.LogDirMoves, "_replace", hasty)


def moves_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moves.LogDirMoves, "_copy", lambda self, current, future: None)


def throttled_replicas_wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    pause = throttles.ReplicationThrottles.pause_ms

    def for_ever(self: throttles.ReplicationThrottles, key: Any, lag: int) -> int:
        return pause(self, key, lag) * 10_000

    patch.setattr(throttles.ReplicationThrottles, "pause_ms", for_ever)


def throttles_outlive_their_lists(patch: pytest.MonkeyPatch) -> None:
    """And their rates: a leader keeps to what it was told first."""
    throttle_of = throttles.throttle_of
    first: dict[tuple[int, str], int] = {}

    def kept(config: Any, key: str) -> int | None:
        found = throttle_of(config, key)
        return (
            first.setdefault((id(config), key), found)
            if found is not None
            else first.get((id(config), key))
        )

    patch.setattr(throttles, "throttle_of", kept)
    includes = throttles.ReplicationThrottle.includes

    def included(self: Any, key: Any) -> bool:
        if includes(self, key):
            self._parsed[f"{key}"] = frozenset()
        return f"{key}" in self._parsed

    patch.setattr(throttles.ReplicationThrottle, "includes", included)


def strangers_are_obeyed(patch: pytest.MonkeyPatch) -> None:
    """A broker looks only whether a broker epoch is large enough, as Kafka does."""
    patch.setattr(ClusterMember, "is_own_epoch", lambda self, broker_epoch: True)


def followers_take_damaged_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(validation, "check_crc", lambda view, header: True)


def producers_may_send_anything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "needs_validation", lambda self, view, fields, origin: False)


def a_coordinator_loads_only_a_part(patch: pytest.MonkeyPatch) -> None:
    load = ShardContext._load_batch

    def forgetful(self: Any, records: Any, header: Any) -> Any:
        if header.base_offset % 3:
            yield from load(self, records, header)

    patch.setattr(ShardContext, "_load_batch", forgetful)


def commits_of_old_generations_are_taken(patch: pytest.MonkeyPatch) -> None:
    validate = ClassicGroup.validate_offset_commit

    def generous(self: ClassicGroup, *request: Any) -> None:
        try:
            validate(self, *request)
        except KafkaError as error:
            if error.code is not ErrorCode.ILLEGAL_GENERATION:
                raise

    patch.setattr(ClassicGroup, "validate_offset_commit", generous)


def markers_of_one_transaction_differ(patch: pytest.MonkeyPatch) -> None:
    """Some partitions commit, others abort."""
    marker_for = markers._Transaction.marker_for

    def lying(self: Any, partitions: Any) -> Any:
        marker = marker_for(self, partitions)
        if any(1 in topic.partition_indexes for topic in marker.topics):
            marker.transaction_result = not marker.transaction_result
        return marker

    patch.setattr(markers._Transaction, "marker_for", lying)


def open_transactions_are_stable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "last_stable_offset", property(lambda self: self.high_watermark))


def a_marker_is_stable_at_once(patch: pytest.MonkeyPatch) -> None:
    """Before its replication."""
    complete = ProducerStateManager.complete_txn

    def completed(self: Any, ended: Any) -> None:
        complete(self, ended)
        self.unreplicated.clear()

    patch.setattr(ProducerStateManager, "complete_txn", completed)


def aborted_transactions_are_not_listed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "aborted_transactions", lambda self, start, end: [])


def fenced_producers_go_on(patch: pytest.MonkeyPatch) -> None:
    """Neither by the epoch in the partition nor by the coordinator."""
    patch.setattr(ProducerStateManager, "_check_epoch", lambda self, entry, header, origin: None)
    patch.setattr(guards, "start_verification", lambda *args: None)
    patch.setattr(verification, "check_verified", lambda *args: None)


def transactions_do_not_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionMetadata, "has_timed_out", lambda self, now_ms: False)


def who_waits_for_a_transaction_is_not_woken(patch: pytest.MonkeyPatch) -> None:
    """But by the clock."""
    patch.setattr(Waiting, "changed", lambda self, transactional_id: None)


def every_open_transaction_times_out(patch: pytest.MonkeyPatch) -> None:
    """With the next look, however long it may take."""

    def has_timed_out(self: TransactionMetadata, now_ms: int) -> bool:
        return self.state is ONGOING and not self.is_pending

    patch.setattr(TransactionMetadata, "has_timed_out", has_timed_out)


def who_has_aborted_is_fenced(patch: pytest.MonkeyPatch) -> None:
    """With version 1, where the epoch stays as it is."""
    check = shard._check_producer

    def strict(values: Any, producer_id: int, producer_epoch: int) -> None:
        check(values, producer_id, producer_epoch)
        if values.state is COMPLETE_ABORT:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    patch.setattr(shard, "_check_producer", strict)


def markers_are_an_epoch_ahead(patch: pytest.MonkeyPatch) -> None:
    """So partitions refuse the next transaction of their producer."""
    send = markers.MarkerSender.send

    def ahead(
        self: Any, index: int, coordinator_epoch: int, producer_id: int, epoch: int, *more: Any
    ) -> Any:
        return send(self, index, coordinator_epoch, producer_id, epoch + 1, *more)

    patch.setattr(markers.MarkerSender, "send", ahead)


def a_coordinator_sends_no_markers_after_loading(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionShard, "on_loaded", lambda self: [])


def offsets_of_open_transactions_are_read(patch: pytest.MonkeyPatch) -> None:
    replay = OffsetManager.replay

    def at_once(self: Any, offset: int, producer_id: int, key: Any, value: Any) -> None:
        replay(self, offset, -1, key, value)

    patch.setattr(OffsetManager, "replay", at_once)


def stable_reads_wait_for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OffsetManager, "_has_pending", lambda self, *place: False)


def all_reads_wait_for_transactions(patch: pytest.MonkeyPatch) -> None:
    fetch = OffsetManager.fetch
    patch.setattr(
        OffsetManager, "fetch", lambda self, group, topics, stable: fetch(self, group, topics, True)
    )


def aborted_offsets_take_effect(patch: pytest.MonkeyPatch) -> None:
    end = OffsetManager.replay_end_transaction

    def ended(self: Any, offset: int, producer_id: int, committed: bool) -> None:
        end(self, offset, producer_id, True)

    patch.setattr(OffsetManager, "replay_end_transaction", ended)


def transactions_of_old_generations_commit_offsets(patch: pytest.MonkeyPatch) -> None:
    validate = ClassicGroup.validate_offset_commit

    def lenient(self: Any, *args: Any, is_transactional: bool = False) -> None:
        if not is_transactional:
            validate(self, *args)

    patch.setattr(ClassicGroup, "validate_offset_commit", lenient)


def a_loaded_coordinator_gives_more_time(patch: pytest.MonkeyPatch) -> None:
    replay = TransactionShard.replay

    def changing(self: Any, offset: int, producer_id: int, record: Any) -> None:
        if record.value is not None:
            record.value.transaction_timeout_ms += 1
        replay(self, offset, producer_id, record)

    patch.setattr(TransactionShard, "replay", changing)


def late_batches_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    """As before KIP-890: a batch that comes after the end of its transaction, or after its fence, begins another."""
    patch.setattr(guards, "start_verification", lambda *args: None)
    patch.setattr(verification, "check_verified", lambda *args: None)


def an_end_gives_no_new_epoch(patch: pytest.MonkeyPatch) -> None:
    """With version 2, too: two transactions have one epoch."""
    prepare = TransactionMetadata.prepare_end

    def same(self: Any, state: Any, now_ms: int, version: int, **options: Any) -> Any:
        return prepare(self, state, now_ms, 0, **options)

    patch.setattr(TransactionMetadata, "prepare_end", same)


def the_cleaner_takes_aborted_records_for_committed(patch: pytest.MonkeyPatch) -> None:
    on_batch = CleanedTransactions.on_batch

    def committed(self: Any, header: Any) -> bool:
        on_batch(self, header)
        return False

    patch.setattr(CleanedTransactions, "on_batch", committed)


def the_cleaner_removes_markers_before_their_records(patch: pytest.MonkeyPatch) -> None:
    on_control_batch = CleanedTransactions.on_control_batch

    def removable(self: Any, *args: Any) -> bool:
        on_control_batch(self, *args)
        return True

    patch.setattr(CleanedTransactions, "on_control_batch", removable)


def aborted_transactions_of_one_segment_are_listed(patch: pytest.MonkeyPatch) -> None:
    collect = TransactionIndex.collect
    patch.setattr(
        TransactionIndex, "collect", lambda self, start, end: (collect(self, start, end)[0], True)
    )


def _only(*kinds: str) -> Focus:
    def focus(plan: Plan) -> None:
        for kind in plan.weights:
            plan.weights[kind] = 5 if kind in kinds else 0

    return focus


def _two_controllers(*kinds: str) -> Focus:
    only = _only(*kinds)

    def focus(plan: Plan) -> None:
        only(plan)
        plan.controllers = 2

    return focus


def _with_clients(*clients: ClientPlan, racks: int = 0) -> Focus:
    def focus(plan: Plan) -> None:
        plan.clients = [client for client in plan.clients if client.kind == "producer"]
        plan.clients += clients
        plan.racks = racks
        if racks:
            plan.config["replica.selector.class"] = RACK_AWARE

    return focus


def _retention(plan: Plan) -> None:
    """By size in one topic, by age in the other; followers are behind."""
    _only("pause", "slow", "kill")(plan)
    plan.config["log.retention.check.interval.ms"] = "100"
    plan.topics = [
        TopicPlan(name, 2, 2, {"segment.bytes": "400", "min.insync.replicas": "1", **limits})
        for name, limits in (
            ("topic-0", {"retention.bytes": "1000"}),
            ("topic-1", {"retention.ms": "300"}),
        )
    ]


def _with_segments(*kinds: str, log_dirs: int = 1) -> Focus:
    """Small segments, flushed often, so that many are closed."""
    only = _only(*kinds)

    def focus(plan: Plan) -> None:
        only(plan)
        plan.log_dirs = log_dirs
        plan.config |= {"log.segment.bytes": "400", "log.flush.interval.messages": "1"}
        plan.topics = [TopicPlan("topic-0", 2, 2, {"min.insync.replicas": "1"})]

    return focus


def _group(*kinds: str) -> Focus:
    only = _only(*kinds)

    def focus(plan: Plan) -> None:
        only(plan)
        members = [ClientPlan("member", session_ms=300) for _ in range(3)]
        plan.clients = [ClientPlan("producer"), *members]
        plan.work_pause_ms = 5
        plan.outage_ms = 300
        plan.config |= {
            "group.min.session.timeout.ms": "100",
            "offsets.topic.replication.factor": "2",
        }

    return focus


def _as_drawn(plan: Plan) -> None:
    """Nothing."""


def _no_unclean(plan: Plan) -> None:
    plan.unclean = False
    for topic in plan.topics:
        topic.configs.pop("unclean.leader.election.enable", None)


def _eligible(*kinds: str) -> Focus:
    """Eligible leaders (KIP-966), of three replicas of which two must be in sync."""
    only = _only(*kinds)

    def focus(plan: Plan) -> None:
        only(plan)
        _no_unclean(plan)
        plan.config["eligible.leader.replicas.enable"] = "true"

    return focus


def _transactions(*kinds: str, bumping: int = 0) -> Focus:
    """Two producers with one transactional id, a third, and a read_committed reader."""
    only = _only(*kinds)

    def focus(plan: Plan) -> None:
        only(plan)
        plan.unclean = False
        plan.topics = [TopicPlan("topic-0", 3, 2, {"min.insync.replicas": "1"})]
        plan.clients = [
            *(
                ClientPlan("transactional", transactional_id=name, timeout_ms=300, bumping=bumping)
                for name in ("a", "a", "b")
            ),
            ClientPlan("consumer", isolation_level=1),
        ]
        plan.work_pause_ms = 5
        plan.config |= {
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.min.isr": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        }

    return focus


def _transformers(*kinds: str, grouped: int, bumping: int = 1) -> Focus:
    """Transactions with offsets: of three members of a group, or of two with one transactional id."""
    only = _transactions(*kinds)

    def focus(plan: Plan) -> None:
        only(plan)
        plan.clients = [
            ClientPlan(
                "transformer",
                transactional_id=f"t-{number if grouped else 0}",
                group="transformers",
                grouped=grouped,
                session_ms=150,
                timeout_ms=300,
                bumping=bumping,
            )
            for number in range(3 if grouped else 2)
        ]
        plan.config |= {
            "group.min.session.timeout.ms": "100",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": "2",
        }

    return focus


def an_append_leaves_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Of a leader that is alone in the ISR: the next check of the ISR moves it."""
    append = Partition.append_records_to_leader

    def appended(self: Partition, *args: Any, **named: Any) -> Any:
        with pytest.MonkeyPatch.context() as only_here:
            only_here.setattr(Partition, "maybe_increment_high_watermark", lambda self: False)
            return append(self, *args, **named)

    patch.setattr(Partition, "append_records_to_leader", appended)


def truncations_leave_the_recovery_point(patch: pytest.MonkeyPatch) -> None:
    truncate = Log._truncate_segments

    def truncated(self: Log, offset: int) -> Any:
        point = self.recovery_point
        removed = truncate(self, offset)
        self.recovery_point = point
        return removed

    patch.setattr(Log, "_truncate_segments", truncated)


def empty_groups_keep_their_generation(patch: pytest.MonkeyPatch) -> None:
    begin = ClassicGroup.init_next_generation

    def begun(self: ClassicGroup) -> None:
        begin(self)
        self.generation_id -= not self.members

    patch.setattr(ClassicGroup, "init_next_generation", begun)


def the_isr_says_who_leads(patch: pytest.MonkeyPatch) -> None:
    """Not the assignment."""
    elect = election.offline

    def elected(replicas: Any, isr: Any, alive: Any, recovering: bool = False) -> Any:
        return elect(isr, isr, alive, recovering)

    patch.setattr(election, "offline", elected)


def _segments_with_transactions(*kinds: str, compacted: bool) -> Focus:
    """Small segments: of a compacted topic whose markers go soon, or of one that old ones are deleted from."""
    only = _transactions(*kinds)

    def focus(plan: Plan) -> None:
        only(plan)
        configs = {"segment.bytes": "200", "min.insync.replicas": "1"}
        plan.topics = [TopicPlan("topic-0", 1, 2, dict(configs))]
        if compacted:
            compaction = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            plan.topics.append(TopicPlan("compacted-0", 1, 2, configs | compaction))
            for client in plan.clients[:3]:
                client.options["compacted"] = 1
            plan.remove_markers()

    return focus


# Mutation: the rules that catch it, and how its plans are drawn.
MUTATIONS: list[tuple[Patch, set[str], Focus]] = [
    (high_watermark_by_the_leader_alone, {"I4", "I10", "I19", "I20"}, _as_drawn),
    (
        high_watermark_by_the_proposed_isr,
        {"I4", "I10", "I14", "I19", "I20", "I24"},
        _only("pause", "slow", "kill"),
    ),
    (high_watermark_without_the_joiner, {"I4", "I10", "I14", "I48"}, _as_drawn),
    (truncation_to_the_high_watermark, {"I19", "I20", "I10", "I4"}, _as_drawn),
    (no_truncation, {"I3", "I4", "I30", "I6", "I2", "I19"}, _as_drawn),
    (no_leader_epoch_check, {"I3", "I4", "I30", "I1", "I10", "I23"}, _as_drawn),
    (election_outside_the_isr, {"I20"}, _no_unclean),
    (who_lost_its_tail_stays_eligible, {"I20"}, _eligible("power_cut")),
    (a_follower_appends_past_a_gap, {"I19", "I26", "I3"}, _as_drawn),
    (acks_all_before_the_high_watermark, {"I23"}, _as_drawn),
    (no_epoch_before_the_first_append, {"I6"}, _as_drawn),
    (a_broker_obeys_old_controllers_and_old_orders, {"I15", "I13", "I8", "I1"}, _as_drawn),
    (
        a_restarted_broker_stays_in_the_isr,
        {"I3", "I10", "I19", "I20", "I30", "I4"},
        _only("power_cut"),
    ),
    (a_pending_change_is_dropped_on_any_error, {"I14", "I10", "I4"}, _as_drawn),
    (the_isr_is_joined_too_early, {"I21"}, _as_drawn),
    (duplicates_are_appended, {"I22", "I31"}, _as_drawn),
    (consumers_read_to_the_log_end, {"I17"}, _as_drawn),
    (strays_are_kept, {"I30", "I1"}, _only("delete_topic", "cut")),
    (deleted_topics_stay_known, {"I30"}, _only("delete_topic", "isolate", "create_topic")),
    (the_journal_is_not_flushed, {"I13", "I25"}, _only("controller_power_cut", "kill")),
    (the_topic_id_is_not_flushed, {"I25"}, _only("power_cut", "create_topic")),
    (a_deposed_controller_goes_on, {"I13"}, _two_controllers("controller_pause", "kill")),
    (a_new_controller_lacks_the_last_decision, {"I25", "I13"}, _only("controller", "kill")),
    (the_cleaner_removes_last_values, {"I19"}, _only("kill", "elect")),
    (nobody_wakes_a_producer, {"I23"}, _as_drawn),
    (nobody_wakes_a_reader, {"I23"}, _as_drawn),
    (nobody_wakes_who_deletes_records, {"I23"}, _only("delete_records")),
    (a_new_high_watermark_waits_for_the_next_fetch, {"I23"}, _as_drawn),
    (
        a_session_leaves_out_new_high_watermarks,
        {"I32"},
        _with_clients(ClientPlan("session_consumer", partition_max_bytes=300)),
    ),
    (
        every_partition_may_exceed_the_limit,
        {"I33"},
        _with_clients(ClientPlan("session_consumer", partition_max_bytes=50)),
    ),
    (a_reader_is_answered_with_nothing, {"I33"}, _as_drawn),
    (
        readers_are_sent_to_any_follower,
        {"I34"},
        _with_clients(ClientPlan("session_consumer", rack="rack-0"), racks=2),
    ),
    (look_ups_by_time_skip_a_record, {"I35"}, _with_clients(ClientPlan("lookups"))),
    (the_latest_offset_is_the_log_end, {"I35"}, _with_clients(ClientPlan("lookups"))),
    (
        the_unclean_flag_counts_once_it_was_true,
        {"I20"},
        _only("unclean_flag", "kill", "isolate"),
    ),
    (retention_deletes_one_segment_more, {"I36"}, _retention),
    (retention_takes_the_age_of_files, {"I36"}, _retention),
    (retention_does_not_ask_for_the_high_watermark, {"I5", "I36"}, _retention),
    (a_move_loses_the_last_segment, {"I37"}, _with_segments("log_dir_move", log_dirs=2)),
    (moves_never_end, {"I30"}, _with_segments("log_dir_move", log_dirs=2)),
    (throttled_replicas_wait_for_ever, {"I30"}, _only("reassign")),
    (throttles_outlive_their_lists, {"I30"}, _only("reassign")),
    (strangers_are_obeyed, {"I15"}, _only("stranger")),
    (followers_take_damaged_batches, {"I3"}, _with_segments("bit_rot", "reassign")),
    (producers_may_send_anything, {"I38"}, _with_clients(ClientPlan("liar"))),
    (a_coordinator_loads_only_a_part, {"I39"}, _group("kill", "elect")),
    (commits_of_old_generations_are_taken, {"I40"}, _group("slow", "cut")),
    (a_failed_disk_is_kept_quiet, {"I30"}, _only("disk")),
    (a_failed_disk_takes_all_partitions_offline, {"I30"}, _only("disk")),
    (markers_of_one_transaction_differ, {"I41"}, _transactions("kill")),
    (open_transactions_are_stable, {"I42"}, _transactions("kill")),
    (a_marker_is_stable_at_once, {"I42"}, _transactions("slow")),
    (aborted_transactions_are_not_listed, {"I43"}, _transactions("kill")),
    (fenced_producers_go_on, {"I44", "I22"}, _transactions("kill", "slow", bumping=1)),
    (transactions_do_not_time_out, {"I30"}, _transactions("kill")),
    (who_waits_for_a_transaction_is_not_woken, {"I23"}, _transactions("slow")),
    (every_open_transaction_times_out, {"I52"}, _transactions("slow")),
    (who_has_aborted_is_fenced, {"I52"}, _transactions("slow")),
    (markers_are_an_epoch_ahead, {"I52"}, _transactions("slow")),
    (markers_are_an_epoch_ahead, {"I52"}, _transactions("slow", bumping=1)),
    (a_coordinator_sends_no_markers_after_loading, {"I30"}, _transactions("kill", "elect")),
    (offsets_of_open_transactions_are_read, {"I45"}, _transformers("kill", grouped=0)),
    (stable_reads_wait_for_nothing, {"I45", "I46"}, _transformers("slow", grouped=1)),
    (all_reads_wait_for_transactions, {"I45"}, _transformers("slow", grouped=1)),
    (aborted_offsets_take_effect, {"I45", "I46"}, _transformers("kill", grouped=0)),
    (
        transactions_of_old_generations_commit_offsets,
        {"I40", "I46"},
        _transformers("slow", "pause", grouped=1),
    ),
    (a_loaded_coordinator_gives_more_time, {"I47"}, _transformers("kill", "elect", grouped=0)),
    (an_append_leaves_the_high_watermark, {"I48"}, _as_drawn),
    (truncations_leave_the_recovery_point, {"I49"}, _as_drawn),
    (empty_groups_keep_their_generation, {"I50"}, _group("kill")),
    (the_isr_says_who_leads, {"I51"}, _only("kill", "reassign", "elect")),
    (late_batches_are_not_verified, {"I44"}, _transactions("slow", bumping=1)),
    (an_end_gives_no_new_epoch, {"I44"}, _transactions("kill", bumping=1)),
    (
        the_cleaner_takes_aborted_records_for_committed,
        {"I19", "I43"},
        _segments_with_transactions("elect", compacted=True),
    ),
    (
        the_cleaner_removes_markers_before_their_records,
        {"I19", "I43"},
        _segments_with_transactions("elect", compacted=True),
    ),
    (
        aborted_transactions_of_one_segment_are_listed,
        {"I43"},
        _segments_with_transactions("slow", compacted=False),
    ),
]
