"""Kafka's own request classes order a kwire broker about, with stale and fresh epochs: it answers as Kafka does."""

from pathlib import Path

import pytest

from compat_tests.java_control import BROKER_ID, ask_kafka, converse, recorded
from compat_tests.mixed.processes import KwireNode

pytestmark = [pytest.mark.timeout(180), pytest.mark.kwire_only]

BROKER_EPOCH = 25


def test_a_controller_in_java_gets_the_answers_of_kafka(tmp_path: Path) -> None:
    # Some of its orders name no broker epoch, or another one.
    node = KwireNode(tmp_path, BROKER_ID, {"kwire.any.connection.may.control": "true"})
    node.epoch = BROKER_EPOCH
    node.controller = "2@127.0.0.1:1"  # the driver's id; nobody listens there
    try:
        node.start()
        heard = converse(node, BROKER_EPOCH)
        assert "Traceback" not in node.log_tail(10_000)
        assert node.alive()
    finally:
        node.kill9()
    expected = recorded()
    assert [line["step"] for line in heard] == [line["step"] for line in expected]
    differences = [
        f"{kafka['step']}\n  Kafka: {kafka['answer']}\n  kwire: {kwire['answer']}"
        for kafka, kwire in zip(expected, heard, strict=True)
        if kafka != kwire
    ]
    assert differences == [], "\n".join(differences)


@pytest.mark.slow
def test_kafka_still_answers_the_controller_in_java_as_it_was_recorded(tmp_path: Path) -> None:
    assert ask_kafka(tmp_path) == recorded()
