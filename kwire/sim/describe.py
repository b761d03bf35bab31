"""Messages in a line, for traces: the fields that a reader of replication wants to see."""

from __future__ import annotations

from typing import Any

from kwire.protocol import api

_EPOCHS = ("controller_epoch", "broker_epoch")


def request_line(frame: bytes) -> str:
    """Name, correlation and what matters of a request."""
    header = api.parse_request_header(frame)
    key = header.api_key
    request: Any
    request, _ = api.request_class(key).decode_from(frame, header.body_position, header.api_version)
    line = f"{api.ApiKey(key).name} #{header.correlation_id}"
    for name in _EPOCHS:
        if hasattr(request, name):
            line += f" {name} {getattr(request, name)}"
    describe = _REQUESTS.get(key)
    return line if describe is None else f"{line} {describe(request)}"


def response_line(request_frame_key: int, version: int, frame: bytes) -> str:
    """Errors and what matters of a response."""
    correlation, response = api.parse_response(request_frame_key, version, frame)
    line = f"#{correlation}"
    error = getattr(response, "error_code", 0)
    if error:
        line += f" error {error}"
    describe = _RESPONSES.get(request_frame_key)
    return line if describe is None else f"{line} {describe(response)}"


def _fetch(request: Any) -> str:
    parts = [
        f"{topic.topic_id.hex()[:4]}-{p.partition} at {p.fetch_offset} epoch {p.current_leader_epoch} "
        f"last {p.last_fetched_epoch}"
        for topic in request.topics
        for p in topic.partitions
    ]
    return f"session {request.session_id}/{request.session_epoch} [{'; '.join(parts)}]"


def _fetched(response: Any) -> str:
    parts = []
    for topic in response.responses:
        for p in topic.partitions:
            what = f"{topic.topic_id.hex()[:4]}-{p.partition_index} hw {p.high_watermark}"
            if p.error_code:
                what += f" error {p.error_code}"
            if p.diverging_epoch.epoch >= 0:
                what += f" diverging ({p.diverging_epoch.epoch}, {p.diverging_epoch.end_offset})"
            if p.records:
                what += f" {len(p.records)} bytes"
            parts.append(what)
    return f"[{'; '.join(parts)}]"


def _leader_and_isr(request: Any) -> str:
    parts = [
        f"{topic.topic_name}-{p.partition_index} leader {p.leader} epoch {p.leader_epoch}/{p.partition_epoch} "
        f"ISR {p.isr} of {p.replicas}"
        for topic in request.topic_states
        for p in topic.partition_states
    ]
    return f"{'full ' if request.type == 2 else ''}[{'; '.join(parts)}]"


def _stop_replica(request: Any) -> str:
    parts = [
        f"{topic.topic_name}-{p.partition_index} epoch {p.leader_epoch}{' delete' if p.delete_partition else ''}"
        for topic in request.topic_states
        for p in topic.partition_states
    ]
    return f"[{'; '.join(parts)}]"


def _update_metadata(request: Any) -> str:
    return f"alive {[broker.id for broker in request.live_brokers]}"


def _alter_partition(request: Any) -> str:
    parts = [
        f"{topic.topic_id.hex()[:4]}-{p.partition_index} epoch {p.leader_epoch}/{p.partition_epoch} ISR "
        f"{[(m.broker_id, m.broker_epoch) for m in p.new_isr_with_epochs]}"
        for topic in request.topics
        for p in topic.partitions
    ]
    return f"[{'; '.join(parts)}]"


def _altered(response: Any) -> str:
    parts = [
        f"{p.partition_index} epoch {p.leader_epoch}/{p.partition_epoch} ISR {p.isr} error {p.error_code}"
        for topic in response.topics
        for p in topic.partitions
    ]
    return f"[{'; '.join(parts)}]"


def _produced(response: Any) -> str:
    answer = response.responses[0].partition_responses[0]
    return f"offset {answer.base_offset} error {answer.error_code}"


def _produce(request: Any) -> str:
    topic = request.topic_data[0]
    return f"{topic.name}-{topic.partition_data[0].index} acks {request.acks}"


_REQUESTS = {
    0: _produce,
    1: _fetch,
    4: _leader_and_isr,
    5: _stop_replica,
    6: _update_metadata,
    56: _alter_partition,
}
_RESPONSES = {0: _produced, 1: _fetched, 56: _altered}
