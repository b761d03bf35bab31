"""Builds specs from command-line options, the configuration file and KAFKA_OPTS. No event loop, no sockets.

Precedence of keys, lowest first: the file (--config), -c KEY=VALUE, options that stand for a key
(--port, --listener, …)."""

from __future__ import annotations

import os

from kwire.launch.options import MAX_PORT
from kwire.launch.spec import (
    BROKER,
    ClusterSpec,
    NodeSpec,
    may_ask_for_security,
    rack_overrides,
    split_broker_keys,
)
from kwire.replication.core.types import AUTHORIZER_KEY
from kwire.server.errors import NodeError, SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.config.release import Release

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092


def cluster_spec(
    *,
    config_path: str | None = None,
    overrides: Mapping[str, str],
    host: str | None = None,
    port: int | None = None,
    advertise: str | None = None,
    first_id: int | None = None,
    data_dir: str | None = None,
    racks: tuple[str, ...] = (),
    snapshot: str | None = None,
    **fields: Any,
) -> ClusterSpec:
    """Build the spec of `kwire up`. An option is None when it was not given; `fields` are those of
    ClusterSpec and its NodeSpec, `sasl`, `users`, `tls`, `acl` and `super_users`. SettingsError, NodeError."""
    if snapshot is not None:
        from kwire.snapshots.starting import with_shape

        first_id = with_shape(snapshot, fields, first_id, data_dir)
    given, overrides = overrides, {key: overrides[key] for key in overrides if ":" not in key}
    values = config_values(
        config_path, overrides, host=host, port=port, advertise=advertise, first_id=first_id
    )
    values = _with_acls(with_jaas_file(_with_logins(values, fields)), fields)
    node_id = node_id_of(values)
    _check_one_data_dir(data_dir, overrides)
    directory, temporary = _directory_of(
        data_dir or values.get("log.dirs") or values.get("log.dir")
    )
    own = {name: fields.pop(name) for name in ClusterSpec.fields if name in fields}
    brokers = own.get("brokers", 1)
    if port and port + brokers - 1 > MAX_PORT:
        last = port + brokers - 1
        raise SettingsError(f"--port {port} with {brokers} brokers needs ports up to {last}")
    if racks or len(given) > len(overrides):
        own["overrides"] = _broker_keys(racks, given, values, node_id, brokers)
    node = NodeSpec(
        node_id=node_id, values=values, data_dir=directory, temporary=temporary, **fields
    )
    return ClusterSpec(node=node, **own)


def _directory_of(given: str | None) -> tuple[str, bool]:
    """The data directories, absolute, and whether that is a temporary one, as none is given."""
    if given is not None:
        return absolute_dirs(given), False
    from kwire.server.temporary import new_temporary_path

    return new_temporary_path(), True


def node_spec(
    *,
    config_path: str | None = None,
    listeners: tuple[str, ...] = (),
    data_dir: str | None,
    values: Mapping[str, str],
    **fields: Any,
) -> NodeSpec:
    """Build the spec of `kwire node`. SettingsError, NodeError."""
    if fields["role"] == BROKER and not fields["controllers"]:
        raise SettingsError("--roles broker: --controller ID@HOST:PORT is needed")
    if fields["role"] == BROKER and fields["standby"]:
        raise SettingsError("--standby is for --roles controller")
    overrides = dict(values)
    if listeners:
        overrides["listeners"] = ",".join(listeners)
    elif "listeners" not in overrides and config_path is None:
        overrides["listeners"] = f"PLAINTEXT://{DEFAULT_HOST}:0"
    found = with_jaas_file(config_values(config_path, overrides))
    _check_one_data_dir(data_dir, overrides)
    directory = data_dir or found.get("log.dirs") or found.get("log.dir")
    if directory is None:
        raise SettingsError("--data-dir DIR, or -c log.dirs=DIR,…, is needed")
    for key in ("node.id", "broker.id"):  # the mandatory --id wins
        found.pop(key, None)
    return NodeSpec(values=found, data_dir=absolute_dirs(directory), **fields)


