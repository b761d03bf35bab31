"""All message classes by their names in golden files; imports everything, for tools and tests."""

from __future__ import annotations

from importlib import import_module

from kwire.protocol.api import ApiKey, request_class, response_class
from kwire.protocol.language.schema import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PAYLOADS = ("headers", "consumer_protocol", "control_records", "principal")
_COORDINATORS = {
    "group": "records_group",
    "transaction": "records_transaction",
    "share": "records_share",
}


def all_messages() -> Iterator[tuple[str, type[Message]]]:
    """(name, class) of every message: "ProduceRequest", "VotersRecord",
    "coordinator/group/OffsetCommitKey"."""
    for key in ApiKey:
        for cls in (request_class(key), response_class(key)):
            yield cls.__name__, cls
    for module in _PAYLOADS:
        for cls in _messages_of(module):
            yield cls.__name__, cls
    for group, module in _COORDINATORS.items():
        for cls in _messages_of(module):
            yield f"coordinator/{group}/{cls.__name__}", cls
    from kwire.protocol.schemas.share_state import (
        UnstableReadShareGroupStateSummaryResponse as Unstable,
    )

    yield Unstable.__name__, Unstable


def classes_by_name() -> dict[str, list[type[Message]]]:
    """Name → possible classes, the likelier first; includes names of Kafka 3.9 that 4.x changed."""
    found: dict[str, list[type[Message]]] = {}
    for name, cls in all_messages():
        found.setdefault(name, []).append(cls)
        if cls.former:
            found.setdefault(cls.former, []).append(cls)
    for name, cls in all_messages():
        if (
            "Unstable" in name
        ):  # a layout that Kafka 3.9 had under a number that 4.x gave to another
            found[name.replace("Unstable", "")].append(cls)
    return found


def _messages_of(module: str) -> Iterator[type[Message]]:
    for value in vars(import_module(f"kwire.protocol.schemas.{module}")).values():
        if isinstance(value, type) and issubclass(value, Message) and value is not Message:
            yield value
