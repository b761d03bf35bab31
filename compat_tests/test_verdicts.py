"""Thousands of batches with flipped bits and right CRCs: kwire refuses what Apache Kafka refuses."""

from __future__ import annotations

import collections
import sys
from pathlib import Path
from typing import Any

import pytest

from compat_tests.brokers import Broker, KwireBroker, RealKafka
from compat_tests.record_dialogue import SocketClient
from kwire.protocol.errors import ErrorCode

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "apis"))

import odd_batches  # noqa: E402


def observed(broker: Broker) -> dict[str, Any]:
    broker.start()
    try:
        return odd_batches.observe(SocketClient(broker.port))
    finally:
        broker.kill9()


def named(code: Any) -> str:
    return f"{code} {ErrorCode(code).name}" if isinstance(code, int) else str(code)


@pytest.mark.slow  # half a minute, of which Kafka's start is the half
@pytest.mark.kwire_only
@pytest.mark.timeout(600)
def test_the_verdicts_are_those_of_kafka(tmp_path: Path) -> None:
    patient = {
        "broker.session.timeout.ms": "60000"
    }  # a busy machine must not lose Kafka its leader
    kafka = observed(RealKafka(tmp_path / "kafka", patient))
    kwire = observed(KwireBroker(tmp_path / "kwire"))
    assert kafka["crafted"] == kwire["crafted"] and kafka["bases"] == kwire["bases"]
    wrong = []
    for topic in odd_batches.TOPICS:
        table: collections.Counter[tuple[str, str]] = collections.Counter()
        sent = odd_batches.sent_to(kafka, topic)
        verdicts = zip(sent, kafka["verdicts"][topic], kwire["verdicts"][topic], strict=True)
        for (name, batch), theirs, ours in verdicts:
            table[named(theirs[0]), named(ours[0])] += 1
            if ours != theirs and not odd_batches.is_known_difference(name, theirs, ours):
                wrong.append(f"{topic}, {name} ({batch.hex()}): Kafka {theirs}, kwire {ours}")
        if kafka["stored"][topic] != kwire["stored"][topic]:
            wrong.append(f"{topic}: the logs differ")
        print(f"\n{topic}: {len(sent)} batches\n  {'Kafka':32} kwire")
        for (theirs_name, ours_name), count in sorted(table.items()):
            print(f"  {theirs_name:32} {ours_name:32} {count:5}")
    assert wrong == []
