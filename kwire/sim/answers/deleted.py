"""Check answers to DeleteRecords (I36): one that comes before its time tells what all live replicas have done."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.answers.checker import Answer, Answers


def check(answers: Answers, answer: Answer) -> None:
    """The low watermark has reached what was asked for."""
    asked = {
        (topic.name, p.partition_index): p.offset
        for topic in answer.request.topics
        for p in topic.partitions
    }
    for topic in answer.response.topics:
        for data in topic.partitions:
            answers.reach("DELETE_RECORDS", data.error_code)
            wanted = asked[topic.name, data.partition_index]
            if not data.error_code and answer.early and data.low_watermark < wanted:
                answers.invariants.violated(
                    "I36",
                    f"{topic.name}-{data.partition_index} at {answer.node_id}: deleted up to {data.low_watermark},"
                    f" asked was {wanted}",
                )
