"""What locks the brokers of a container: KWIRE_TLS, KWIRE_MTLS, KWIRE_ACL, KWIRE_SUPER_USERS as Kafka's keys."""

from __future__ import annotations

from kwire.docker.listeners import controller_names, protocols_of
from kwire.docker.variables import flag
from kwire.replication.core.types import MTLS, TLS, TLS_KEY
from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.docker.environment import ContainerSettings


_TLS = {"KWIRE_MTLS": MTLS, "KWIRE_TLS": TLS}


def tls_option(environ: Mapping[str, str]) -> str | None:
    """How a container asks for certificates; None: it does not. SettingsError."""
    given = [name for name in _TLS if flag(name, environ.get(name, ""))]
    return f"{given[0]}=true" if given else None


def set_tls(values: dict[str, str], environ: Mapping[str, str]) -> None:
    """Set the keys of KWIRE_TLS and KWIRE_MTLS. SettingsError."""
    option = tls_option(environ)
    if option is None:
        return
    kind = _TLS[option.partition("=")[0]]
    from kwire.security.options import with_logins

    names = controller_names(values)
    items = values["listeners"].split(",")
    protocols = protocols_of(values)

    def asks_nothing(item: str) -> bool:
        """Whether it is a controller's listener without TLS, which stays as it is."""
        name = item.partition("://")[0].upper()
        return name in names and not protocols.get(name, "").endswith("SSL")

    controllers = [item for item in items if asks_nothing(item)]
    if len(controllers) == len(items):  # a controller's container: its brokers have the others
        values[TLS_KEY] = kind
        return
    values["listeners"] = ",".join(item for item in items if item not in controllers)
    try:
        found = with_logins(values, None, {}, kind)
    except ValueError as error:
        raise SettingsError(f"{option}: {error}") from None
    for item in controllers:
        name, key = item.partition("://")[0].upper(), "listener.security.protocol.map"
        found["listeners"] += f",{item}"
        if f"{name}:" not in found.get(key, "").upper():
            found[key] = f"{found[key]},{name}:PLAINTEXT"
    values.clear()
    values.update(found)


def set_acls(
    settings: ContainerSettings, values: dict[str, str], environ: Mapping[str, str]
) -> None:
    """Set the keys of KWIRE_ACL and KWIRE_SUPER_USERS. SettingsError."""
    acl = flag("KWIRE_ACL", environ.get("KWIRE_ACL", ""))
    text = environ.get("KWIRE_SUPER_USERS", "")
    names = text.split(";" if "=" in text or ";" in text else ",")  # CN=broker,OU=kafka is one
    names = [name for name in names if name.strip()]
    if not acl and not names:
        return
    from kwire.replication.config.authorization import SUPER_USERS_KEY
    from kwire.security.access_rules import with_acls

    alone = not settings.node.controllers
    try:
        found = with_acls(values, names, acl=acl, alone=alone)
    except ValueError as error:
        reason = str(error).removeprefix("super-user: ").replace("acl", "KWIRE_ACL=true")
        raise SettingsError(f"KWIRE_SUPER_USERS: {reason}") from None
    if acl and settings.runs_broker and not alone and SUPER_USERS_KEY not in found:
        raise SettingsError(
            "KWIRE_ACL=true: brokers in several containers are clients of each other; name their user in"
            " KWIRE_SUPER_USERS, ANONYMOUS if they do not log in"
        )
    values.clear()
    values.update(found)
