"""The image's command line tools without a container: options, the partitioner, lines to records and back."""

from __future__ import annotations

import pytest

from kwire.client.partitioner import murmur2, partition_of
from kwire.docker.client import ToolError
from kwire.docker.console import Formatter, LineReader
from kwire.docker.options import Options
from kwire.protocol.records import Record

# Of Kafka's UtilsTest.testMurmur2.
HASHES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "signed"), HASHES)
def test_murmur2_is_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


def test_keys_land_where_stock_clients_put_them() -> None:
    from kafka.partitioner.default import murmur2 as stock

    for size in range(40):
        key = bytes(range(7 * size % 200, 7 * size % 200 + size))
        assert partition_of(key, 7) == (stock(key) & 0x7FFFFFFF) % 7


def test_a_line_becomes_headers_key_and_value() -> None:
    reader = LineReader(
        {"parse.key": "true", "key.separator": ":", "parse.headers": "true", "null.marker": "NULL"}
    )
    record = reader.record(b"h1:v1,h2:NULL\tk:a:b", 1, 5)
    assert record == Record(-1, 5, b"k", b"a:b", [("h1", b"v1"), ("h2", None)])
    assert reader.record(b"NULL\tNULL:NULL", 1, 5) == Record(-1, 5, None, None, [])
    with pytest.raises(ToolError, match="No key separator found on line number 3"):
        reader.record(b"h:v\tno separator", 3, 5)


def test_a_record_becomes_a_line_in_kafkas_order() -> None:
    record = Record(7, 1234, b"k", None, [("h", b"v"), ("g", None)])
    every = ("timestamp", "partition", "offset", "headers", "key")
    properties = {f"print.{name}": "true" for name in every}
    line = Formatter(properties).line(2, record, "CreateTime")
    assert line == b"CreateTime:1234\tPartition:2\tOffset:7\th:v,g:null\tk\tnull\n"
    short = {"print.key": "true", "print.value": "false", "key.separator": "|"}
    assert Formatter(short).line(2, record, "CreateTime") == b"k\n"


def test_options_may_be_cut_short_repeated_and_written_with_an_equals_sign() -> None:
    options = Options(["--bootstrap-s", "a:1", "--property=x=1", "--property", "y=2", "--create"])
    assert options.get("bootstrap-server") == "a:1"
    assert options.pairs("property") == {"x": "1", "y": "2"}
    assert "create" in options
    assert Options(["--offset", "-2"]).number("offset", 0) == -2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bogus", "x"], "bogus is not a recognized option"),
        (["--bootstrap"], "bootstrap is not a recognized option"),
        (["--topic"], "topic requires an argument"),
        (["--topic", "--list"], "topic requires an argument"),
    ],
)
def test_a_wrong_option_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        Options(arguments)
