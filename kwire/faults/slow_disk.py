"""A slow disk, as requests see it: those that write or read a log are handled later, of clients and of nodes.

Kafka's request handler threads wait for the disk, one request each; here the requests wait, and nobody else. A rule of
`table.py` for each API that is concerned.
"""

from __future__ import annotations

from kwire.faults.rules import Rule
from kwire.protocol.api import ApiKey
from kwire.replication.core.metadata import INTERNAL_TOPICS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.apis.parts.shapes import Part

    IsHere = Callable[[str, int], bool]
    Note = Callable[[], bool]

_OF_COORDINATORS = (
    *(ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP),
    *(ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN),
    ApiKey.END_TXN,
)
"""What a coordinator appends to its own topic before it answers."""
WRITE = (ApiKey.PRODUCE, ApiKey.WRITE_TXN_MARKERS, *_OF_COORDINATORS)
READ = (ApiKey.FETCH,)


class SlowRequests(Rule):
    """The requests of an API that wait for a slow disk."""

    __slots__ = ("_is_here", "_note")
    spares_nodes = False

    def __init__(self, api: ApiKey, milliseconds: int, is_here: IsHere, note: Note) -> None:
        """`is_here(topic, partition)`: whether the log is on that disk. `note` is called with each hit."""
        super().__init__("", {"api": api.api_name, "delay": milliseconds})
        self._is_here = is_here
        self._note = note

    @property
    def selects_parts(self) -> bool:
        return self.key not in _OF_COORDINATORS

    def happens(self) -> bool:
        return self._note()

    def allows(self, part: Part) -> bool:
        return (
            part.topic is not None
            and part.partition is not None
            and self._is_here(part.topic, part.partition)
        )


def slow_requests(
    apis: tuple[ApiKey, ...], milliseconds: int, topic: str | None, is_here: IsHere, note: Note
) -> list[Rule]:
    """The rules of a slow disk at one node. `topic`: only its requests."""
    own = topic in (None, *INTERNAL_TOPICS)
    return [
        SlowRequests(api, milliseconds, is_here, note)
        for api in apis
        if own or api not in _OF_COORDINATORS
    ]