def config_values(
    config_path: str | None,
    overrides: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    advertise: str | None = None,
    first_id: int | None = None,
) -> dict[str, str]:
    """Merge file, overrides and options into a node's configuration, node.id and listeners included.
    SettingsError, NodeError."""
    values: dict[str, str] = {}
    if config_path is not None:
        from kwire.launch.properties import load_properties

        try:
            values.update(load_properties(config_path))
        except OSError as error:
            raise NodeError(f"cannot read {config_path}: {error.strerror}") from None
        except ValueError as error:
            raise SettingsError(str(error)) from None
    values.update(overrides)
    if "node.id" not in values and "broker.id" in values:
        values["node.id"] = values["broker.id"]
    if first_id is not None or "node.id" not in values:
        values["node.id"] = str(1 if first_id is None else first_id)
        values.pop("broker.id", None)
    _check_given_once(
        overrides, {"host": host, "port": port, "advertise": advertise, "first_id": first_id}
    )
    if "listeners" not in values or host is not None or port is not None:
        _check_plaintext(values)
        host = DEFAULT_HOST if host is None else host
        port = DEFAULT_PORT if port is None else port
        values["listeners"] = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
        if "advertised.listeners" not in overrides:
            values.pop("advertised.listeners", None)  # the file's belong to replaced listeners
    if advertise is not None:
        names = [item.partition("://")[0].strip() for item in values["listeners"].split(",")]
        controllers = values.get("controller.listener.names", "").split(",")
        host = f"[{advertise}]" if ":" in advertise else advertise
        values["advertised.listeners"] = ",".join(
            f"{name}://{host}:0" for name in names if name not in controllers
        )
    return values


def with_jaas_file(values: Mapping[str, str]) -> dict[str, str]:
    """A node's keys with those of the JAAS file that KAFKA_OPTS names, if it does. SettingsError."""
    options = os.environ.get("KAFKA_OPTS", "")
    if "java.security.auth.login.config" not in options:
        return dict(values)
    from kwire.server.access import jaas_file

    return dict(jaas_file.with_jaas_file(values, options))


def _with_logins(values: dict[str, str], fields: dict[str, Any]) -> dict[str, str]:
    """The keys with those of `--sasl`, `--user` and `--tls`, which are taken out of `fields`. SettingsError."""
    sasl, users, tls = (fields.pop(name, None) for name in ("sasl", "users", "tls"))
    if sasl is None and not users and tls is None:
        return values
    from kwire.security.options import with_logins

    try:
        return with_logins(values, sasl, users or {}, tls)
    except ValueError as error:
        raise SettingsError(f"--{error}") from None


def _with_acls(values: dict[str, str], fields: dict[str, Any]) -> dict[str, str]:
    """The keys with those of `--acl` and `--super-user`, which are taken out of `fields`. SettingsError."""
    acl, super_users = fields.pop("acl", False), fields.pop("super_users", ())
    if not acl and not super_users:
        return values
    from kwire.security.access_rules import with_acls

    try:
        return with_acls(values, super_users, acl=acl)
    except ValueError as error:
        raise SettingsError(f"--{error}".replace("needs acl", "needs --acl")) from None


def asks_who(values: Mapping[str, str]) -> bool:
    """Whether clients have to say who they are, by a log-in or a certificate, or may do what rules allow."""
    if values.get(AUTHORIZER_KEY):
        return True
    listeners = values.get("listeners", "") + values.get("listener.security.protocol.map", "")
    return "SASL_" in listeners.upper() or any(
        key.endswith("ssl.client.auth") and value.strip().lower() == "required"
        for key, value in values.items()
    )


def check_security(values: Mapping[str, str]) -> None:
    """SettingsError for a key that asks for protection that kwire does not have."""
    if not may_ask_for_security(values):
        return
    from kwire.replication.config import given
    from kwire.replication.config.broker_config import ConfigError

    try:
        given.check_security(values)
    except ConfigError as error:
        raise SettingsError(str(error)) from None


def imitated(as_version: str) -> tuple[dict[int, tuple[int, int]], Release]:
    """API key → (min, max) version of a release of Kafka's, and its keys. SettingsError if unknown."""
    from kwire.apis.releases import release_ranges
    from kwire.replication.config.release import Release

    try:
        return release_ranges(as_version), Release(as_version)
    except ValueError as error:
        raise SettingsError(f"--as-version: {error}") from None


def ignored_keys(config: BrokerConfig) -> tuple[dict[str, str | None], list[str]]:
    """The given keys that Kafka does not know, each with the one that may have been meant; and those
    that have no effect in kwire."""
    from kwire.replication.config.broker_config import acts_on_broker_key

    if all(acts_on_broker_key(key) for key in config.static):
        return {}, []
    from kwire.replication.config.given import is_known_key, keys_without_effect, similar_key

    unknown = [key for key in config.unknown_keys() if not is_known_key(key)]
    return {key: similar_key(key) for key in unknown}, keys_without_effect(config)


