"""What the load needs of a client, and which of its errors say that a record is not written."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple, Protocol

from kwire.errors import ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.load.ledger import Reader, Record
    from kwire.load.plan import Plan

PRODUCER_BYTES = 64 << 20
"""What all producers of a load hold at most."""
READER_BYTES = 16 << 20
_MODULES = {"confluent-kafka": "kwire.load.confluent", "kafka-python": "kwire.load.kafka_python"}


class Place(NamedTuple):
    """Where a client connects to, and of which run it is."""

    bootstrap: str
    run: str


class TransactionEnd(NamedTuple):
    """How a transaction has ended: COMMITTED, ABORTED or UNKNOWN of kwire/pipeline/ledger.py."""

    outcome: str
    error: str | None = None


class Sender(Protocol):
    """A producer of a stock client. Records are answered by any thread."""

    def send(self, record: Record) -> None:
        """Hand over a record; wait while the client's buffer is full."""

    def serve(self, seconds: float) -> None:
        """Let answers come in for so long at most."""

    def begin(self) -> None:
        """Begin a transaction."""

    def end(self, *, commit: bool) -> TransactionEnd:
        """End the transaction, when all of its records are answered."""

    def close(self, seconds: float) -> None:
        """Wait for answers for so long; what is left is given up and answered so."""


class Receiver(Protocol):
    """A consumer of a stock client, of all partitions of a topic, from their ends at its creation on."""

    def receive(self, reader: Reader) -> int:
        """Hand over the records that come within a short time; how many."""

    def aim(self) -> None:
        """Note the current ends of the partitions, for `is_done`."""

    def is_done(self) -> bool:
        """Whether the ends have been reached."""

    def close(self) -> None:
        """Close it."""


class Client(Protocol):
    """The module of a client."""

    def sender(self, plan: Plan, place: Place, name: str) -> Sender:
        """A producer that is ready to send. ClientError."""

    def receiver(self, plan: Plan, place: Place, partitions: Mapping[int, int]) -> Receiver:
        """A consumer, which begins at an offset of each partition. ClientError."""


class ClientError(Exception):
    """A client cannot go on at all; one line."""


def load_client(plan: Plan) -> Client:
    """The module of the plan's client. ConfigurationError, in one line, if its library is missing."""
    try:
        module: Client = import_module(_MODULES[plan.client])
    except ImportError as error:
        raise ConfigurationError(
            f"{plan.client} is not installed: pip install {plan.client} ({error})"
        ) from None
    return module
