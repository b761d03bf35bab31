"""A ledger: a directory that says what producers have sent and readers have seen, its columns and its run.json.

    LEDGER/run.json            what ran, `Run`
    LEDGER/sent/*.parquet      one row a record that was given to a producer
    LEDGER/seen/*.parquet      one row a record that a reader was given

A file is complete once it has its name: it is written as *.parquet.tmp and renamed, so that a stream can follow and a
writer that is killed leaves a readable ledger. PyArrow is imported by what needs it: `read_run` does not.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from kwire.errors import ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION: Final = 1
"""Of the layout; a later one is refused."""
RUN_FILE: Final = "run.json"
SENT, SEEN = "sent", "seen"
MODES: Final = ("plain", "idempotent", "transactional")
ACKNOWLEDGED, FAILED, UNKNOWN, COMMITTED, ABORTED = (
    *("acknowledged", "failed", "unknown"),
    *("committed", "aborted"),
)
"""Outcomes of a record. failed: the client gave an error with which it was not written, as far as the client knows.
unknown: it may be in the topic (time-outs, connections that broke, no answer until the end, acks=0). committed and
aborted: acknowledged, and so is the end of its transaction."""

COLUMNS: Final[dict[str, dict[str, str]]] = {
    SENT: {
        "run": "string",
        "producer": "string",
        "number": "bigint",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "key": "binary",
        "hash": "bigint",
        "size": "int",
        "transaction": "bigint",
        "outcome": "string",
        "epoch": "int",
        "sent": "timestamp",
        "acknowledged": "timestamp",
        "error": "string",
    },
    SEEN: {
        "run": "string",
        "reader": "string",
        "isolation": "string",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "key": "binary",
        "hash": "bigint",
        "producer": "string",
        "number": "bigint",
        "seen": "timestamp",
    },
}
"""Columns and Spark's types of both tables. `number` is the producer's own count from 0, in the order of sending;
`hash` is the CRC-32 of the value, as Spark's crc32(value), null for a null value; `transaction` is the producer's own
count, null without one; `epoch` is null where the client does not tell it; timestamps are in us, UTC. In seen `run`,
`producer` and `number` are those in the record's value, null for a record that no run has written."""

_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "tuple[str, ...]": (list,),
}


@dataclass(frozen=True)
class Run:
    """What run.json says. Times are in ms since 1970; `records` counts those sent, so far or in all."""

    run: str
    """8 hexadecimal digits, at the begin of each record's value."""
    bootstrap: str
    topics: tuple[str, ...]
    client: str
    mode: str
    acks: str
    started: int
    ended: int | None = None
    """None while it runs, and when it was killed."""
    records: int = 0
    cluster_id: str | None = None
    version: int = VERSION


def schema(table: str) -> Any:
    """The Arrow schema of the table SENT or SEEN."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([(name, types[words]) for name, words in COLUMNS[table].items()])


def ddl(table: str) -> str:
    """The columns in Spark's words: "run string, producer string, …"."""
    return ", ".join(f"{name} {words}" for name, words in COLUMNS[table].items())


def value_prefix(run: str, producer: str) -> bytes:
    """What the values of a producer begin with, in ASCII; the number of the record follows, and a blank."""
    return b"%s %s " % (run.encode(), producer.encode())


def write_run(folder: Path, run: Run) -> None:
    """Write run.json in one step: a reader finds the old one or the new one."""
    text = json.dumps(asdict(run), indent=1) + "\n"
    beside = folder / f"{RUN_FILE}.tmp"
    beside.write_text(text)
    beside.replace(folder / RUN_FILE)


def read_run(folder: Path) -> Run:
    """The run of a ledger. ConfigurationError, in one line, for a directory that is none.

    A run that goes on or was killed is no error: its `ended` is None."""
    path = folder / RUN_FILE
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        if not folder.is_dir():
            raise ConfigurationError(f"{folder}: there is no such directory") from None
        raise ConfigurationError(
            f"{folder} is not a ledger: it has no {RUN_FILE}, which kwire load writes"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path}: no JSON: {error}") from None
    return _run(path, stored)


def _run(path: Path, stored: object) -> Run:
    if not isinstance(stored, dict):
        raise ConfigurationError(f"{path}: expected an object, as kwire load writes it")
    version = stored.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ConfigurationError(
            f"{path}: the ledger is of version {version}, this kwire reads up to {VERSION}"
        )
    values: dict[str, Any] = {}
    for field in fields(Run):
        value = stored.get(field.name)
        kinds = _KINDS[str(field.type)]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ConfigurationError(
                f"{path}: {field.name} is {json.dumps(value)}, which kwire load does not write"
            )
        values[field.name] = tuple(value) if isinstance(value, list) else value
    if values["mode"] not in MODES:
        raise ConfigurationError(f"{path}: mode is {values['mode']}; there are {', '.join(MODES)}")
    return Run(**values)


def files(folder: Path, table: str) -> list[Path]:
    """The files of the table SENT or SEEN that are complete, in the order of their names."""
    return sorted((folder / table).glob("*.parquet"))


def check_files(folder: Path, run: Run) -> None:
    """Read the footers of all files. ConfigurationError, in one line, for one that is damaged or not of this run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for table in (SENT, SEEN):
        expected = schema(table)
        for path in files(folder, table):
            try:
                found = pq.read_metadata(path)
            except (pa.ArrowInvalid, OSError) as error:
                raise ConfigurationError(f"{path}: no Parquet file: {error}") from None
            if not found.schema.to_arrow_schema().equals(expected):
                missing = set(expected.names) - set(found.schema.names)
                detail = f"{', '.join(sorted(missing))} missing" if missing else "other types"
                raise ConfigurationError(f"{path} has other columns than a ledger's: {detail}")
            strangers = _runs(found) - {run.run} if table == SENT else set()
            if strangers:
                raise ConfigurationError(
                    f"{path} is of run {min(strangers)}, the ledger of run {run.run}"
                )


def _runs(metadata: Any) -> set[str]:
    """The least and the greatest run of a file of sent, by its statistics."""
    found = set()
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(0).statistics
        if statistics is not None and statistics.has_min_max:
            found |= {statistics.min, statistics.max}
    return found
