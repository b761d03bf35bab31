"""kwire's responses to a long series of group requests equal those of a real Kafka 3.9.1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conversation import SETTINGS, TOPICS, Conversation
from group_kit import GroupBroker

from kwire.protocol.schemas.groups import FindCoordinatorRequest

ANSWERS = Path(__file__).parent.parent / "data" / "group-conversation-3.9.1.jsonl"


class BrokerConnection:
    """A connection to a broker in the same process."""

    def __init__(self, broker: GroupBroker) -> None:
        self._broker = broker
        self._connection = broker.connect()
        self._heard = 0

    def send(self, version: int, request: Any) -> None:
        self._broker.send(self._connection, version, request)

    def receive(self) -> Any:
        answer = self._broker.answers[self._connection][self._heard]
        self._heard += 1
        return answer

    def is_silent(self) -> bool:
        return len(self._broker.answers[self._connection]) == self._heard


def test_kwire_answers_as_kafka_does() -> None:
    broker = GroupBroker(SETTINGS)
    broker.client_id = "cl"
    for name, count in TOPICS.items():
        broker.create_topic(name, count)
    broker.ask(0, FindCoordinatorRequest(key="a"))
    lines = Conversation(lambda: BrokerConnection(broker)).hold()
    expected = ANSWERS.read_text().splitlines()
    assert len(lines) == len(expected) > 500
    differences = [
        f"{label}\n  kwire {json.dumps(ours)}\n  Kafka {json.dumps(theirs)}"
        for (label, ours), (_, theirs) in zip(
            map(json.loads, lines), map(json.loads, expected), strict=True
        )
        if ours != theirs
    ]
    assert not differences, "\n".join(differences[:20])
