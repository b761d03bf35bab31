"""What a load shall be: the options of `kwire load`, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kwire.errors import ConfigurationError
from kwire.pipeline.ledger import MODES

CLIENTS: Final = ("confluent-kafka", "kafka-python")
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
ACKS: Final = ("0", "1", "all")
MAX_KEYS: Final = 1_000_000
DEFAULT_SECONDS: Final = 10.0
"""How long it takes when neither records nor seconds are given."""


@dataclass(frozen=True)
class Plan:
    """A bounded load on one topic. ConfigurationError for what contradicts itself."""

    topic: str
    client: str = CLIENTS[0]
    mode: str = MODES[0]
    acks: str = ""
    """"": all."""
    records: int | None = None
    """In all, shared by the producers."""
    seconds: float | None = None
    """It ends with whichever comes first, records or seconds; DEFAULT_SECONDS if neither is given."""
    rate: float | None = None
    """Records a second of all producers together; None: as fast as they can."""
    size: int = 180
    """Bytes of a value; more where RUN PRODUCER NUMBER takes more."""
    keys: int = 100
    """How many different ones; 0: records have none."""
    producers: int = 1
    readers: int = 0
    """Each reads the whole topic."""
    isolation: str = ""
    """"": read_committed for a transactional load, else read_uncommitted."""
    partitions: int = 3
    """Of a topic that is made, as the next two."""
    replication_factor: int | None = None
    """None: 3, or as many as there are brokers."""
    topic_config: dict[str, str] = field(default_factory=dict)
    transaction_records: int = 100
    abort_every: int = 0
    """Each so-manieth transaction of a producer is aborted; 0: none."""
    timeout: float = 30.0
    """Seconds for which a client tries to deliver a record, and to begin or end a transaction."""

    def __post_init__(self) -> None:
        for name, words in (("client", CLIENTS), ("mode", MODES)):
            if getattr(self, name) not in words:
                raise ConfigurationError(
                    f"{name} {getattr(self, name)!r}: there are {', '.join(words)}"
                )
        for name, words in (("acks", ACKS), ("isolation", ISOLATIONS)):
            if getattr(self, name) not in ("", *words):
                raise ConfigurationError(
                    f"{name} {getattr(self, name)!r}: there are {', '.join(words)}"
                )
        if self.mode != MODES[0] and self.acks not in ("", "all"):
            raise ConfigurationError(f"acks {self.acks}: mode {self.mode} needs acks all")
        if self.abort_every and not self.is_transactional:
            raise ConfigurationError("abort_every is for mode transactional")
        least = {"records": 1, "seconds": 0, "rate": 0, "size": 0, "keys": 0, "producers": 1}
        least |= {"readers": 0, "partitions": 1, "transaction_records": 1, "abort_every": 0}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ConfigurationError(f"{name} {value}: expected {minimum} or more")
        if self.keys > MAX_KEYS:
            raise ConfigurationError(f"keys {self.keys}: expected {MAX_KEYS} or less")

    @property
    def is_transactional(self) -> bool:
        return self.mode == MODES[2]

    @property
    def is_idempotent(self) -> bool:
        return self.mode == MODES[1]

    @property
    def wanted_acks(self) -> str:
        return self.acks or "all"

    @property
    def wanted_isolation(self) -> str:
        return self.isolation or ISOLATIONS[self.is_transactional]

    @property
    def wanted_seconds(self) -> float | None:
        if self.seconds is None and self.records is None:
            return DEFAULT_SECONDS
        return self.seconds

    def share(self, producer: int) -> int | None:
        """How many records the producer of this number sends at most."""
        if self.records is None:
            return None
        return self.records // self.producers + (producer < self.records % self.producers)
