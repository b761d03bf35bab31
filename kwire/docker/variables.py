"""Environment variables of a container: Kafka's rule for names, kwire's own, unknown ones. No I/O.

Corresponds to kafka.docker.KafkaDockerWrapper (apache/kafka): `KAFKA_NUM_PARTITIONS` is
`num.partitions`.
"""

from __future__ import annotations

from kwire.launch.configuration import check_security
from kwire.launch.options import FLAG, NUMBER
from kwire.launch.spec import ClusterSpec, NodeSpec
from kwire.replication.config.broker_config import (
    ConfigError,
    broker_key,
    parse_value,
)
from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from kwire.launch.options import Option, Spec

PREFIX, OWN_PREFIX = "KAFKA_", "KWIRE_"

# Variables of the scripts around the broker, in both images; and kwire's own.
_EXCLUDED = frozenset(
    (
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_PORT",
        "KAFKA_HOME",
        "KAFKA_CREATE_TOPICS",
        "KAFKA_CREATE_TOPICS_SEPARATOR",
        "KAFKA_CLUSTER_ID",
    )
)
# What Kubernetes and Docker's links set for a service named "kafka".
_SERVICE = ("KAFKA_SERVICE_HOST", "KAFKA_SERVICE_PORT", "KAFKA_PORT", "KAFKA_ENV_")
# Set for others, or for tools that run in the container.
_OWN = (
    "KWIRE_ACL",
    "KWIRE_BOOTSTRAP",
    "KWIRE_CA",
    "KWIRE_CERT",
    "KWIRE_CERT_KEY",
    "KWIRE_CONTROL",
    "KWIRE_CONTROLLER_DIR",
    "KWIRE_CONTROL_HOSTS",
    "KWIRE_CONTROL_PORT",
    "KWIRE_CONTROL_TOKEN",
    "KWIRE_HEALTH_FILE",
    "KWIRE_LOG_LEVEL",
    "KWIRE_MTLS",
    "KWIRE_RACKS",
    "KWIRE_RUNTIME_DIR",
    "KWIRE_SUPER_USERS",
    "KWIRE_TLS",
)
_SPECIAL = ("KAFKA_CREATE_TOPICS", "KAFKA_CLUSTER_ID")
_MEANT = {
    "KAFKA_TOPICS": "KAFKA_CREATE_TOPICS",
    "KWIRE_CREATE_TOPICS": "KAFKA_CREATE_TOPICS",
    "KWIRE_PORT": "KAFKA_LISTENERS",
    "KWIRE_TOPICS": "KAFKA_CREATE_TOPICS",
}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def property_name(variable: str) -> str | None:
    """The configuration key of an environment variable; None if it has none.

    Kafka's rule: without KAFKA_, in lower case, `_` a dot, `__` an underscore, `___` a dash."""
    if not variable.startswith(PREFIX) or variable in _EXCLUDED:
        return None
    if variable.startswith(("KAFKA_CONFLUENT_SUPPORT_", *_SERVICE)):
        return None
    name = variable.replace(PREFIX, "").lower()
    return name.replace("_", ".").replace("...", "-").replace("..", "_") or None


def variable_of(key: str) -> str:
    """The variable of a configuration key."""
    return PREFIX + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def configuration(environ: Mapping[str, str]) -> dict[str, str]:
    """Configuration keys and values from the environment.

    SettingsError, naming the variable, for an invalid value."""
    values: dict[str, str] = {}
    for variable in sorted(environ):
        key = property_name(variable)
        if key is None:
            continue
        value = environ[variable]
        row = broker_key(key)
        if row is not None:
            try:
                parse_value(key, row, value)
            except ConfigError as error:
                raise SettingsError(f"{variable}: {error}") from None
        try:
            check_security({key: value})
        except SettingsError as error:
            raise SettingsError(f"{variable}: {error}") from None
        values[key] = value
    return values


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """KAFKA_… and KWIRE_… variables without a meaning, each with the one that may have been meant."""
    found: dict[str, str | None] = {}
    for variable in sorted(environ):
        key = property_name(variable)
        if key is not None and not _is_known(key):
            found[variable] = _similar_kafka_variable(variable, key)
        elif variable.startswith(OWN_PREFIX) and variable not in own_names():
            found[variable] = _similar(variable, own_names(), 0.7)
    return found


