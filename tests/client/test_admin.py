"""Operations of the administration client, each request and each answer by hand: no socket, no
loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kwire.client import admin as module
from kwire.client.admin import Admin, Ask, NoBrokerError, Pause
from kwire.client.connection import NoResponseError
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.groups import FindCoordinatorRequest, FindCoordinatorResponse
from kwire.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.protocol.schemas.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from kwire.client.connection import Address

HERE, THERE, ELSEWHERE = ("a", 1), ("b", 2), ("c", 3)


def admin(*addresses: Address) -> Admin:
    return Admin(lambda: addresses)


def metadata(
    *brokers: Address, controller: int = -1, leaders: tuple[int, ...] = (), error: int = 0
) -> MetadataResponse:
    """Brokers 1, 2, …, and one topic with these leaders."""
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader)
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port)
            for node_id, (host, port) in enumerate(brokers, 1)
        ],
        controller_id=controller,
        topics=[MetadataResponseTopic(name="t", error_code=error, partitions=partitions)],
    )


class Talk:
    """An operation that is moved on step by step."""

    def __init__(self, steps: Any) -> None:
        self.steps = steps
        self.step = next(steps)
        self.result: Any = None

    def asks(self, kind: type, address: Address) -> Any:
        assert isinstance(self.step, Ask)
        assert (type(self.step.request), self.step.address) == (kind, address)
        return self.step.request

    def answer(self, outcome: Any) -> None:
        try:
            self.step = self.steps.send(outcome)
        except StopIteration as done:
            self.step, self.result = None, done.value

    def pauses(self) -> None:
        assert isinstance(self.step, Pause) and self.step.seconds > 0
        self.answer(None)


def test_any_broker_will_do_and_the_best_is_asked_first() -> None:
    talk = Talk(admin(HERE, THERE).ask_any(MetadataRequest()))
    talk.asks(MetadataRequest, HERE)
    talk.answer(NoResponseError("no answer"))
    talk.asks(MetadataRequest, THERE)
    talk.answer("found")
    assert talk.result == "found"


def test_no_broker_answers() -> None:
    talk = Talk(admin(HERE, THERE).ask_any(MetadataRequest()))
    talk.answer(NoResponseError("no answer"))
    with pytest.raises(NoBrokerError) as caught:
        talk.answer(NoResponseError("refused"))
    assert str(caught.value) == "no broker answers: a:1: no answer; b:2: refused"
    assert caught.value.api == "Metadata"
    assert [str(reason) for reason in caught.value.reasons] == ["no answer", "refused"]
    with pytest.raises(NoBrokerError, match=r"^no broker answers: none runs$"):
        Talk(admin().ask_any(MetadataRequest()))


def test_a_topic_is_created_by_the_controller_and_has_leaders() -> None:
    talk = Talk(admin(HERE).create_topic("t", 2, 1, {"k": "v"}, None, 5))
    talk.asks(MetadataRequest, HERE)
    talk.answer(metadata(HERE, THERE, controller=2))
    (topic,) = talk.asks(CreateTopicsRequest, THERE).topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 2, 1)
    assert talk.step.request.timeout_ms == 5000 and talk.step.seconds > 5
    talk.answer(CreateTopicsResponse(topics=[CreatableTopicResult(name="t")]))
    for leaders in ((1, -1), (1, 2)):
        assert [t.name for t in talk.asks(MetadataRequest, HERE).topics] == ["t"]
        talk.answer(metadata(HERE, THERE, leaders=leaders))
        if -1 in leaders:
            talk.pauses()
    assert talk.step is None


def test_another_broker_forwards_when_the_controller_has_just_ended() -> None:
    talk = Talk(admin(HERE).create_topic("t", 1, 1, {}, None, 5))
    talk.answer(metadata(HERE, THERE, controller=2))
    talk.asks(CreateTopicsRequest, THERE)
    talk.answer(NoResponseError("refused"))
    talk.asks(CreateTopicsRequest, HERE)
    result = CreatableTopicResult(
        error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="is there"
    )
    with pytest.raises(KafkaError, match=r"^TOPIC_ALREADY_EXISTS: is there$"):
        talk.answer(CreateTopicsResponse(topics=[result]))


def test_what_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    talk = Talk(admin(HERE).create_topic("t", 1, 1, {}, None, 5))
    talk.answer(metadata(HERE, THERE, controller=2))
    talk.answer(CreateTopicsResponse(topics=[CreatableTopicResult(name="t")]))
    talk.answer(metadata(HERE, THERE, leaders=(-1,)))
    talk.pauses()
    now[0] += 5.001
    with pytest.raises(KafkaError, match="waited 5 s for t to have leaders") as caught:
        talk.answer(metadata(HERE, THERE, leaders=(-1,)))
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT


def test_leaders_of_a_topic_that_comes_into_being() -> None:
    talk = Talk(admin(HERE).leaders("t", 5, create=True))
    assert talk.asks(MetadataRequest, HERE).allow_auto_topic_creation
    talk.answer(metadata(HERE, THERE, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    talk.pauses()
    talk.answer(metadata(HERE, THERE, leaders=(2, -1)))
    talk.pauses()
    talk.answer(metadata(HERE, THERE, leaders=(2, 1)))
    assert talk.result == {0: THERE, 1: HERE}


def test_leaders_of_a_topic_that_will_not_come() -> None:
    talk = Talk(admin(HERE).leaders("t", 5))
    assert not talk.asks(MetadataRequest, HERE).allow_auto_topic_creation
    with pytest.raises(KafkaError, match=r"^UNKNOWN_TOPIC_OR_PARTITION: topic t$"):
        talk.answer(metadata(HERE, THERE, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def test_a_single_broker_is_asked_where_it_was_found() -> None:
    assert admin(HERE).brokers_in(metadata(ELSEWHERE)) == {1: HERE}
    assert admin(HERE).brokers_in(metadata(ELSEWHERE, THERE)) == {1: ELSEWHERE, 2: THERE}
    assert admin(HERE, THERE).brokers_in(metadata(ELSEWHERE)) == {1: ELSEWHERE}


def test_a_coordinator_that_comes_into_being() -> None:
    talk = Talk(admin(HERE).coordinator("g", 5))
    assert talk.asks(FindCoordinatorRequest, HERE).key == "g"
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.answer(FindCoordinatorResponse(error_code=unavailable))
    talk.pauses()
    talk.answer(FindCoordinatorResponse(node_id=2))
    talk.asks(MetadataRequest, HERE)
    talk.answer(metadata(HERE, THERE))
    assert talk.result == THERE
