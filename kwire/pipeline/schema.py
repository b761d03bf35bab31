"""The columns of `kwire-log`, of its damage and of `kwire-events`, as names, Arrow types and Spark's words for them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kwire.errors import ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

COLUMNS: Final[dict[str, tuple[pa.DataType, str]]] = {
    "broker": (pa.int32(), "int"),
    "topic": (pa.string(), "string"),
    "partition": (pa.int32(), "int"),
    "offset": (pa.int64(), "bigint"),
    "leader_epoch": (pa.int32(), "int"),
    "timestamp": (pa.timestamp("us", tz="UTC"), "timestamp"),
    "timestamp_type": (pa.int32(), "int"),
    "key": (pa.binary(), "binary"),
    "value": (pa.binary(), "binary"),
    "headers": (_HEADERS, "array<struct<key:string,value:binary>>"),
    "producer_id": (pa.int64(), "bigint"),
    "producer_epoch": (pa.int16(), "smallint"),
    "sequence": (pa.int32(), "int"),
    "is_transactional": (pa.bool_(), "boolean"),
    "is_control": (pa.bool_(), "boolean"),
    "control_type": (pa.string(), "string"),
    "batch_base": (pa.int64(), "bigint"),
    "batch_position": (pa.int64(), "bigint"),
    "codec": (pa.string(), "string"),
    "magic": (pa.int16(), "smallint"),
    "crc_ok": (pa.bool_(), "boolean"),
    "segment": (pa.string(), "string"),
}
"""One row a record, control records too. `broker` is -1 where no meta.properties says it; `timestamp_type` is 0 for
CreateTime, 1 for LogAppendTime, -1 in format 0; `sequence`, `producer_id`, `producer_epoch` are -1 without a producer
id; `control_type` is null, "commit", "abort" or Kafka's number; `crc_ok` is null unless `verify=crc`;
`batch_position` is in bytes from the segment's begin, `segment` its file's name."""

OF_RECORDS: Final = frozenset({"timestamp", "key", "value", "headers", "control_type"})
"""The columns for which records must be decoded; the others follow from the headers of batches."""

BATCHES: Final[dict[str, tuple[pa.DataType, str]]] = {
    **{name: COLUMNS[name] for name in ("broker", "topic", "partition", "segment")},
    "position": (pa.int64(), "bigint"),
    "bytes": (pa.int64(), "bigint"),
    "base_offset": (pa.int64(), "bigint"),
    "last_offset": (pa.int64(), "bigint"),
    "leader_epoch": (pa.int32(), "int"),
    "records": (pa.int32(), "int"),
    "timestamp": COLUMNS["timestamp"],
    "max_timestamp": COLUMNS["timestamp"],
    **{name: COLUMNS[name] for name in ("producer_id", "producer_epoch", "sequence")},
    **{name: COLUMNS[name] for name in ("is_transactional", "is_control", "codec", "magic")},
    "crc": (pa.int64(), "bigint"),
    "crc_ok": COLUMNS["crc_ok"],
    "damage": (pa.string(), "string"),
    "detail": (pa.string(), "string"),
}
"""One row a batch, as its header has it, and one a place that is no batch: there only the columns of `DAMAGE` are not
null, `damage` for its `kind` and `base_offset` for its `offset`. `timestamp` is the header's base timestamp: its first
record's, unless the batch was compacted; `sequence` the first record's. A batch whose checksum is wrong has `damage`,
too. Of messages of formats 0 and 1 `records` and timestamps are null, and both offsets are the last record's."""

DAMAGE: Final[dict[str, tuple[pa.DataType, str]]] = {
    "broker": (pa.int32(), "int"),
    "topic": (pa.string(), "string"),
    "partition": (pa.int32(), "int"),
    "segment": (pa.string(), "string"),
    "position": (pa.int64(), "bigint"),
    "bytes": (pa.int64(), "bigint"),
    "offset": (pa.int64(), "bigint"),
    "kind": (pa.string(), "string"),
    "detail": (pa.string(), "string"),
}
"""One row a place that cannot be read: `bytes` from `position` on; `offset` is the batch's first one as its header says
it, or null; `kind` is one of `KINDS`."""

TORN, LENGTH, MAGIC, CRC, RECORDS = (
    "torn tail",
    "wrong length",
    "wrong magic",
    "wrong CRC",
    "wrong records",
)
KINDS: Final = (TORN, LENGTH, MAGIC, CRC, RECORDS)

EVENTS: Final[dict[str, tuple[pa.DataType, str]]] = {
    "file": (pa.string(), "string"),
    "number": (pa.int64(), "bigint"),
    "time": COLUMNS["timestamp"],
    "level": (pa.string(), "string"),
    "event": (pa.string(), "string"),
    "node": (pa.int32(), "int"),
    "message": (pa.string(), "string"),
    "topic": (pa.string(), "string"),
    "partition": (pa.int32(), "int"),
    "leader": (pa.int32(), "int"),
    "leader_epoch": (pa.int32(), "int"),
    "partition_epoch": (pa.int32(), "int"),
    "isr": (pa.list_(pa.int32()), "array<int>"),
    "broker": (pa.int32(), "int"),
    "reason": (pa.string(), "string"),
    "fields": (pa.string(), "string"),
}
"""One row a line of an event log that is not blank: `number` is the line's, from 1 on. The others are those of
`event_lines.Row`, in its order."""


def ddl(columns: dict[str, tuple[pa.DataType, str]]) -> str:
    """The columns in Spark's words: "broker int, topic string, …"."""
    return ", ".join(f"{name} {words}" for name, (_, words) in columns.items())


def checked_names(
    source: str, schema: StructType, columns: dict[str, tuple[pa.DataType, str]]
) -> tuple[str, ...]:
    """The columns of a schema that the user may have given. ConfigurationError if one is not of the source's."""
    for field in schema.fields:
        if field.name not in columns:
            raise ConfigurationError(
                f"{source}: there is no column {field.name}; there are {', '.join(columns)}"
            )
        found = field.dataType.simpleString()
        if found != columns[field.name][1]:
            raise ConfigurationError(
                f"{source}: column {field.name} is {columns[field.name][1]}, not {found}"
            )
    return tuple(schema.fieldNames())
