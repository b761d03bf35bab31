"""Makes aiokafka the same in each run: where it goes through a set, the order is that of names and numbers.

The order of a set of texts, or of objects made of them, is another in each process (PYTHONHASHSEED; before Python 3.12
also the address of None). aiokafka sends what it goes through, so the order decides which broker is asked first.
Nothing else of it changes: what was a set is one still, and only goes through its members in order. Its record builder
reads the real clock in C: in a world records get their time from the world's clock instead.
"""

from __future__ import annotations

import importlib.util
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

_done = False


class Ordered(frozenset["Any"]):
    """A set that goes through its members in their order."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__()))


def mend(is_virtual: Callable[[], object]) -> None:
    """Mend aiokafka, once per process; no-op where it is not installed. `is_virtual()`: whether a world runs."""
    global _done
    if _done or importlib.util.find_spec("aiokafka") is None:
        return
    _done = True
    _mend_metadata()
    _mend_subscriptions()
    _mend_transactions()
    _mend_timestamps(is_virtual)


def begin() -> None:
    """Begin a world: client ids that aiokafka numbers by itself begin anew."""
    if _done:
        from aiokafka.producer.producer import AIOKafkaProducer

        AIOKafkaProducer._PRODUCER_CLIENT_ID_SEQUENCE = 0


def _mend_metadata() -> None:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.cluster import ClusterMetadata

    brokers = ClusterMetadata.brokers
    update = AIOKafkaClient._metadata_update

    def sorted_brokers(self: Any) -> list[Any]:
        return sorted(brokers(self), key=lambda each: str(each.nodeId))

    async def update_sorted(self: Any, cluster_metadata: Any, topics: Iterable[str] | None) -> Any:
        return await update(self, cluster_metadata, sorted(topics) if topics else topics)

    ClusterMetadata.brokers = sorted_brokers
    AIOKafkaClient._metadata_update = update_sorted


def _mend_subscriptions() -> None:
    from aiokafka.consumer.subscription_state import Assignment, Subscription

    for kind, name in ((Assignment, "_topic_partitions"), (Subscription, "_topics")):
        _order_attribute(kind, name)


def _order_attribute(kind: Any, name: str) -> None:
    made = kind.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        setattr(self, name, Ordered(getattr(self, name)))
        states = getattr(self, "_tp_state", None)
        if states is not None:
            self._tp_state = {tp: states[tp] for tp in sorted(states)}

    kind.__init__ = init


def _mend_transactions() -> None:
    from aiokafka.producer.transaction_manager import TransactionManager

    to_add = TransactionManager.partitions_to_add

    def ordered(self: Any) -> Any:
        return Ordered(to_add(self))

    TransactionManager.partitions_to_add = ordered


def _mend_timestamps(is_virtual: Callable[[], object]) -> None:
    from aiokafka.producer.message_accumulator import BatchBuilder

    append = BatchBuilder.append

    def append_now(self: Any, *, timestamp: Any, **more: Any) -> Any:
        if timestamp is None and is_virtual():
            timestamp = int(time.time() * 1000)
        return append(self, timestamp=timestamp, **more)

    BatchBuilder.append = append_now
