"""kafka-transactions of the image: list, describe, describe-producers, find-hanging, abort.

Answers to org.apache.kafka.tools.TransactionsCommand, in its columns.
"""

from __future__ import annotations

import sys
import time

from kwire.client import hanging
from kwire.client.transactions import list_transactions, producers
from kwire.docker.client import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kwire.client.offsets import Key
    from kwire.docker.options import Options
    from kwire.protocol.schemas.transactions import ProducerState

_LIST = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBE = (
    *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
    *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
    "TopicPartitions",
)
_PRODUCERS = (
    *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
    "CurrentTransactionStartOffset",
)
_HANGING = (
    *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset"),
    *("LastTimestamp", "Duration(min)"),
)


def transactions(options: Options) -> None:
    """Run the command that the first word names."""
    commands = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "find-hanging": _find_hanging,
        "abort": _abort,
    }
    command = commands.get(options.words[0]) if options.words else None
    if command is None:
        raise ToolError(f"one of {', '.join(commands)} is expected")
    command(options)


def _list(options: Options) -> None:
    found = options.client().run(list_transactions)
    _table(_LIST, [(each.id, each.coordinator, each.producer_id, each.state) for each in found])


def _describe(options: Options) -> None:
    name = options.need("transactional-id")
    found = options.client().run(lambda admin: list_transactions(admin, [name]))
    if not found:
        raise ToolError(
            f"Failed to describe transaction state of transactional-id `{name}`:"
            " there is no such transactional id"
        )
    (each,) = found
    begun = each.start_ms
    partitions = ",".join(f"{at.topic}-{at.partition}" for at in each.partitions)
    row = (
        *(each.coordinator, name, each.producer_id, each.producer_epoch, each.state),
        *(each.timeout_ms, begun, None if begun is None else _now_ms() - begun, partitions),
    )
    _table(_DESCRIBE, [row])


def _describe_producers(options: Options) -> None:
    key = _partition(options)
    at = None if options.get("broker-id") is None else options.number("broker-id", 0)
    found = options.client().run(lambda admin: producers(admin, [key], at))[key]
    _table(_PRODUCERS, [(*_row(each), _start(each)) for each in found])


def _row(each: ProducerState) -> tuple[object, ...]:
    return (
        *(each.producer_id, each.producer_epoch, each.coordinator_epoch),
        *(each.last_sequence, each.last_timestamp),
    )


def _start(each: ProducerState) -> int | None:
    return each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None


def _find_hanging(options: Options) -> None:
    """Open transactions that began longer ago than any time-out, and of which no coordinator knows."""
    topic = options.get("topic")
    if topic is None and "broker-id" not in options:
        raise ToolError("find-hanging requires either --topic or --broker-id")
    if topic is None and "partition" in options:
        raise ToolError("The --partition argument requires --topic to be provided")
    at = None if options.get("broker-id") is None else options.number("broker-id", 0)
    partition = options.number("partition", 0) if "partition" in options else None
    longest_ms = options.number("max-transaction-timeout", hanging.LONGEST_MINUTES)
    longest_ms *= hanging.MINUTE_MS
    now_ms = _now_ms()
    found = options.client().run(
        lambda admin: hanging.find_hanging(admin, topic, partition, at, longest_ms, now_ms)
    )
    rows = [
        (
            *(*key, each.producer_id, each.producer_epoch, each.coordinator_epoch, _start(each)),
            *(each.last_timestamp, (now_ms - each.last_timestamp) // hanging.MINUTE_MS),
        )
        for key, each in found
    ]
    _table(_HANGING, rows)


def _abort(options: Options) -> None:
    key = _partition(options)
    if "start-offset" in options:
        start = options.number("start-offset", 0)
        options.client().run(lambda admin: hanging.abort_at(admin, key, start))
        return
    names = ("producer-id", "producer-epoch", "coordinator-epoch")
    if names[0] not in options:
        named = ", ".join(f"--{name}" for name in names)
        raise ToolError(f"the transaction is named by --start-offset, or by {named}")
    for name in names:
        options.need(name)
    producer = (options.number(names[0], 0), options.number(names[1], 0))
    coordinator_epoch = options.number(names[2], 0)
    options.client().run(lambda admin: hanging.abort(admin, key, producer, coordinator_epoch))


def _partition(options: Options) -> Key:
    options.need("partition")
    return options.need("topic"), options.number("partition", 0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _table(head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    texts = [head, *(tuple("None" if cell is None else str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
    for row in texts:
        cells = [f"{cell:{width}}\t" for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("".join(cells) + "\n")
