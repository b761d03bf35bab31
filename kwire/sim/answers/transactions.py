"""Record what transaction coordinators answer: who is fenced or not (I44, I52), how transactions ended (I41)."""

from __future__ import annotations

from kwire.sim.clients.transactional import TransactionalProducer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.answers.checker import Answer, Answers


def check_init(answers: Answers, answer: Answer) -> None:
    """Remember the newest epoch of a transactional id."""
    request, response = answer.request, answer.response
    if request.transactional_id is None:
        return
    answers.reach("INIT_PRODUCER_ID", response.error_code)
    answers.invariants.transactions.unfenced.initialized(answer)
    if not response.error_code:
        answers.invariants.transactions.initialized(
            request.transactional_id, response.producer_id, response.producer_epoch
        )


def check_add(answers: Answers, answer: Answer) -> None:
    """I52."""
    request = answer.request
    producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    for topic in answer.response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            error = partition.partition_error_code
            answers.reach("ADD_PARTITIONS_TO_TXN", error)
            answers.invariants.transactions.unfenced.refused(
                answer, request.v3_and_below_transactional_id, producer, error
            )


def check_add_offsets(answers: Answers, answer: Answer) -> None:
    """I52."""
    request, error = answer.request, answer.response.error_code
    answers.reach("ADD_OFFSETS_TO_TXN", error)
    producer = request.producer_id, request.producer_epoch
    answers.invariants.transactions.unfenced.refused(
        answer, request.transactional_id, producer, error
    )


def check_end(answers: Answers, answer: Answer) -> None:
    """Remember how a transaction has ended, as its producer was answered; I52."""
    answers.reach("END_TXN", answer.response.error_code)
    answers.invariants.transactions.unfenced.ended(answer)
    assert isinstance(answer.client, TransactionalProducer)
    transaction = answer.client.ends.get(id(answer.request))
    if not answer.response.error_code and transaction is not None:
        place = answer.client.name.encode(), transaction
        answers.invariants.transactions.told[place] = answer.request.committed
