"""A JAAS file (`java.security.auth.login.config` in KAFKA_OPTS) as Kafka's keys of log-ins.

Answers to org.apache.kafka.common.security.JaasContext: a key `listener.name.x.mechanism.sasl.jaas.config` wins, else
the file's section "x.KafkaServer" (the listener's name in lower case), else "KafkaServer". As in Kafka the file is not
read if no listener needs it. All login modules of a section log in; only Kafka's own can be had.
"""

from __future__ import annotations

import shlex

from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kwire.security.jaas import Module

    Sections = Mapping[str, list[Module]]

VARIABLE = "KAFKA_OPTS"
_PROPERTY = "java.security.auth.login.config"
_SECTION = "KafkaServer"
_KNOWN = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")
_LOGIN = ("username", "password")


def with_jaas_file(values: Mapping[str, str], options: str | None) -> Mapping[str, str]:
    """A node's keys with those of the JAAS file that Java's options name. `options`: of KAFKA_OPTS.

    Users that are given (`--user`) need no file. SettingsError with one line."""
    path = None if options is None else _path(options)
    if path is None:
        return values
    from kwire.replication.core.types import USERS_KEY

    wanted = [] if USERS_KEY in values else list(_wanted(values))
    if not wanted:
        return values
    said = f"{VARIABLE}: {_PROPERTY}={path}"
    sections = _read(path, said)
    found = dict(values)
    for listener, mechanism, key in wanted:
        names = [f"{listener.lower()}.{_SECTION}", _SECTION]
        name = next((name for name in names if name in sections), None)
        if name is None:
            expected = " or ".join(names)
            there = ", ".join(sections) or "none"
            raise SettingsError(f"{said}: expected a section {expected}, there is {there}")
        module = _module(sections[name], mechanism, f"{said}: section {name}")
        found[key] = module.to_text()
    return found


def _path(options: str) -> str | None:
    """The file that Java's options name; of several the last one, as in Java. None: none."""
    try:
        words = shlex.split(options)
    except ValueError:
        words = options.split()
    found = None
    for word in words:
        name, equals, path = word.partition("=")
        if name == f"-D{_PROPERTY}" and equals:
            found = path.removeprefix("=").removeprefix("file://").removeprefix("file:")
    return found


def _wanted(values: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Listener, mechanism and key of each log-in whose modules no key gives."""
    if "SASL_" not in values.get("listeners", "") + values.get(
        "listener.security.protocol.map", ""
    ):
        return
    from kwire.replication.config.broker_config import BrokerConfig, ConfigError
    from kwire.security.options import listener_protocols
    from kwire.security.settings import MODULES, jaas_key, listener_key
    from kwire.server.listeners import controller_names, protocol_of

    try:
        config = BrokerConfig(values)
        wanted = {
            name: config.text(listener_key(config, name, None, "sasl.enabled.mechanisms"))
            for name, protocol in listener_protocols(values).items()
            if protocol.startswith("SASL_")
        }
        for name in controller_names(config):  # of other nodes, if it is not a listener here
            if protocol_of(config, name).startswith("SASL_"):
                wanted.setdefault(name, config.text("sasl.mechanism.controller.protocol"))
    except ConfigError:
        return  # the node's start says why
    for name, text in wanted.items():
        for mechanism in (each.strip() for each in (text or "").split(",")):
            key = jaas_key(name, mechanism)
            if mechanism in MODULES and key not in values:
                yield name, mechanism, key


def _read(path: str, said: str) -> Sections:
    from kwire.security.jaas import parse_sections

    try:
        with open(path, encoding="utf-8") as file:
            return parse_sections(file.read())
    except OSError as error:
        raise SettingsError(f"{said}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:  # UnicodeDecodeError, too
        reason = "it is no text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise SettingsError(f"{said}: {reason}") from None


def _module(modules: list[Module], mechanism: str, said: str) -> Module:
    """The login module of a mechanism, made of a section's. Name and password may be those of another one, as in Kafka.
    SettingsError."""
    from kwire.security.jaas import Module
    from kwire.security.settings import MODULES

    for module in modules:
        if module.name not in _KNOWN:
            kerberos = " (Kerberos)" if module.name == "Krb5LoginModule" else ""
            raise SettingsError(f"{said}: kwire has no {module.name}{kerberos}")
    if not modules:
        raise SettingsError(f"{said}: it names no login module")
    own = [module for module in modules if module.name == MODULES[mechanism]]
    options: dict[str, str] = {}
    for module in own:
        options = {**module.options, **options}
    for module in modules:
        if not options.keys() & set(_LOGIN):
            options.update((key, module.options[key]) for key in _LOGIN if key in module.options)
    return Module(MODULES[mechanism], options)
