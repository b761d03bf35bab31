"""`kwire transactions`: the transactional ids of any Kafka, and one with the partitions that it holds."""

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
    from kwire.client.views import Transaction

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


def transaction_row(found: Transaction) -> tuple[object, ...]:
    """A row of the table; the age is by this machine's clock."""
    age = None
    if found.open and found.start_ms is not None:
        age = f"{max(0.0, time.time() - found.start_ms / 1000):.1f} s"
    partitions = ",".join(f"{each.topic}-{each.partition}" for each in found.partitions) or None
    producer = (found.producer_id, found.producer_epoch)
    return found.id, found.state, *producer, found.coordinator, age, partitions
