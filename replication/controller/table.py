"""The table of the APIs that a controller serves, one row per API.

Derived from it: the rows of APIs that a broker forwards (`kwire/apis/__init__.py`), the table of a
controller node (`kwire/apis/controller_plane.py`), the controller's dispatch (`controller.py`) and
all error responses. Every broker loads it at its start: a row refers to its functions through an
argument, so that mypy checks them and nothing is imported for them.

To add an API: write the method, its refusal (`refusals.py`) if it is not the plain one, and one row
here.
"""

from __future__ import annotations

from enum import Enum

from kwire.protocol.api import ApiKey, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Protocol, TypeVar

    from kwire.protocol.errors import ErrorCode
    from kwire.protocol.language.schema import Message
    from kwire.replication.controller.brokers.registry import BrokerRegistry
    from kwire.replication.controller.configs import ConfigControl
    from kwire.replication.controller.partitions import PartitionControl
    from kwire.replication.controller.producer_ids import ProducerIdControl
    from kwire.replication.controller.reassignment import Reassignments
    from kwire.replication.controller.refusals import Refusals
    from kwire.replication.controller.security.control import SecurityControl
    from kwire.replication.controller.topics import TopicControl

    class Parts(Protocol):
        """The parts of a controller that answer requests."""

        @property
        def topics(self) -> TopicControl: ...
        @property
        def configs(self) -> ConfigControl: ...
        @property
        def partitions(self) -> PartitionControl: ...
        @property
        def reassignments(self) -> Reassignments: ...
        @property
        def registry(self) -> BrokerRegistry: ...
        @property
        def producer_ids(self) -> ProducerIdControl: ...
        @property
        def security(self) -> SecurityControl: ...

    _Request = TypeVar("_Request", bound=Message)
    Method = Callable[[_Request, int], Message | Generator[int, None, Message]]
    """(request, version) -> response, in parts (core/work.py) where that may take long"""
    Refuse = Callable[[_Request, int, int, str | None], Message]
    """(request, version, error code, text) -> response"""


class AskedBy(Enum):
    """The callers of an API; they decide where it is served and when it is answered."""

    CLIENTS = "clients"
    """Served by brokers, which forward them, and by controllers. Answered when all live brokers
    have acknowledged the effects."""
    BROKERS = "brokers"
    """Served by controllers.

    Answered immediately: the effects are on their way to the calling broker."""
    BROKERS_FOR_CLIENTS = "brokers for clients"
    """Served by controllers in an Envelope: data that a broker lacks for its own answer to a
    client."""


class ControllerApi:
    """A row. `min_version` to `max_version` are served, by brokers and controllers alike."""

    __slots__ = ("asked_by", "key", "max_version", "method", "min_version", "refuse")

    def __init__(
        self,
        key: ApiKey,
        min_version: int,
        max_version: int,
        method: Callable[[Parts], Method[_Request]],
        refuse: Callable[[type[Refusals]], Refuse[_Request]] = lambda r: r.plain,
        asked_by: AskedBy = AskedBy.CLIENTS,
    ) -> None:
        """`method`: returns the method of a controller part that handles the request. `refuse`: one
        of `Refusals`."""
        self.key = key
        self.min_version = min_version
        self.max_version = max_version
        self.method: Callable[[Parts], Method[Any]] = method
        self.refuse: Callable[[type[Refusals]], Refuse[Any]] = refuse
        self.asked_by = asked_by

    def __repr__(self) -> str:
        return f"ControllerApi({self.key.api_name}, {self.min_version}-{self.max_version})"


