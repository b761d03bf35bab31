"""The principal and the address of a client whose request is forwarded to the controller, as bytes in an Envelope.

Answers to org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder, which is Kafka's
KafkaPrincipalSerde: the version, two bytes, and a DefaultPrincipalData.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.types import ANONYMOUS

USER_TYPE: Final = "User"
_VERSION: Final = 0
_NODE: Final = b"\0\0\x06Kwire\x05node\0\0"  # "Kwire:node", which no client is


def principal_of(kind: str | None, name: str | None, default: str) -> str:
    """A principal as it is in a request, type:name, or `default` if it is not there."""
    return f"{kind}:{name}" if name else default


def principal_bytes(principal: str) -> bytes | None:
    """The bytes of a principal, type:name; "": the node that forwards. None for ANONYMOUS, which
    saves most clusters an import."""
    if principal in ("", ANONYMOUS):
        return None if principal else _NODE
    from kwire.protocol.schemas.principal import DefaultPrincipalData

    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name)
    return _VERSION.to_bytes(2, "big") + data.encode(_VERSION)


def principal_in(data: bytes | memoryview | None) -> str:
    """The principal in its bytes; None: ANONYMOUS; "": the node that has sent them.
    KafkaError(PRINCIPAL_DESERIALIZATION_FAILURE)."""
    if data is None or data == _NODE:
        return ANONYMOUS if data is None else ""
    from kwire.protocol.errors import MalformedMessage
    from kwire.protocol.schemas.principal import DefaultPrincipalData

    try:
        principal, _ = DefaultPrincipalData.decode_from(data, 2, _VERSION)
    except MalformedMessage:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from None
    return f"{principal.type}:{principal.name}"


def address_bytes(host: str) -> bytes:
    """A client's address: 4 bytes for IPv4, 16 for IPv6; empty for anything else."""
    numbers = host.split(".")
    if len(numbers) == 4 and all(n.isascii() and n.isdigit() and int(n) < 256 for n in numbers):
        return bytes(map(int, numbers))
    if ":" not in host:
        return b""
    from ipaddress import IPv6Address

    try:
        return IPv6Address(host.partition("%")[0]).packed
    except ValueError:
        return b""


def host_in(address: bytes | memoryview) -> str:
    """An address in its bytes, as a session has it; "": it is not known. KafkaError(INVALID_REQUEST)."""
    if len(address) in (0, 4):  # most clusters save an import
        return ".".join(map(str, address))
    from ipaddress import IPv6Address

    try:
        return str(IPv6Address(bytes(address)))
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST) from None