def warn_about_keys(config: BrokerConfig, written: Mapping[str, str] | None = None) -> None:
    """Log a warning for each key that Kafka does not know, one for all that have no effect, and one for doubtful rules.

    `written`: how the keys were written, if not as they are called: the variable of each."""
    unknown, unused = ignored_keys(config)
    has_rules = AUTHORIZER_KEY in config.static
    if not unknown and not unused and not has_rules:
        return
    import logging

    from kwire.server.events import NodeEvent
    from kwire.server.logs import event

    log, names = logging.getLogger(__name__), written or {}
    if has_rules:
        from kwire.security.access_rules import doubts

        if (doubt := doubts(config.static)) is not None:
            event(log, NodeEvent.ACCESS_RULES_DOUBTFUL, detail=doubt)
    for key, meant in unknown.items():
        suggestion = meant and names.get(meant, meant)
        event(log, NodeEvent.UNKNOWN_CONFIG_KEY, key=names.get(key, key), suggestion=suggestion)
    if unused:
        from kwire.replication.config.given import instead_of

        keys = [names.get(key, key) for key in unused]
        event(log, NodeEvent.CONFIG_WITHOUT_EFFECT, keys=keys, suggestion=instead_of(unused))


def _check_given_once(overrides: Mapping[str, str], options: Mapping[str, object]) -> None:
    """SettingsError when an option and a -c of the command line give the same thing twice. Keys of
    the file are overridden by both."""
    keys = {"host": "listeners", "port": "listeners", "advertise": "advertised.listeners"}
    for name, value in options.items():
        for key in (keys[name],) if name in keys else ("node.id", "broker.id"):
            if value is not None and key in overrides and overrides[key] != str(value):
                option = f"--{name.replace('_', '-')} {value}"
                raise SettingsError(f"{option} and -c {key}={overrides[key]}: give one of them")


def _check_plaintext(values: Mapping[str, str]) -> None:
    """SettingsError for listeners that --host or --port would replace by a plaintext one, and that kwire
    refuses otherwise."""
    if "listeners" not in values:
        return
    from kwire.replication.config.broker_config import BrokerConfig, ConfigError
    from kwire.server.listeners import parse_listeners

    try:
        secure = [each for each in parse_listeners(BrokerConfig(values)) if not each.is_plaintext]
    except ConfigError as error:
        raise SettingsError(str(error)) from None
    if secure:
        raise SettingsError(f"--host or --port would replace {secure[0]} by a plaintext one")


def node_id_of(values: Mapping[str, str]) -> int:
    """Parse node.id. SettingsError."""
    from kwire.replication.config.broker_config import ConfigError, parse_value
    from kwire.replication.config.table import BROKER_KEYS

    try:
        return int(str(parse_value("node.id", BROKER_KEYS["node.id"], values["node.id"])))
    except ConfigError as error:
        raise SettingsError(str(error)) from None


def _check_one_data_dir(data_dir: str | None, overrides: Mapping[str, str]) -> None:
    """SettingsError when the command line gives the log directories twice. Those of the file are
    overridden like any other key."""
    also = overrides.get("log.dirs") or overrides.get("log.dir")
    if data_dir and also:
        raise SettingsError(f"--data-dir {data_dir} and -c log.dirs={also}: give one of them")


def _broker_keys(
    racks: tuple[str, ...],
    given: Mapping[str, str],
    values: dict[str, str],
    first_id: int,
    brokers: int,
) -> dict[int, dict[str, str]]:
    """The keys of single brokers: their racks, and `-c 2:log.retention.ms=1`. Those of a standalone
    broker are added to `values`. SettingsError."""
    overrides = _rack_overrides(racks, given, first_id, brokers)
    try:
        common, by_broker = split_broker_keys(given, first_id, brokers)
    except ValueError as error:
        raise SettingsError(f"-c {error}") from None
    values.update((key, value) for key, value in common.items() if ":" in key)  # a strange key
    for broker_id, keys in by_broker.items():
        check_security(keys)
        overrides[broker_id] = {**overrides.get(broker_id, {}), **keys}
    if brokers == 1:
        values.update(overrides.get(first_id, {}))
    return overrides


def _rack_overrides(
    racks: tuple[str, ...], overrides: Mapping[str, str], first_id: int, brokers: int
) -> dict[int, dict[str, str]]:
    also = overrides.get("broker.rack")
    if racks and also is not None:
        raise SettingsError(f"--rack and -c broker.rack={also}: give one of them")
    try:
        return rack_overrides(racks, first_id, brokers)
    except ValueError as error:
        raise SettingsError(f"--rack: {error}") from None


def absolute_dirs(data_dir: str) -> str:
    """Make each of the comma-separated log directories absolute. SettingsError when the list is
    empty or names one twice."""
    from kwire.server.log_dirs import join_dirs, split_dirs

    return join_dirs(split_dirs(data_dir))