TABLE: tuple[ControllerApi, ...] = (
    ControllerApi(
        ApiKey.CONTROLLED_SHUTDOWN,
        0,
        3,
        lambda c: c.registry.controlled_shutdown,
        lambda r: r.controlled_shutdown,
        AskedBy.BROKERS,
    ),
    ControllerApi(
        ApiKey.CREATE_TOPICS, 0, 7, lambda c: c.topics.create_topics, lambda r: r.create_topics
    ),
    ControllerApi(
        ApiKey.DELETE_TOPICS, 0, 6, lambda c: c.topics.delete_topics, lambda r: r.delete_topics
    ),
    ControllerApi(
        ApiKey.CREATE_ACLS, 0, 3, lambda c: c.security.acls.create, lambda r: r.create_acls
    ),
    ControllerApi(
        ApiKey.DELETE_ACLS, 0, 3, lambda c: c.security.acls.delete, lambda r: r.delete_acls
    ),
    ControllerApi(
        ApiKey.ALTER_CONFIGS, 0, 2, lambda c: c.configs.alter_configs, lambda r: r.alter_configs
    ),
    ControllerApi(
        ApiKey.CREATE_PARTITIONS,
        0,
        3,
        lambda c: c.topics.create_partitions,
        lambda r: r.create_partitions,
    ),
    ControllerApi(
        ApiKey.CREATE_DELEGATION_TOKEN,
        0,
        3,
        lambda c: c.security.tokens.create,
        lambda r: r.create_delegation_token,
    ),
    ControllerApi(ApiKey.RENEW_DELEGATION_TOKEN, 0, 2, lambda c: c.security.tokens.renew),
    ControllerApi(ApiKey.EXPIRE_DELEGATION_TOKEN, 0, 2, lambda c: c.security.tokens.expire),
    ControllerApi(
        ApiKey.ELECT_LEADERS, 0, 2, lambda c: c.partitions.elect_leaders, lambda r: r.elect_leaders
    ),
    ControllerApi(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        0,
        1,
        lambda c: c.configs.incremental_alter_configs,
        lambda r: r.incremental_alter_configs,
    ),
    ControllerApi(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        1,
        lambda c: c.reassignments.alter,
        lambda r: r.alter_partition_reassignments,
    ),
    ControllerApi(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, lambda c: c.reassignments.list_ongoing
    ),
    ControllerApi(
        ApiKey.ALTER_CLIENT_QUOTAS,
        0,
        1,
        lambda c: c.configs.alter_client_quotas,
        lambda r: r.alter_client_quotas,
    ),
    ControllerApi(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        0,
        lambda c: c.security.scram.alter,
        lambda r: r.alter_user_scram_credentials,
    ),
    ControllerApi(
        ApiKey.ALTER_PARTITION,
        0,
        3,
        lambda c: c.partitions.alter_partition,
        asked_by=AskedBy.BROKERS,
    ),
    ControllerApi(
        ApiKey.BROKER_REGISTRATION,
        0,
        4,
        lambda c: c.registry.register_request,
        asked_by=AskedBy.BROKERS,
    ),
    ControllerApi(
        ApiKey.BROKER_HEARTBEAT, 0, 1, lambda c: c.registry.heartbeat, asked_by=AskedBy.BROKERS
    ),
    ControllerApi(ApiKey.UNREGISTER_BROKER, 0, 0, lambda c: c.registry.unregister_request),
    ControllerApi(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        0,
        0,
        lambda c: c.producer_ids.allocate,
        asked_by=AskedBy.BROKERS,
    ),
    ControllerApi(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        0,
        lambda c: c.partitions.describe_eligible,
        lambda r: r.describe_topic_partitions,
        AskedBy.BROKERS_FOR_CLIENTS,
    ),
)
"""In Kafka's order of keys."""

BY_KEY: dict[int, ControllerApi] = {row.key: row for row in TABLE}


def refusal(request: Message, version: int, code: ErrorCode, message: str | None = None) -> Message:
    """Return an error response that refuses a request as a whole with `code`.

    KeyError for an API that controllers do not serve."""
    from kwire.replication.controller.refusals import Refusals

    return BY_KEY[key_of(request)].refuse(Refusals)(request, version, int(code), message)
