"""Users with different rights, and every API of the authorization table: kwire's answers are Kafka 3.9.1's.

Those of Kafka are recorded in tests/data; with REAL=1 it is asked again, which tells whether the record is true.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from compat_tests import access_dialogue, brokers, test_security
from kwire.apis.access.table import TABLE
from kwire.protocol.api import ApiKey

pytestmark = pytest.mark.timeout(180)

ANSWERS = Path(__file__).resolve().parents[1] / "tests/data/access-dialogue-3.9.1.jsonl.gz"
USERS = dict.fromkeys((access_dialogue.ADMIN, *access_dialogue.USERS), access_dialogue.PASSWORD)
KEYS = {
    **test_security.KEYS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{access_dialogue.ADMIN};User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "auto.create.topics.enable": "true",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f"{test_security.MODULES}.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        + ";"
    ),
}

# With a secret key for tokens, in test_delegation_tokens.py.
ELSEWHERE = {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN}


class GuardedKafka(test_security.KafkaWithLogins):
    keys = KEYS


class GuardedKwire(test_security.KwireWithLogins):
    keys = KEYS


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answers of the broker under test, by label."""
    folder = tmp_path_factory.mktemp("access")
    broker: GuardedKafka | GuardedKwire
    if os.environ.get("REAL") == "1":
        broker = GuardedKafka(folder)
    else:
        broker = GuardedKwire(folder)
        broker.port = brokers.free_port()
    broker.start()
    try:
        pairs = list(access_dialogue.dialogue(broker.login_port))
    finally:
        broker.stop()
    assert len(pairs) == len(dict(pairs)), "a label comes twice"
    return dict(pairs)


def recorded() -> dict[str, Any]:
    """Kafka's answers by label."""
    with gzip.open(ANSWERS, "rt") as file:
        return dict(json.loads(line) for line in file)


@pytest.mark.parametrize("user", access_dialogue.USERS)
def test_the_answers_are_kafkas(answers: dict[str, Any], user: str) -> None:
    wanted = {label: it for label, it in recorded().items() if label.startswith(f"{user}: ")}
    found = {label: it for label, it in answers.items() if label.startswith(f"{user}: ")}
    wrong = [
        f"{label}\n  kwire: {json.dumps(found.get(label))}\n  Kafka: {json.dumps(it)}"
        for label, it in wanted.items()
        if not access_dialogue.is_same(found.get(label), it)
    ]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(wanted)}", *wrong])
    assert found.keys() == wanted.keys()


def test_every_api_of_the_table_is_asked() -> None:
    asked = {key for _, key, _, _ in access_dialogue.REQUESTS}
    assert {row.key for row in TABLE} == asked | ELSEWHERE
    assert not asked & ELSEWHERE
