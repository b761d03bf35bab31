"""Metrics that clients push (KIP-714)."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Message,
    array,
    field,
)


class GetTelemetrySubscriptionsRequest(Message, versions="0", flexible="0+"):
    """Asks which metrics the broker wants of this client (KIP-714)."""

    client_instance_id: bytes = field(UUID)


class GetTelemetrySubscriptionsResponse(Message, versions="0", flexible="0+"):
    """The subscription: metrics, interval, compression."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    client_instance_id: bytes = field(UUID)
    subscription_id: int = field(INT32)
    accepted_compression_types: list[int] = field(array(INT8))
    push_interval_ms: int = field(INT32)
    telemetry_max_bytes: int = field(INT32)
    delta_temporality: bool = field(BOOLEAN)
    requested_metrics: list[str] = field(array(STRING))


class PushTelemetryRequest(Message, versions="0", flexible="0+"):
    """Brings a client's metrics (KIP-714)."""

    client_instance_id: bytes = field(UUID)
    subscription_id: int = field(INT32)
    terminating: bool = field(BOOLEAN)
    compression_type: int = field(INT8)
    metrics: bytes = field(BYTES)


class PushTelemetryResponse(Message, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
