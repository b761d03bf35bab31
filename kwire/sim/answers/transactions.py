"""Record what transaction coordinators answer: who is fenced (I44), how transactions ended (I41)."""

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
    if not response.error_code:
        answers.invariants.transactions.initialized(
            request.transactional_id, response.producer_id, response.producer_epoch
        )


def check_add(answers: Answers, answer: Answer) -> None:
    """Count it among the states reached."""
    for topic in answer.response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            answers.reach("ADD_PARTITIONS_TO_TXN", partition.partition_error_code)


def check_add_offsets(answers: Answers, answer: Answer) -> None:
    """Count it among the states reached."""
    answers.reach("ADD_OFFSETS_TO_TXN", answer.response.error_code)


def check_end(answers: Answers, answer: Answer) -> None:
    """Remember how a transaction has ended, as its producer was answered."""
    answers.reach("END_TXN", answer.response.error_code)
    assert isinstance(answer.client, TransactionalProducer)
    transaction = answer.client.ends.get(id(answer.request))
    if not answer.response.error_code and transaction is not None:
        place = answer.client.name.encode(), transaction
        answers.invariants.transactions.told[place] = answer.request.committed
