"""`GET /v1/counts` of a node: what it counts, in pages, so that no step of the node is long.

A page is a JSON object: `next` (null: the last one) and `nodes`, each with `id`, `role`, and on the first page
`samples` ([name, values of the labels, number]). Then rows: `partitions` (`table.ROW`), `topics` (name, then
`table.TOPIC_COUNTS`), `offsets` (group, topic, partition, offset) and `members` (group, number).
"""

from __future__ import annotations

from functools import partial
from itertools import islice

from kwire.control.metrics.table import CONTROLLER, GROUPS, MANAGER, TOPIC_COUNTS
from kwire.control.node_api import step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kwire.apis.context import Services
    from kwire.broker import Broker
    from kwire.control.node_api import ControlledNode, NodeControl
    from kwire.replication.controller.controller import Controller
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition

    Sample = list[Any]

ROWS_AT_ONCE = 500
_REPLICA = ["Replica"]
_STATS = "kafka_controller_controllerstats_"
_UNCLEAN = "elections.unclean"


def page(control: NodeControl, start: int | None) -> dict[str, Any]:
    """What these nodes count, from this row on."""
    first = start or 0
    found, more = [], False
    for node in control.nodes():
        one, is_last = step(node, partial(_of_node, node, first))
        found.append(one)
        more = more or not is_last
    return {"next": first + ROWS_AT_ONCE if more else None, "nodes": found}


def _of_node(node: ControlledNode, start: int, core: Any) -> tuple[dict[str, Any], bool]:
    role = "controller" if node.is_controller else "broker"
    found: dict[str, Any] = {"id": node.node_id, "role": role, "samples": []}
    found |= {"partitions": [], "topics": [], "offsets": [], "members": []}
    if not start:
        found["samples"] = list(_samples(node, core))
    if node.is_controller:
        return found, True
    count = 0
    for kind, row in islice(_rows(core.services), start, start + ROWS_AT_ONCE):
        count += 1
        if kind == "partitions":
            found[kind].append(_partition(core.services.replica_manager, row))
        elif kind == "topics":
            found[kind].append([row[0], *(getattr(row[1], name) for name in TOPIC_COUNTS)])
        else:
            found[kind].append(row)
    return found, count < ROWS_AT_ONCE


def _rows(services: Services) -> Iterator[tuple[str, Any]]:
    """What there is a row for; those that are not on this page cost next to nothing."""
    manager = services.replica_manager
    yield from (("partitions", each) for each in manager.partitions())
    yield from (("topics", each) for each in manager.traffic.by_topic.items())
    for context in services.group_coordinator.runtime.contexts.values():
        shard = context.shard
        for group in shard.classic.groups.values():
            yield "members", [group.group_id, len(group.members)]
        store = shard.offsets.store
        for name in store.groups:
            for topic, index, entry in store.iterate(name):
                committed = store.committed_value(entry)
                if committed is not None:
                    yield "offsets", [name, topic, index, committed.committed_offset]


def _partition(manager: ReplicaManager, partition: Partition) -> list[Any]:
    log, leads = partition.log, partition.is_leader
    in_sync = len(partition.isr_state.isr) if leads else 0
    required = partition.effective_min_isr() if leads else -1
    wanted = len(set(partition.replicas).difference(partition.adding_replicas)) if leads else 0
    client, lag = (None, -1) if leads else _lag(manager, partition)
    return [
        *(partition.topic, partition.index, log.size_bytes, len(log.segments)),
        *(log.log_start_offset, log.log_end_offset, log.high_watermark - log.last_stable_offset),
        *(int(wanted > in_sync), int(leads and in_sync < required), int(in_sync == required)),
        *(in_sync, len(partition.replicas) if leads else 0, client, lag, log.high_watermark),
        int(leads and partition.replicas[:1] == [manager.node_id]),
        *(partition.leader_id if leads else -1, len(log.producer_state.producers)),
    ]


def _lag(manager: ReplicaManager, partition: Partition) -> tuple[str | None, int]:
    """What Kafka calls the fetcher of a follower, and how far it is behind; None and -1: nothing fetched yet."""
    fetchers: Any = manager.fetchers
    for (leader, fetcher_id), fetcher in fetchers.fetchers.items() if fetchers else ():
        state = fetcher.states.get(partition.key)
        if state is not None and state.lag >= 0:
            return f"ReplicaFetcherThread-{fetcher_id}-{leader}", state.lag
    return None, -1


# --- what a node counts once


def _samples(node: ControlledNode, core: Any) -> Iterator[Sample]:
    yield from _requests(core)
    yield from _connections(node)
    controller = core.controller if node.is_controller else core.services.controller
    if controller is not None:
        yield from _of_controller(controller)
    if not node.is_controller:
        yield from _of_broker(core)


