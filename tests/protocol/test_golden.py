"""Bytes that Apache Kafka's own classes wrote: all of them, in both directions, and cut or followed by others."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.protocol.catalog import classes_by_name
from kwire.protocol.check import check_lines
from kwire.protocol.errors import MalformedMessage
from kwire.protocol.json_form import to_json
from kwire.protocol.language.schema import Message

DATA = Path(__file__).parents[1] / "data"
FILES = {
    "golden-3.9.jsonl.gz": 3833,
    "golden-4.4.jsonl.gz": 3896,
    "golden-batches.jsonl.gz": 146,
}


@pytest.mark.parametrize("name", FILES)
def test_every_golden_line_decodes_and_encodes(name: str) -> None:
    with gzip.open(DATA / name) as lines:
        results = list(check_lines(lines))
    assert [result for result in results if result[1] is not None] == []
    assert len(results) == FILES[name]


def test_requests_that_a_real_controller_sent_come_out_unchanged() -> None:
    with (DATA / "control-plane-3.9.jsonl").open("rb") as lines:
        results = list(check_lines(lines))
    assert [result for result in results if result[1] is not None] == []
    assert len(results) == 24


def golden(file: str = "golden-4.4.jsonl.gz") -> Iterator[tuple[type[Message], dict[str, Any]]]:
    classes = classes_by_name()
    with gzip.open(DATA / file) as lines:
        for text in lines:
            line = json.loads(text)
            yield classes[line["name"]][0], line


def test_messages_turn_back_into_kafkas_json() -> None:
    differing = []
    for cls, line in golden():
        message = cls.decode(bytes.fromhex(line["hex"]), line["v"])
        found = to_json(message, line["v"])
        if found != {**found, **line["json"]} or not set(line["json"]) <= set(found):
            differing.append((line["name"], line["v"], line["case"]))
    assert differing == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_message_is_read_from_any_buffer_at_any_position(kind: type) -> None:
    for cls, line in golden():
        if line["case"] != "filled":
            continue
        data = bytes.fromhex(line["hex"])
        whole = cls.decode(data, line["v"])
        framed = kind(b"\x7f\x00\xff" + data + b"\xff trailing")
        message, position = cls.decode_from(framed, 3, line["v"])
        assert message == whole
        assert position == 3 + len(data)


def test_a_message_cut_anywhere_is_malformed() -> None:
    """Byte by byte: no prefix of a message passes for a message, and nothing else than MalformedMessage is raised."""
    for cls, line in golden():
        data = bytes.fromhex(line["hex"])
        if line["case"] not in ("filled", "tags") or len(data) > 3000:
            continue
        step = max(1, len(data) // 60)
        for size in {*range(0, len(data), step), *range(min(len(data), 12)), len(data) - 1} - {-1}:
            with pytest.raises(MalformedMessage):
                cls.decode(data[:size], line["v"])
                pytest.fail(f"{line['name']} v{line['v']} read from {size} of {len(data)} bytes")
