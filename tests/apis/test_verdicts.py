"""What Apache Kafka 3.9.1 refuses, kwire refuses with the same error, and stores the same bytes (odd_batches.py)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import odd_batches
import pytest
from test_against_kafka import DirectClient

from kwire.apis import produce
from kwire.protocol import record_validation, record_walk
from kwire.replication.core.log_config import HEADER, LogConfig

VERDICTS = Path(__file__).parent.parent / "data" / "kafka-3.9.1-verdicts.json.gz"
RECORDED_MS = 1_795_370_000_000
FLIPPED = {"plain": 1000}
OTHERS_FLIPPED = 150


@pytest.fixture(scope="module")
def kafka() -> Any:
    return json.loads(gzip.decompress(VERDICTS.read_bytes()))


def client() -> DirectClient:
    client = DirectClient()
    client.clock.wall_ms = RECORDED_MS
    odd_batches.create_topics(client)
    return client


def compare(client: DirectClient, kafka: Any, topic: str, flipped: int) -> list[str]:
    """Send the batches of a topic and say where kwire differs, but for the known differences."""
    wrong = []
    sent = odd_batches.sent_to(kafka, topic)[: len(kafka["crafted"]) + flipped]
    for (name, batch), theirs in zip(sent, kafka["verdicts"][topic], strict=False):
        ours = odd_batches.produce(client, topic, batch)
        if ours != theirs and not odd_batches.is_known_difference(name, theirs, ours):
            wrong.append(f"{topic}, {name}: Kafka {theirs}, kwire {ours}")
    stored = odd_batches.stored(client, topic)
    theirs_stored = {int(offset): digest for offset, digest in kafka["stored"][topic].items()}
    wrong += [
        f"{topic}: the batch at {offset} was stored differently"
        for offset, digest in stored.items()
        if digest != theirs_stored.get(offset)
    ]
    return wrong


@pytest.mark.parametrize("topic", odd_batches.TOPICS)
def test_batches_are_refused_as_kafka_refuses_them(kafka: Any, topic: str) -> None:
    assert compare(client(), kafka, topic, FLIPPED.get(topic, OTHERS_FLIPPED)) == []


@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_a_check_in_parts_comes_to_the_same_verdicts(
    kafka: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "_MUCH_BYTES", 0)
    in_parts = client()
    in_parts.broker.work.first_units = in_parts.broker.work.turn_units = 1
    assert compare(in_parts, kafka, topic, 50) == []


def test_the_exact_pass_comes_to_the_same_verdicts(
    kafka: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast pass only saves time: without it nothing changes."""
    monkeypatch.setattr(record_walk, "_one_by_one", lambda *_: (record_walk.NOT_PLAIN, 0, 0))
    assert compare(client(), kafka, "plain", OTHERS_FLIPPED) == []


def test_only_the_header_is_checked_where_the_broker_says_so(kafka: Any) -> None:
    lax = DirectClient()
    lax.broker.config.static["kwire.record.validation"] = HEADER
    odd_batches.create_topics(lax)
    batches = dict(map(tuple, kafka["crafted"]))
    code = {
        name: odd_batches.produce(lax, "plain", bytes.fromhex(batches[name]))[0]
        for name in ("garbage", "one record too few", "gzip, raw bytes", "count -1", "wrong crc")
    }
    assert list(code.values()) == [0, 0, 0, 87, 2]
    assert odd_batches.produce(lax, "compacted", bytes.fromhex(batches["no key"]))[0] == 87


# Each rule, switched off: some verdict must change.
RULES: dict[str, tuple[Any, str, Any]] = {
    "the fields of a record fill its size": (record_walk, "_is_filled", lambda *_: True),
    "bytes do not remain": (record_walk, "is_plain", lambda *_: True),
    "a stream ends where its data ends": (
        record_validation,
        "_cut_off",
        lambda _: record_validation.invalid_record(""),
    ),
    "timestamps are within bounds": (record_validation, "_timestamp_error", lambda *_: None),
    "records of compacted topics have keys": (LogConfig, "compact", False),
    "compressed records are in order": (record_validation, "UNORDERED", 0),
    "headers of a batch make sense": (record_validation, "validate_header", lambda _: None),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_switched_off_is_missed(
    kafka: Any, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name, value = RULES[rule]
    monkeypatch.setattr(where, name, value)
    if where is record_validation:
        from kwire.replication.log import validation

        monkeypatch.setattr(validation, name, value, raising=False)
    assert any(compare(client(), kafka, topic, 60) for topic in ("plain", "compacted", "bounded"))
