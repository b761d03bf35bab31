"""Runs a load: makes the topic, starts the producers and readers, shows progress, sums up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from kwire.client.admin import LATEST, REQUEST_SECONDS, NoBrokerError
from kwire.client.blocking import Client as AdminClient
from kwire.client.connection import check, parse_address
from kwire.client.offsets import offsets, partitions
from kwire.client.retries import repeat
from kwire.errors import ConfigurationError
from kwire.load.clients import ClientError, Place, load_client
from kwire.load.ledger import Ledger, new_run, require_empty
from kwire.load.plan import ISOLATIONS
from kwire.load.work import ProducerWork, ReaderWork
from kwire.pipeline.ledger import ABORTED, COMMITTED, FAILED, UNKNOWN
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.client.admin import Steps
    from kwire.load.clients import Client
    from kwire.load.plan import Plan

CLIENT_ID = "kwire-load"
CONNECT_SECONDS = 5.0
PROGRESS_SECONDS = 1.0
_MOST_REPLICAS = 3


@dataclass(frozen=True)
class Summary:
    """What a load has done, or has done so far."""

    run: str
    ledger: Path
    seconds: float
    records: int
    """Those given to a client."""
    acknowledged: int
    failed: int
    unknown: int
    """As the outcomes of a ledger; with acks=0 all."""
    seen: list[int]
    """Records that each reader was given."""
    lag: int | None
    """Records that the slowest reader may see and has not seen; None without readers."""
    committed: int = 0
    aborted: int = 0
    """Transactions."""
    errors: dict[str, int] = field(default_factory=dict)
    """How often each error came, records' and transactions'."""
    notes: tuple[str, ...] = ()
    """Clients that could not go on, readers that did not reach the end; a line each."""
    is_complete: bool = True
    """Everything is acknowledged, all transactions have ended as they should, all readers are at the end."""


class Load:
    """A load that is ready to run: the topic exists, the clients are connected, the ledger is open."""

    def __init__(self, plan: Plan, bootstrap: str, folder: Path) -> None:
        """ConfigurationError, in one line, when it cannot begin; nothing was sent."""
        self._plan = plan
        client = load_client(plan)
        _require_pyarrow()
        require_empty(folder)
        run = new_run()
        place = Place(bootstrap, run)
        cluster_id, begins = prepare_topic(plan, bootstrap)
        self.stop = Event()
        """Set by any thread: no more is sent."""
        self._sent = Event()
        self.ledger = Ledger(
            folder,
            bootstrap=bootstrap,
            topics=[plan.topic],
            client=plan.client,
            mode=plan.mode,
            acks=plan.wanted_acks,
            cluster_id=cluster_id,
            run=run,
        )
        try:
            self._connect(client, place, begins)
        except ClientError as error:
            self.ledger.close()
            raise ConfigurationError(f"{plan.client}: {error}") from None

    def _connect(self, client: Client, place: Place, begins: dict[int, int]) -> None:
        plan = self._plan
        self._readers = [
            ReaderWork(
                self.ledger.reader(f"r{number}", plan.wanted_isolation),
                client.receiver(plan, place, begins),
                *(self._sent, self.stop),
            )
            for number in range(plan.readers)
        ]
        self._ledgers = [self.ledger.producer(f"p{number}") for number in range(plan.producers)]
        self._producers = [
            ProducerWork(*(plan, number, each, client.sender(plan, place, each.name), self.stop))
            for number, each in enumerate(self._ledgers)
        ]

    def run(self, show: Callable[[Summary], None] | None = None) -> Summary:
        """Run until the bound, or until `stop` is set. `show` is called once a second.

        OSError when the ledger cannot be written."""
        begin = monotonic()
        readers = _started(self._readers)
        producers = _started(self._producers)
        try:
            for threads in (producers, readers):
                for thread in threads:
                    while thread.is_alive():
                        thread.join(PROGRESS_SECONDS)
                        if show is not None:
                            show(self._summary(monotonic() - begin))
                if threads is producers:
                    seconds = monotonic() - begin
                    self._sent.set()
        finally:
            self.stop.set()
            self._sent.set()
            self.ledger.close()
        return self._summary(seconds)

    def _summary(self, seconds: float) -> Summary:
        plan = self._plan
        counts, errors = self._errors()
        notes = [
            f"{each.name}: {work.failure}"
            for each, work in zip(self._ledgers, self._producers, strict=True)
            if work.failure is not None
        ]
        seen = [each.seen for each in self._readers]
        acknowledged = sum(each.acknowledged for each in self._ledgers)
        visible = acknowledged
        if plan.wanted_isolation == ISOLATIONS[1]:
            visible = sum(each.committed_records for each in self._ledgers)
        for number, reader in enumerate(self._readers):
            if self._sent.is_set() and not reader.is_whole and not reader.is_running:
                why = reader.failure or f"has not reached the end of {plan.topic}"
                notes.append(f"reader r{number} {why}")
        return Summary(
            self.ledger.run.run,
            self.ledger.folder,
            seconds,
            sum(each.count for each in self._ledgers),
            acknowledged,
            *(counts[FAILED], counts[UNKNOWN]),
            seen,
            max(0, visible - min(seen)) if seen else None,
            sum(work.transactions[COMMITTED] for work in self._producers),
            sum(work.transactions[ABORTED] for work in self._producers),
            errors,
            tuple(notes),
            not errors and not notes,
        )

    def _errors(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many records have failed or are unknown, and how often each error came."""
        errors: dict[str, int] = {}
        counts = {FAILED: 0, UNKNOWN: 0}
        for each in self._ledgers:
            for (outcome, error), count in list(each.errors.items()):
                counts[outcome] += count
                if self._plan.wanted_acks != "0":
                    errors[error] = errors.get(error, 0) + count
        for work in self._producers:
            for error in list(work.transaction_errors):
                name = f"transaction: {error}"
                errors[name] = errors.get(name, 0) + 1
        return counts, errors


