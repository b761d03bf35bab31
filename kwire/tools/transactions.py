"""`kwire transactions`: the transactional ids of any Kafka, one with the partitions that it holds, and
transactions that hang."""

from __future__ import annotations

import json
import sys
import time

from kwire.client.transactions import fence_producer, find_transaction, list_transactions
from kwire.client.views import NO_SUCH_TRANSACTION
from kwire.server.errors import NodeError
from kwire.tools.kafka import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.client.blocking import Client
    from kwire.client.offsets import Key
    from kwire.client.views import Transaction
    from kwire.protocol.schemas.transactions import ProducerState

TRANSACTION_HEAD = (
    "TRANSACTIONAL ID",
    "STATE",
    "PRODUCER",
    "EPOCH",
    "COORDINATOR",
    "OPEN FOR",
    "PARTITIONS",
)


def show_transactions(client: Client, *, as_json: bool) -> int:
    """Print all transactional ids."""
    from dataclasses import asdict

    found = client.run(list_transactions(client))
    if as_json:
        sys.stdout.write(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    elif found:
        sys.stdout.write(table(TRANSACTION_HEAD, [transaction_row(each) for each in found]))
    else:
        sys.stderr.write("no transactional ids\n")
    return 0


def show_transaction(client: Client, name: str, *, as_json: bool) -> int:
    """Print one transactional id. NodeError when it does not exist."""
    from dataclasses import asdict

    found = client.run(find_transaction(client, name))
    if found.state == NO_SUCH_TRANSACTION and found.coordinator < 0:
        meant = "" if found.similar is None else f"; did you mean {found.similar}?"
        raise NodeError(f"there is no transactional id {name}{meant}")
    text = json.dumps(asdict(found), indent=1) if as_json else str(found)
    sys.stdout.write(f"{text}\n")
    return 0


def fence(client: Client, name: str) -> int:
    """Fence the producer of a transactional id. KafkaError: there is no such id."""
    sys.stdout.write(f"{client.run(fence_producer(client, name))}\n")
    return 0


HANGING_HEAD = ("PARTITION", "OPEN SINCE", "PRODUCER", "EPOCH", "COORDINATOR EPOCH", "LAST RECORD")


def show_hanging(
    client: Client,
    topic: str | None,
    partition: int | None,
    broker: int | None,
    minutes: float | None,
    *,
    as_json: bool,
) -> int:
    """Print the transactions that are open and unknown to every coordinator; the status is 1 if there are any.

    `minutes`: only what is older; None: than a transaction may become."""
    from kwire.client.hanging import LONGEST_MINUTES, MINUTE_MS, find_hanging

    now_ms = time.time_ns() // 1_000_000
    older_than_ms = int((LONGEST_MINUTES if minutes is None else minutes) * MINUTE_MS)
    steps = find_hanging(client, topic, partition, broker, older_than_ms, now_ms)
    found = client.run(steps)
    if as_json:
        sys.stdout.write(json.dumps([_hanging_json(*each) for each in found], indent=1) + "\n")
    elif found:
        rows = [_hanging_row(*each, now_ms) for each in found]
        sys.stdout.write(table(HANGING_HEAD, rows))
    else:
        sys.stderr.write("no transaction hangs\n")
    return 1 if found else 0


def _hanging_json(key: Key, found: ProducerState) -> dict[str, object]:
    return {
        "topic": key[0],
        "partition": key[1],
        "start": found.current_txn_start_offset,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "last_ms": found.last_timestamp,
    }


def _hanging_row(key: Key, found: ProducerState, now_ms: int) -> tuple[object, ...]:
    producer = (found.producer_id, found.producer_epoch, found.coordinator_epoch)
    age = f"{max(0, now_ms - found.last_timestamp) // 1000} s ago"
    return f"{key[0]}-{key[1]}", found.current_txn_start_offset, *producer, age


def abort_at(client: Client, key: Key, start_offset: int) -> int:
    """Abort the transaction that is open in a partition since this offset. KafkaError: no transaction is open there."""
    from kwire.client import hanging

    found = client.run(hanging.abort_at(client, key, start_offset))
    _say_aborted(key, found.producer_id, found.producer_epoch)
    return 0


def abort(
    client: Client, key: Key, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> int:
    """Abort the transaction of a producer in a partition."""
    from kwire.client import hanging

    producer = (producer_id, producer_epoch)
    client.run(hanging.abort(client, key, producer, coordinator_epoch))
    _say_aborted(key, *producer)
    return 0


def _say_aborted(key: Key, producer_id: int, producer_epoch: int) -> None:
    name = f"{key[0]}-{key[1]}"
    sys.stdout.write(
        f"{name}: aborted what producer {producer_id}, epoch {producer_epoch}, had open\n"
    )


def transaction_row(found: Transaction) -> tuple[object, ...]:
    """A row of the table; the age is by this machine's clock."""
    age = None
    if found.open and found.start_ms is not None:
        age = f"{max(0.0, time.time() - found.start_ms / 1000):.1f} s"
    partitions = ",".join(f"{each.topic}-{each.partition}" for each in found.partitions) or None
    producer = (found.producer_id, found.producer_epoch)
    return found.id, found.state, *producer, found.coordinator, age, partitions
