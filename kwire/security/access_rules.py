"""The options `--acl` and `--super-user` as Kafka's keys, and what is doubtful about a node's access rules. No I/O."""

from __future__ import annotations

from kwire.replication.config.authorization import (
    ALLOW_KEY,
    STANDARD,
    SUPER_USERS_KEY,
    super_users,
)
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.config.given import check_security
from kwire.replication.config.table import BROKER_KEYS
from kwire.replication.core.types import ANONYMOUS, AUTHORIZER_KEY, INTERNAL_LISTENER
from kwire.security.mechanism import PLAIN
from kwire.security.options import listener_protocols
from kwire.security.settings import listener_key, listener_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TYPE = "User:"
_MAP, _LISTENERS = "listener.security.protocol.map", ("listeners", "advertised.listeners")
_INTER_BROKER = ("inter.broker.listener.name", "security.inter.broker.protocol")


def with_acls(
    values: Mapping[str, str], names: Iterable[str], *, acl: bool, alone: bool = True
) -> dict[str, str]:
    """The keys of a node whose clients may do what access rules allow (`acl`), and super users, NAME or User:NAME, all.

    `alone`: all nodes of the cluster are on this machine. Then a listener at a port that no client learns is for kwire
    itself, and for brokers unless the keys name another one. ValueError with one line that begins with the option."""
    found = dict(values)
    principals = [_principal(name) for name in names]
    has_rules = bool(found.get(AUTHORIZER_KEY, "").strip())
    if principals and not (acl or has_rules):
        raise ValueError("super-user: it needs acl, else everybody may do everything")
    if principals:
        given = [each.strip() for each in found.get(SUPER_USERS_KEY, "").split(";")]
        found[SUPER_USERS_KEY] = ";".join(dict.fromkeys(filter(None, (*given, *principals))))
    if not acl:
        return found
    if not has_rules:
        found[AUTHORIZER_KEY] = STANDARD
    found.setdefault(ALLOW_KEY, "false")
    if alone and f"{INTERNAL_LISTENER}://" not in found["listeners"]:
        _add_internal_listener(found)
    return found


def _principal(name: str) -> str:
    plain = name.strip().removeprefix(_TYPE)
    if not plain or any(sign in plain for sign in ":;\n"):  # not shown: it may be NAME:SECRET
        raise ValueError("super-user: expected NAME or User:NAME, one each time")
    if plain == "*":
        raise ValueError("super-user: '*' stands for nobody here, as in Kafka; name each of them")
    return _TYPE + plain


def _add_internal_listener(values: dict[str, str]) -> None:
    protocols = values.get(_MAP) or BROKER_KEYS[_MAP][1]
    values[_MAP] = f"{protocols},{INTERNAL_LISTENER}:PLAINTEXT"
    for key in _LISTENERS:
        if values.get(key):
            values[key] += f",{INTERNAL_LISTENER}://127.0.0.1:0"
    if not any(key in values for key in _INTER_BROKER):
        values[_INTER_BROKER[0]] = INTERNAL_LISTENER


def doubts(values: Mapping[str, str]) -> str | None:
    """What is doubtful about the access rules of a node with these keys, for people; None: nothing, or there are none.

    Keys that are refused are not doubted: the node's start says why."""
    if not values.get(AUTHORIZER_KEY, "").strip():
        return None
    try:
        check_security(values)
        config = BrokerConfig(values)
        principals = super_users(config)
        known = _users_known(config)
    except ConfigError:
        return None
    if known is None:
        return None
    strange = [each for each in principals if each.removeprefix(_TYPE) not in known]
    if known:
        strange = [each for each in strange if each != ANONYMOUS]
        return f"nobody can log in as {_listed(strange)}, who is a super user" if strange else None
    who = "no listener asks for a log-in or a certificate, so every client is User:ANONYMOUS"
    if ANONYMOUS in principals:
        return f"{who}, who is a super user: nothing is refused"
    return f"{who}, and nobody is {_listed(strange)}" if strange else who


def _users_known(config: BrokerConfig) -> set[str] | None:
    """The names that clients can log in as; None: there may be others, of certificates or in the journal."""
    known: set[str] = set()
    of_controllers = (config.controller_listener_names or "").upper().split(",")
    for name, protocol in listener_protocols(config.static).items():
        if name in (INTERNAL_LISTENER, *of_controllers):
            continue
        if protocol.startswith("SASL_"):
            settings = listener_settings(config, name)
            if settings.mechanisms != [PLAIN]:
                return None
            known |= settings.plain_users.keys()
        elif protocol == "SSL":
            asked = config.text(listener_key(config, name, None, "ssl.client.auth"))
            if (asked or "none").strip().lower() != "none":
                return None
    return known


def _listed(principals: list[str]) -> str:
    return " or ".join(principals)