def _similar_kafka_variable(variable: str, key: str) -> str | None:
    special = _similar(variable, _SPECIAL, 0.85)
    if special is not None:
        return special
    from kwire.replication.config.given import similar_key

    meant = key.removeprefix("cfg.")  # Bitnami's prefix
    known = meant if broker_key(meant) is not None else similar_key(meant)
    return None if known is None else variable_of(known)


def _similar(variable: str, known: Sequence[str], least: float) -> str | None:
    if variable in _MEANT:
        return _MEANT[variable]
    from difflib import get_close_matches

    close = get_close_matches(variable, known, 1, least)
    return close[0] if close else None


def _is_known(key: str) -> bool:
    if broker_key(key) is not None:
        return True
    from kwire.replication.config.given import is_known_key

    return is_known_key(key)


def written_as(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable of each configuration key that the environment gives."""
    keys = {variable: property_name(variable) for variable in environ}
    return {key: variable for variable, key in keys.items() if key is not None}


def own_names() -> list[str]:
    """All KWIRE_… variables that have a meaning in the image."""
    options = [field for spec in (NodeSpec, ClusterSpec) for field in spec.fields.values()]
    return sorted({*_OWN, *(field.variable for field in options if field.variable)})


def in_variables(text: str) -> str:
    """The text of a failure with variables in place of the options of `kwire up`."""
    flags = {"--topic": "KAFKA_CREATE_TOPICS", "--first-id": "KAFKA_NODE_ID"}
    flags |= {"--log-level": "KWIRE_LOG_LEVEL", "--control-port": "KWIRE_CONTROL_PORT"}
    flags |= {"--tls": "KWIRE_TLS", "--mtls": "KWIRE_MTLS", "--acl": "KWIRE_ACL"}
    for spec in (NodeSpec, ClusterSpec):
        flags |= {field.flag: field.variable for field in spec.fields.values() if field.variable}
    text = text.replace("--topic ", "KAFKA_CREATE_TOPICS: ")
    for flag, variable in flags.items():
        text = text.replace(f"{flag} ", f"{variable}=").replace(flag, variable)
    return text


def own_values(spec: type[Spec], environ: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a spec that are given by their KWIRE_… variable. SettingsError."""
    found: dict[str, Any] = {}
    for name, field in spec.fields.items():
        text = environ.get(field.variable, "").strip() if field.variable else ""
        if text:
            found[name] = option_value(field, field.variable, text)
    return found


def option_value(field: Option, variable: str, text: str) -> Any:
    """The value of an option from the text of its variable. SettingsError."""
    if field.kind == NUMBER:
        return number(variable, text, field.least or 0, field.most)
    if field.kind == FLAG:
        return flag(variable, text)
    if field.choices and text.lower() not in field.choices:
        expected = f"{', '.join(field.choices[:-1])} or {field.choices[-1]}"
        raise SettingsError(f"{variable}={text[:40]}: expected {expected}")
    return text.lower() if field.choices else text


def flag(variable: str, text: str) -> bool:
    """Parse the flag in a KWIRE_… variable; "" is false. SettingsError."""
    word = text.strip().lower()
    if word and word not in _TRUE + _FALSE:
        raise SettingsError(f"{variable}={text[:40]}: expected true or false")
    return word in _TRUE


def number(variable: str, text: str, least: int, most: int | None) -> int:
    """Parse the number in a KWIRE_… variable; `most` None: no limit. SettingsError."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if value < least or (most is not None and value > most):
        allowed = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise SettingsError(f"{variable}={text[:40]}: expected a number {allowed}")
    return value
