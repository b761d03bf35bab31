"""ControlError: the error of the control API, for servers and clients alike.

On the wire an HTTP status and `{"error": NAME, "message": TEXT}`. NAME is Kafka's name of the error,
or null where Kafka has none. `docs/control.md` lists the statuses.
"""

from __future__ import annotations

from kwire import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

_STATUS_OF_CLUSTER: dict[type[Exception], int] = {
    errors.ConfigurationError: 400,
    errors.UnknownTopicOrPartitionError: 404,
    errors.ClusterStateError: 409,
    errors.RequestError: 409,
    errors.NotSupportedError: 409,
    errors.BrokerNotAvailableError: 503,
    errors.WaitTimeoutError: 504,
}
_STATUS_OF_KAFKA = {"INVALID_REQUEST": 400, "UNKNOWN_TOPIC_OR_PARTITION": 404}
"""Others are 409: refused."""


class ControlError(Exception):
    """A refused request, with a one-line text; in a client also: no answer (`status` 0)."""

    def __init__(
        self,
        status: int,
        message: str,
        kafka_error: str | None = None,
        allow: tuple[str, ...] = (),
    ) -> None:
        """`allow`: for status 405, the methods that the path supports."""
        super().__init__(message)
        self.status = status
        self.kafka_error = kafka_error
        self.allow = allow

    def to_json(self) -> dict[str, Any]:
        return {"error": self.kafka_error, "message": str(self)}

    @classmethod
    def from_json(cls, status: int, answer: Any) -> Self:
        """The error in an answer whose status is not 200."""
        if not isinstance(answer, dict):
            return cls(status, str(answer))
        return cls(status, str(answer.get("message", answer)), answer.get("error"))


def error_of(error: Exception, request: str) -> ControlError:
    """Translate an exception of a request's handler. `request`: its method and path."""
    from kwire.protocol.errors import KafkaError

    if isinstance(error, ControlError):
        return error
    if isinstance(error, RecursionError):
        return ControlError(400, "the body is nested too deeply")
    if isinstance(error, KafkaError):
        code = error.code.name
        return ControlError(_STATUS_OF_KAFKA.get(code, 409), error.message or code, code)
    name = getattr(error, "kafka_error", None)
    for kind, status in _STATUS_OF_CLUSTER.items():
        if isinstance(error, kind):
            return ControlError(status, str(error), name)
    if isinstance(error, errors.KwireError):
        return ControlError(500, str(error), name)
    text = f"{errors.INTERNAL_ERROR}: {request}: {type(error).__name__}: {error}"
    return ControlError(500, text)
