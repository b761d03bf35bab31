"""API keys, message classes by key, and request and response headers.

Answers to org.apache.kafka.common.protocol.ApiKeys, ApiMessageType, RequestHeader and
ResponseHeader. Keys are those of Kafka 4.4, and 4 to 7 of 3.9. A module of message definitions is
imported at its first use.

Special cases handled only here: the response header of ApiVersions is version 0 in every version
(KIP-511); the request header of ControlledShutdown version 0 is version 0, without a client id; in
request header version 2 the client id keeps its int16 length, and only then come tagged fields.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as struct_error

from kwire.protocol.errors import Codes, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.language.primitives import Buffer
    from kwire.protocol.language.schema import Message


class ApiKey(Codes):
    """The number of an API on the wire (int16)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94

    @property
    def api_name(self) -> str:
        """The name in Kafka's documentation: "CreateTopics"."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_FAMILIES: dict[str, tuple[ApiKey, ...]] = {
    "produce": (ApiKey.PRODUCE,),
    "fetch": (ApiKey.FETCH,),
    "offsets": (
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
    ),
    "metadata": (
        ApiKey.METADATA,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ),
    "topics": (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_RECORDS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ),
    "configs": (
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
    ),
    "groups": (
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
    ),
    "consumer_group": (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    ),
    "share_group": (
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
    "share_state": (
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
    "streams_group": (
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
    ),
    "transactions": (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    ),
    "acls": (
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
    ),
    "sasl": (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ),
    "tokens": (
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
    "quotas": (
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
    ),
    "telemetry": (
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    ),
    "api_versions": (ApiKey.API_VERSIONS,),
    "cluster": (
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.UPDATE_FEATURES,
    ),
    "control_plane": (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ENVELOPE,
    ),
    "raft": (
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
    ),
    "nodes": (
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ),
}
_FAMILY_OF = {key: family for family, keys in _FAMILIES.items() for key in keys}

_NEVER = 0x8000
_CONTROLLED_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)  # a plain int: compared for every request


class _FirstFlexible(dict[int, int]):
    """API key → first version with a flexible header, or _NEVER. Loads APIs on first use."""

    def __missing__(self, key: int) -> int:
        _load(key)
        return self[key]


_first_flexible_request = _FirstFlexible()
_first_flexible_response = _FirstFlexible()
_request_classes: dict[int, type[Message]] = {}
_response_classes: dict[int, type[Message]] = {}
_keys: dict[type[Message], ApiKey] = {}

_PREFIX = Layout(">hhi")
_ID_LENGTH = Layout(">h")
_RESPONSE = Layout(">ii")
_REQUEST = Layout(">ihhi")


class RequestHeader:
    """The fields of a request header, and the position of the body in the frame."""

    __slots__ = ("api_key", "api_version", "body_position", "client_id", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_position: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_position = body_position

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version},"
            f" correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def request_class(key: int) -> type[Message]:
    """The class of an API's requests. Raises MalformedMessage for an unknown key."""
    found = _request_classes.get(key)
    if found is None:
        _load(key)
        found = _request_classes[key]
    return found


def response_class(key: int) -> type[Message]:
    """The class of an API's responses. Raises MalformedMessage for an unknown key."""
    found = _response_classes.get(key)
    if found is None:
        _load(key)
        found = _response_classes[key]
    return found


def key_of(message: Message) -> ApiKey:
    """The API of a request or a response. KeyError for any other message."""
    kind = type(message)
    found = _keys.get(kind)
    if found is None:
        name = kind.__name__.removesuffix("Request").removesuffix("Response")
        found = _keys[kind] = {key.api_name: key for key in ApiKey}[name]
    return found


def request_header_version(key: int, version: int) -> int:
    """The request header's version. As in Kafka, unknown later versions count as flexible."""
    if version >= _first_flexible_request[key]:
        return 2
    return 0 if key == _CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(key: int, version: int) -> int:
    """0, or 1 with tagged fields in flexible versions; always 0 for ApiVersions."""
    return 1 if version >= _first_flexible_response[key] else 0


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Parse the header of a request frame (without length prefix); the version may be unknown.

    Raises MalformedMessage for a frame that ends early and for an unknown API key.
    """
    try:
        key, version, correlation_id = _PREFIX.unpack_from(frame)
        header_version = request_header_version(key, version)
        if header_version == 0:
            return RequestHeader(key, version, correlation_id, None, 8)
        (length,) = _ID_LENGTH.unpack_from(frame, 8)
        position = 10 + max(length, 0)
        if length < -1 or position > len(frame):
            raise MalformedMessage(f"request header: client id of {length} bytes")
        client_id = str(frame[10:position], "utf-8") if length >= 0 else None
        if header_version == 2:
            if frame[position] == 0:
                position += 1
            else:
                from kwire.protocol.language.wire import read_tags

                position = read_tags(frame, position)[1]
    except (struct_error, IndexError):
        raise MalformedMessage(f"request header: ends early, after {len(frame)} bytes") from None
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"request header: client id: {error}") from None
    return RequestHeader(key, version, correlation_id, client_id, position)


def encode_request(
    key: int, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Buffer]:
    """Encode a request frame with length prefix and header, in parts that share records."""
    parts = message.encode_parts(version)
    header_version = request_header_version(key, version)
    header = b""
    if header_version:
        name = b"" if client_id is None else client_id.encode()
        header = _ID_LENGTH.pack(-1 if client_id is None else len(name)) + name
        if header_version == 2:
            header += b"\0"
    size = 8 + len(header) + sum(map(len, parts))
    parts[0] = _REQUEST.pack(size, key, version, correlation_id) + header + parts[0]
    return parts


def encode_response(
    key: int, version: int, correlation_id: int, message: Message, parts: list[Buffer] | None = None
) -> list[Buffer]:
    """Encode a response frame with length prefix and header, in parts that share records.

    `parts`: the message, if it is encoded already."""
    if parts is None:
        parts = message.encode_parts(version)
    size = 4 + sum(map(len, parts))
    if version >= _first_flexible_response[key]:
        header = _RESPONSE.pack(size + 1, correlation_id) + b"\0"
    else:
        header = _RESPONSE.pack(size, correlation_id)
    # The first part is never records (other fields always precede them), so this copies little.
    parts[0] = header + parts[0]
    return parts


def parse_response(key: int, version: int, frame: Buffer) -> tuple[int, Message]:
    """Parse a response frame without length prefix: (correlation id, message). MalformedMessage."""
    if len(frame) < 4:
        raise MalformedMessage(f"response of {len(frame)} bytes")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    position = 4
    if response_header_version(key, version):
        position = 5
        if frame[4:5] != b"\0":  # tagged fields
            from kwire.protocol.language.wire import read_tags

            position = read_tags(frame, 4)[1]
    return correlation_id, response_class(key).decode_from(frame, position, version)[0]


def _load(key: int) -> None:
    """Import the module with the API's messages and register their classes."""
    try:
        api = ApiKey(key)
    except ValueError:
        raise MalformedMessage(f"unknown API key {key}") from None
    from importlib import import_module

    module = import_module(f"kwire.protocol.schemas.{_FAMILY_OF[api]}")
    _request_classes[api] = getattr(module, api.api_name + "Request")
    _response_classes[api] = getattr(module, api.api_name + "Response")
    flexible = _request_classes[api].flexible
    first_flexible = _NEVER if flexible is None else flexible[0]
    _first_flexible_request[api] = first_flexible
    _first_flexible_response[api] = _NEVER if api is ApiKey.API_VERSIONS else first_flexible