def prepare_topic(plan: Plan, bootstrap: str) -> tuple[str | None, dict[int, int]]:
    """The cluster's id, and the end of each partition of the topic, which is made if it is absent.

    ConfigurationError, in one line, when no broker answers or the topic is refused."""
    try:
        addresses = [parse_address(text) for text in bootstrap.split(",")]
    except ValueError as error:
        raise ConfigurationError(f"bootstrap: {error}") from None
    client = AdminClient(lambda: addresses, CONNECT_SECONDS, CLIENT_ID)
    try:
        return client.run(_prepare(client, plan))
    except NoBrokerError as error:
        raise ConfigurationError(str(error)) from None
    except KafkaError as error:
        raise ConfigurationError(f"topic {plan.topic}: {error}") from None
    finally:
        client.close()


def _prepare(client: AdminClient, plan: Plan) -> Steps[tuple[str | None, dict[int, int]]]:
    found = yield from client.metadata([plan.topic])
    code = found.topics[0].error_code
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        replicas = plan.replication_factor or min(_MOST_REPLICAS, len(found.brokers))
        yield from client.create_topic(
            plan.topic, plan.partitions, replicas, plan.topic_config, None, REQUEST_SECONDS
        )
    else:
        check(code, None)
    ends = yield from repeat(lambda: _ends(client, plan.topic))
    return found.cluster_id, {index: end for (_, index), end in ends.items()}


def _ends(client: AdminClient, topic: str) -> Steps[dict[tuple[str, int], int]]:
    led = yield from partitions(client, topic)
    return (yield from offsets(client, led, LATEST))


def _require_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "a ledger needs PyArrow, which is not installed: pip install 'kwire[load]'"
        ) from None


def _started(works: list[ProducerWork] | list[ReaderWork]) -> list[Thread]:
    threads = [Thread(target=work.run, name="load", daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads
