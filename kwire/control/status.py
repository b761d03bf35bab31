"""Status of running nodes for people: SIGUSR1 to `kwire up` logs it, node by node.

Corresponds to the JMX metrics of Kafka's ReplicaManager, Partition, ReplicaFetcherManager and
KafkaController; counts have Kafka's names. The `snapshot_of_…` functions run in the node
(GET /v1/status of `node_api.py`), `lines` and `log_snapshot` anywhere.
"""

from __future__ import annotations

import logging

from kwire.server.events import NodeEvent
from kwire.server.logs import emit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_log = logging.getLogger(__name__)

_MAX_EVENTS = 10


def snapshot_of_broker(broker: Any) -> dict[str, Any]:
    """A broker's status as JSON values: counts, hosted partitions, fetchers, last truncations."""
    from dataclasses import asdict

    from kwire.replication.replica.status import describe

    manager = broker.services.replica_manager
    status = describe(manager)
    found: dict[str, Any] = {
        "counts": {
            "PartitionCount": status.partition_count,
            "LeaderCount": status.leader_count,
            "OfflineReplicaCount": status.offline_replica_count,
            "OfflineLogDirectoryCount": status.offline_log_directory_count,
            "UnderReplicatedPartitions": status.under_replicated_partitions,
            "UnderMinIsrPartitionCount": status.under_min_isr_partition_count,
            "AtMinIsrPartitionCount": status.at_min_isr_partition_count,
            "IsrShrinks": status.isr_shrinks,
            "IsrExpands": status.isr_expands,
            "FailedIsrUpdates": status.failed_isr_updates,
            "WaitingProduces": status.waiting_produces,
            "WaitingFetches": status.waiting_fetches,
        },
        "partitions": [
            {**_as_json(asdict(each)), "topic_id": each.topic_id.hex()}
            for each in status.partitions
        ],
        "fetchers": [],
        "truncations": [],
    }
    if manager.fetchers is not None:
        _add_fetchers(found, manager.fetchers)
    return found


def _add_fetchers(found: dict[str, Any], fetchers: Any) -> None:
    """Add what a broker's followers do: counts, each fetcher, the lag of each partition."""
    metrics, now_ms = fetchers.metrics(), fetchers.clock.real_ms
    found["counts"] |= {
        "MaxLag": metrics.max_lag,
        "MinFetchRate": round(metrics.min_fetch_rate, 3),
        "FetchErrors": metrics.fetch_errors,
        "FailedPartitionsCount": metrics.failed_partitions_count,
        "DeadThreadCount": metrics.dead_thread_count,
    }
    found["fetchers"] = [
        {
            "leader": leader,
            "id": fetcher_id,
            "partitions": len(fetcher.states),
            "requests_per_second": metrics.requests_per_second[leader, fetcher_id],
            "bytes_per_second": metrics.bytes_per_second[leader, fetcher_id],
            "answers": fetcher.stats.answers,
            "failures": fetcher.stats.failures,
            "latency_ms": round(fetcher.stats.latency_ms, 1),
            "latency_max_ms": fetcher.stats.latency_max_ms,
            "answered_ms_ago": now_ms - fetcher.stats.answered_at_ms,
        }
        for (leader, fetcher_id), fetcher in fetchers.fetchers.items()
    ]
    for partition in found["partitions"]:
        key = partition["topic"], partition["partition"]
        if not partition["leads"]:
            partition["lag"] = metrics.consumer_lag.get(key)
            partition["lag_ms"] = metrics.lag_ms.get(key)
    found["failed"] = [f"{topic}-{index}" for topic, index in sorted(fetchers.failed)]
    found["truncations"] = [
        f"{cut.topic}-{cut.partition} cut from {cut.from_offset} to {cut.to_offset}: {cut.why}"
        for cut in metrics.truncations[-_MAX_EVENTS:]
    ]


