"""Records for tests of Spark jobs: rows with event times and headers, and a load that goes on meanwhile."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from threading import Thread

from kwire.errors import BrokerNotAvailableError, ConfigurationError, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any, Self

    from kwire.client.blocking import Client
    from kwire.client.views import Record as Written
    from kwire.load import ledger
    from kwire.load.generator import Load, Summary
    from kwire.protocol.records import Record

_FIELDS = ("value", "key", "timestamp", "headers", "partition")
_CLIENT_ID = "kwire-spark"
_SECONDS = 20.0
_ROWS_A_REQUEST = 500
_PRODUCER = "rows"
"""Its name in a ledger."""


def produce(
    bootstrap: str, topic: str, rows: Iterable[object], into: ledger.Ledger | None = None
) -> list[Written]:
    """Write rows in their order; return them with partition and offset. As `Spark.produce`."""
    from kwire.client.admin import NoBrokerError
    from kwire.client.blocking import Client
    from kwire.client.connection import parse_address
    from kwire.protocol.errors import KafkaError

    producer = None if into is None else into.producer(_PRODUCER)
    parsed = [_record(number, row) for number, row in enumerate(rows)]
    addresses = [parse_address(text) for text in bootstrap.split(",")]
    client = Client(lambda: addresses, _SECONDS, _CLIENT_ID)
    try:
        return [
            written
            for partition, records in _requests(parsed)
            for written in _written(client, topic, partition, records, producer)
        ]
    except KafkaError as error:
        text = f"kwire_spark.produce: {topic}: {error.message or error.code.name}"
        raise refused(error.code.name, text) from None
    except NoBrokerError as error:
        raise BrokerNotAvailableError(f"kwire_spark.produce: {error}") from None
    finally:
        client.close()


def _written(
    client: Client,
    topic: str,
    partition: int | None,
    records: list[Record],
    producer: ledger.Producer | None,
) -> list[Written]:
    """Write some records; with a ledger their values are the ledger's."""
    from kwire.client.records import produce_all

    noted: list[ledger.Record] = []
    if producer is not None:
        noted = [producer.record(topic, each.value or b"", key=each.key) for each in records]
        pairs = zip(records, noted, strict=True)
        records = [each._replace(value=entry.value) for each, entry in pairs]
    try:
        written = client.run(produce_all(client, topic, records, partition=partition))
    except Exception as error:
        for entry in noted:
            entry.unknown(str(error))
        raise
    for entry, place in zip(noted, written, strict=False):
        entry.acknowledged(place.partition, place.offset)
    return written


def _requests(
    parsed: list[tuple[int | None, Record]],
) -> Iterator[tuple[int | None, list[Record]]]:
    """Neighbouring records of the same partition, or of none, not too many at once."""
    for partition, group in groupby(parsed, key=lambda each: each[0]):
        records = [record for _, record in group]
        for begin in range(0, len(records), _ROWS_A_REQUEST):
            yield partition, records[begin : begin + _ROWS_A_REQUEST]


def _record(number: int, row: object) -> tuple[int | None, Record]:
    """Partition and record of a row. ConfigurationError, with the row's number, for what is none."""
    from kwire.protocol.records import Record

    fields: Mapping[str, Any] = row if isinstance(row, dict) else {"value": row}
    unknown = [name for name in fields if name not in _FIELDS]
    if unknown or "value" not in fields:
        found = f"has {unknown[0]!r}" if unknown else "has no value"
        raise _wrong(number, f"{found}; a row may have {', '.join(_FIELDS)}")
    partition = fields.get("partition")
    if partition is not None and not isinstance(partition, int):
        raise _wrong(number, f"partition {partition!r}: expected a whole number")
    headers = fields.get("headers") or {}
    pairs = headers.items() if isinstance(headers, dict) else headers
    return partition, Record(
        -1,
        _timestamp(number, fields.get("timestamp")),
        _data(number, "key", fields.get("key")),
        _data(number, "value", fields["value"]),
        [(str(name), _data(number, f"header {name}", value)) for name, value in pairs],
    )


def _data(number: int, what: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict | list | int | float):
        return json.dumps(value).encode()
    raise _wrong(number, f"{what} {value!r}: expected text, bytes, or what JSON can hold")


def _timestamp(number: int, moment: object) -> int:
    """In ms since 1970; None: now. A text or a time without a zone is UTC."""
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    if moment is None:
        moment = datetime.now(UTC)
    if isinstance(moment, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(moment)
    if not isinstance(moment, datetime):
        raise _wrong(
            number,
            f"timestamp {moment!r}: expected a datetime, milliseconds since 1970, or a text like"
            " 2026-11-22T10:00:00Z",
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _wrong(number: int, text: str) -> ConfigurationError:
    return ConfigurationError(f"kwire_spark.produce: row {number} {text}")


# --- a load


class BackgroundLoad:
    """A load that goes on in threads, until its bound, `stop`, or the end of a `with` block."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._summary: Summary | None = None
        self._failure: OSError | None = None
        self._thread = Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    @property
    def ledger(self) -> Path:
        """The ledger's directory."""
        return self._load.ledger.folder

    def wait(self) -> Summary:
        """Wait for its bound; what it has done."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._summary is not None
        return self._summary

    def stop(self) -> Summary:
        """End it; what it has done."""
        self._load.stop.set()
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._summary = self._load.run()
        except OSError as error:
            self._failure = error


def load(bootstrap: str, topic: str, folder: Path, options: Mapping[str, Any]) -> BackgroundLoad:
    """Begin a load. As `Spark.load`."""
    from kwire.load.generator import Load
    from kwire.load.plan import Plan

    try:
        plan = Plan(topic, **options)
    except TypeError as error:
        wrong = str(error).rpartition(" ")[2]
        known = ", ".join(name for name in Plan.__dataclass_fields__ if name != "topic")
        raise ConfigurationError(
            f"kwire_spark.load: there is no option {wrong}; there are {known}"
        ) from None
    return BackgroundLoad(Load(plan, bootstrap, folder))
