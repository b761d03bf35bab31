"""What `kwire.Cluster` and the pytest fixtures raise.

Every error says in one line what was expected and what was found. `kafka_error` is Kafka's name of the error
("TOPIC_ALREADY_EXISTS"), where there is one; names and meanings are those of org.apache.kafka.common.protocol.Errors.
"""

from __future__ import annotations

INTERNAL_ERROR = "internal error; please report it"
"""What a node logs, and a control API answers, when an exception was not expected."""


class KwireError(Exception):
    """The base of all others."""

    kafka_error: str | None = None

    def __init__(self, message: str, kafka_error: str | None = None) -> None:
        super().__init__(message)
        if kafka_error is not None:
            self.kafka_error = kafka_error


class ConfigurationError(KwireError, ValueError):
    """An option or a configuration value is refused; nothing was started."""

    kafka_error = "INVALID_CONFIG"


class StartError(KwireError):
    """A node could not be started (port in use, directory locked), or could not be stopped cleanly."""


class ClusterStateError(KwireError):
    """The cluster is not started, or already stopped, or the broker is not in the state that the call needs."""


class BrokerNotAvailableError(KwireError):
    """The node that would have to answer is not running, is paused, or does not answer."""

    kafka_error = "BROKER_NOT_AVAILABLE"


class RequestError(KwireError):
    """A broker or the controller refused the request; `kafka_error` says why."""


class UnknownTopicOrPartitionError(RequestError):
    """There is no such topic or partition."""

    kafka_error = "UNKNOWN_TOPIC_OR_PARTITION"


class WaitTimeoutError(KwireError, TimeoutError):
    """`wait_for` timed out: the text says what it waited for and what it saw last."""

    kafka_error = "REQUEST_TIMED_OUT"


class NotSupportedError(KwireError):
    """Not possible for a cluster that was started elsewhere."""


class InternalError(KwireError):
    """A bug in a broker or controller of kwire; the text holds the traceback of the first."""

    kafka_error = "UNKNOWN_SERVER_ERROR"

    def __init__(self, message: str, failures: list[str]) -> None:
        super().__init__(message)
        self.failures = failures


def refused(name: str, message: str) -> RequestError:
    """The exception for Kafka's error of this name."""
    kind = UnknownTopicOrPartitionError if name == "UNKNOWN_TOPIC_OR_PARTITION" else RequestError
    return kind(f"{message} ({name})", name)
