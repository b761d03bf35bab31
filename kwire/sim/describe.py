"""One-line descriptions of requests and responses, for traces."""

from __future__ import annotations

from typing import Any

from kwire.protocol import api
from kwire.protocol.api import ApiKey

_EPOCHS = ("controller_epoch", "broker_epoch")

# By API key: a format for the message `m`, the names of its lists of topics `t` and of their
# partitions `p`, and a format for each partition. `id` is the beginning of the topic id.
_Form = tuple[str, str, str, str]
_EPOCH = "epoch {p.leader_epoch}/{p.partition_epoch}"
_REQUESTS: dict[int, _Form] = {
    ApiKey.PRODUCE: ("acks {m.acks}", "topic_data", "partition_data", "{t.name}-{p.index}"),
    ApiKey.FETCH: (
        "session {m.session_id}/{m.session_epoch}",
        "topics",
        "partitions",
        "{id}-{p.partition} at {p.fetch_offset} epoch {p.current_leader_epoch} last {p.last_fetched_epoch}",
    ),
    ApiKey.LEADER_AND_ISR: (
        "type {m.type}",
        "topic_states",
        "partition_states",
        "{t.topic_name}-{p.partition_index} leader {p.leader} "
        + _EPOCH
        + " ISR {p.isr} of {p.replicas}",
    ),
    ApiKey.STOP_REPLICA: (
        "",
        "topic_states",
        "partition_states",
        "{t.topic_name}-{p.partition_index} epoch {p.leader_epoch} delete {p.delete_partition}",
    ),
    ApiKey.UPDATE_METADATA: (
        "type {m.type}",
        "topic_states",
        "partition_states",
        "{t.topic_name}-{p.partition_index} leader {p.leader} epoch {p.leader_epoch}",
    ),
    ApiKey.ALTER_PARTITION: (
        "",
        "topics",
        "partitions",
        "{id}-{p.partition_index} " + _EPOCH + " ISR {p.new_isr_with_epochs}",
    ),
}
_RESPONSES: dict[int, _Form] = {
    ApiKey.PRODUCE: (
        "",
        "responses",
        "partition_responses",
        "{p.index} offset {p.base_offset} error {p.error_code}",
    ),
    ApiKey.FETCH: (
        "",
        "responses",
        "partitions",
        "{id}-{p.partition_index} hw {p.high_watermark} error {p.error_code}",
    ),
    ApiKey.ALTER_PARTITION: (
        "",
        "topics",
        "partitions",
        "{p.partition_index} " + _EPOCH + " ISR {p.isr} error {p.error_code}",
    ),
}


def request_line(frame: bytes) -> str:
    """The name, correlation id and main fields of a request."""
    header = api.parse_request_header(frame)
    key = header.api_key
    request: Any
    request, _ = api.request_class(key).decode_from(frame, header.body_position, header.api_version)
    line = f"{ApiKey(key).name} #{header.correlation_id}"
    for name in _EPOCHS:
        if hasattr(request, name):
            line += f" {name} {getattr(request, name)}"
    if key == ApiKey.UPDATE_METADATA:
        line += f" alive {[broker.id for broker in request.live_brokers]}"
    return line + _in_form(request, _REQUESTS.get(key))


def response_line(request_frame_key: int, version: int, frame: bytes) -> str:
    """The correlation id, errors and main fields of a response."""
    correlation, response = api.parse_response(request_frame_key, version, frame)
    line = f"#{correlation}"
    error = getattr(response, "error_code", 0)
    if error:
        line += f" error {error}"
    return line + _in_form(response, _RESPONSES.get(request_frame_key))


def _in_form(message: Any, form: _Form | None) -> str:
    if form is None:
        return ""
    head, topics, partitions, each = form
    parts = [
        each.format(t=topic, id=getattr(topic, "topic_id", b"").hex()[:4], p=partition)
        + _of_fetched(partition)
        for topic in getattr(message, topics)
        for partition in getattr(topic, partitions)
    ]
    return f" {head.format(m=message)} [{'; '.join(parts)}]".replace("  ", " ")


def _of_fetched(partition: Any) -> str:
    """The diverging epoch and record size of a partition in a Fetch response."""
    line = ""
    diverging = getattr(partition, "diverging_epoch", None)
    if diverging is not None:
        if diverging.epoch >= 0:
            line += f" diverging ({diverging.epoch}, {diverging.end_offset})"
        if partition.records:
            line += f" {len(partition.records)} bytes"
    return line