def _requests(core: Any) -> Iterator[Sample]:
    from kwire.protocol.api import ApiKey

    for key, count in sorted(core.sessions.request_counts().items()):
        names = [ApiKey(key >> 16).api_name, str(key & 0xFFFF)]
        yield ["kafka_network_requestmetrics_requests_total", names, count]


def _connections(node: ControlledNode) -> Iterator[Sample]:
    counts = {listener.name: 0 for listener in node.node.listeners}
    for connection in node.node.connections.values():
        counts[connection.listener.name] += 1
    for name, count in counts.items():
        yield ["kafka_server_socket_server_metrics_connection_count", [name, "0"], count]


def _of_controller(controller: Controller) -> Iterator[Sample]:
    counts = controller.metrics()
    active = bool(counts["ActiveControllerCount"])
    for name in (
        *("ActiveControllerCount", "ActiveBrokerCount", "GlobalTopicCount", "GlobalPartitionCount"),
        *("OfflinePartitionsCount", "PreferredReplicaImbalanceCount"),
    ):
        yield [f"{CONTROLLER}{name.lower()}", [], counts[name] if active else 0]
    yield [f"{_STATS}uncleanleaderelections_total", [], counts.get(_UNCLEAN, 0)]
    elections = sum(count for name, count in counts.items() if name.startswith("elections."))
    yield [f"{_STATS}leaderelectionrateandtimems_count", [], elections]


def _of_broker(core: Broker) -> Iterator[Sample]:
    services = core.services
    manager = services.replica_manager
    counters = manager.isr_counters
    offline = sum(not each.is_online for each in manager.log_manager.directories)
    yield [f"{MANAGER}offlinereplicacount", [], len(manager.offline)]
    yield [f"{MANAGER}isrshrinks_total", [], counters.shrinks]
    yield [f"{MANAGER}isrexpands_total", [], counters.expands]
    yield [f"{MANAGER}failedisrupdates_total", [], counters.failed_updates]
    yield ["kafka_log_logmanager_offlinelogdirectorycount", [], offline]
    yield ["kafka_server_kafkaserver_brokerstate", [], 3]
    for name, waiting in (
        ("Produce", manager.produce_purgatory),
        ("Fetch", manager.fetch_purgatory),
        ("DeleteRecords", manager.delete_records_purgatory),
    ):
        yield ["kafka_server_delayedoperationpurgatory_purgatorysize", [name], len(waiting)]
    yield from _all_topics(manager)
    yield from _fetchers(manager)
    yield from _groups(services)
    yield from _transactions(services)


def _all_topics(manager: ReplicaManager) -> Iterator[Sample]:
    """The counts of the broker, without a topic's name."""
    from kwire.control.metrics.table import TOPICS

    of_all: list[Any] = [manager.traffic.ended, *manager.traffic.by_topic.values()]
    for metric, name in zip(TOPICS, TOPIC_COUNTS, strict=True):
        yield [metric.name, [], sum(getattr(each, name) for each in of_all)]


def _fetchers(manager: ReplicaManager) -> Iterator[Sample]:
    fetchers: Any = manager.fetchers
    if fetchers is None:
        return
    of_manager = "kafka_server_replicafetchermanager_"
    now_ms, all_ = fetchers.clock.now_ms, fetchers.fetchers.values()
    rates = [each.stats.requests.per_second(now_ms) for each in all_]
    yield [f"{of_manager}minfetchrate", _REPLICA, min(rates, default=0.0)]
    yield [f"{of_manager}failedpartitionscount", _REPLICA, len(fetchers.failed)]
    yield [f"{of_manager}deadthreadcount", _REPLICA, sum(fetchers.is_dead(each) for each in all_)]


def _groups(services: Services) -> Iterator[Sample]:
    counts = dict.fromkeys(
        ("empty", "preparingrebalance", "completingrebalance", "stable", "dead"), 0
    )
    for context in services.group_coordinator.runtime.contexts.values():
        for group in context.shard.classic.groups.values():
            counts[group.state.lower()] += 1
    yield [GROUPS, [], sum(counts.values())]
    for state, count in counts.items():
        yield [f"{GROUPS}{state}", [], count]


def _transactions(services: Services) -> Iterator[Sample]:
    counts = {"Ongoing": 0}
    transactions = services.transactions_if_used
    contexts = {} if transactions is None else transactions.runtime.contexts
    for context in contexts.values():
        for each in context.shard.transactions.values():
            counts[each.state.name] = counts.get(each.state.name, 0) + 1
    for state, count in counts.items():
        yield ["kwire_transactions", [state], count]