def snapshot_of_controller(core: Any) -> dict[str, Any]:
    """A controller's status as JSON values: whether it is active, counts, last elections and ISR
    changes."""
    controller, active_id = core.controller, core.services.active_id
    role = f"controller {controller.node_id} "
    if controller.active:
        role += f"is active with epoch {controller.epoch}"
    else:
        role += "stands by" if active_id == controller.node_id else f"stands by for {active_id}"
    last = list(controller.events)[-_MAX_EVENTS:]
    return {
        "role": role,
        "counts": controller.metrics(),
        "events": [str(each) for each in last],
    }


def _as_json(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def lines(status: dict[str, Any]) -> list[str]:
    """A snapshot as lines of text."""
    return [text for text, _ in _entries(status)]


def _entries(status: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each line of a snapshot, with its values for the JSON log."""
    counts = status["counts"]
    found: list[tuple[str, dict[str, Any]]] = []
    if "role" in status:
        found.append((status["role"], {}))
    found.append(
        (" ".join(f"{name}={value}" for name, value in counts.items()), {"counts": counts})
    )
    found += [(_partition_line(each), {"partition": each}) for each in status.get("partitions", ())]
    found += [(_fetcher_line(each), {"fetcher": each}) for each in status.get("fetchers", ())]
    failed = status.get("failed")
    if failed:
        found.append((f"not followed any more: {', '.join(failed)}", {"failed": failed}))
    found += [(text, {}) for text in status.get("truncations", ())]
    found += [(f"earlier: {text}", {}) for text in status.get("events", ())]
    return found


def _fetcher_line(fetcher: dict[str, Any]) -> str:
    return (
        f"fetches from {fetcher['leader']} (fetcher {fetcher['id']}): {fetcher['partitions']} partitions, "
        f"{fetcher['requests_per_second']:.1f} requests/s, {fetcher['bytes_per_second']:.0f} bytes/s, "
        f"{fetcher['answers']} answered after {fetcher['latency_ms']:.0f} ms "
        f"(at most {fetcher['latency_max_ms']} ms), the last {fetcher['answered_ms_ago']} ms ago, "
        f"{fetcher['failures']} failed"
    )


def _partition_line(partition: dict[str, Any]) -> str:
    name = f"{partition['topic']}-{partition['partition']}"
    log = (
        f"offsets {partition['log_start_offset']} to {partition['log_end_offset']}, "
        f"high watermark {partition['high_watermark']}, {partition['size_bytes']} bytes"
    )
    epoch = f"leader epoch {partition['leader_epoch']}"
    if not partition["leads"]:
        lag, lag_ms = partition.get("lag"), partition.get("lag_ms")
        behind = f" for {lag_ms} ms" if lag_ms else ""
        lag_text = "" if lag is None else f"; lag: {lag}{behind}"
        return f"{name} follows {partition['leader_id']}, {epoch}: {log}{lag_text}"
    isr = ",".join(map(str, partition["isr"]))
    if partition["pending_isr"] is not None:
        isr += f" (proposed: {','.join(map(str, partition['pending_isr']))})"
    line = f"{name} leads, {epoch}, ISR {isr}: {log}"
    for follower in partition["followers"]:
        lag = "not known" if follower["lag"] < 0 else follower["lag"]
        ago = follower["caught_up_ms_ago"]
        if follower["lag"]:
            lag = f"{lag}, caught up {'never' if ago < 0 else f'{ago} ms ago'}"
        late = "" if follower["in_isr"] else ", not in sync"
        line += f"; lag of {follower['broker_id']}: {lag}{late}"
    return line


def log_snapshot(node_id: int, status: dict[str, Any], node: str | None = None) -> None:
    """Log a snapshot line by line; in the JSON log each line also has its values.

    `node`: "broker 1" for example, to begin the lines with."""
    kind = NodeEvent.NODE_STATUS
    for text, values in _entries(status):
        fields = {**dict.fromkeys(kind.fields), "text": text, "node_id": node_id, **values}
        emit(_log, kind, text, node, ("node_id",), fields)
