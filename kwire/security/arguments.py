"""The arguments of `Cluster` that lock it (sasl, users, tls, mtls, acl, super_users) as Kafka's keys."""

from __future__ import annotations

from kwire import errors
from kwire.replication.core.types import MTLS, TLS
from kwire.security.options import parse_users, with_logins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LISTENERS = "PLAINTEXT://127.0.0.1:0"


def with_locks(
    values: Mapping[str, str],
    sasl: object,
    users: object,
    tls: object,
    mtls: object,
    acl: object,
    super_users: Any,
) -> Mapping[str, str]:
    """The keys of brokers whose clients have to log in, speak TLS, or may do what access rules allow.
    ConfigurationError."""
    one, both, rules = _flag("tls", tls), _flag("mtls", mtls), _flag("acl", acl)
    users = users or {}
    if sasl is not None and not isinstance(sasl, str):
        raise errors.ConfigurationError(f"sasl: expected a text, not {sasl!r}")
    if not hasattr(users, "items"):
        raise errors.ConfigurationError("users: expected secrets by name, {'alice': 'secret'}")
    names = _names(super_users)
    try:
        known = parse_users([f"{name}:{secret}" for name, secret in users.items()])
        found = {"listeners": _LISTENERS, **values}
        found = with_logins(found, sasl, known, MTLS if both else TLS if one else None)
        if rules or names:
            from kwire.security.access_rules import with_acls

            found = with_acls(found, names, acl=rules)
    except ValueError as error:
        raise errors.ConfigurationError(str(error).replace("super-user:", "super_users:")) from None
    return found


def _names(super_users: Any) -> list[str]:
    is_list = isinstance(super_users, list | tuple | set | frozenset)
    names = [name for name in super_users if isinstance(name, str)] if is_list else []
    if not is_list or len(names) < len(super_users):
        text = f"super_users: expected names, ['admin'], not {super_users!r}"
        raise errors.ConfigurationError(text)
    return names


def _flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise errors.ConfigurationError(f"{what}: expected True or False, not {value!r}")
    return value
