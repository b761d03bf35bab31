"""Checks the arguments of `Cluster`, makes its nodes, and translates internal errors to kwire.errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from kwire import errors
from kwire.client.admin import NoBrokerError
from kwire.control.known import known_name
from kwire.launch.spec import (
    DOCKER,
    MAX_CONTROLLERS,
    PROCESS,
    THREAD,
    ClusterSpec,
    NodeSpec,
    may_ask_for_security,
    rack_overrides,
    split_broker_keys,
)
from kwire.launch.supervisor import Supervisor
from kwire.names import did_you_mean
from kwire.protocol.errors import KafkaError
from kwire.replication.config.broker_config import (
    BrokerConfig,
    ConfigError,
    acts_on_broker_key,
)
from kwire.replication.config.users import is_secret
from kwire.replication.core.types import AUTHORIZER_KEY, TLS_KEY, USERS_KEY
from kwire.server.errors import NodeError, SettingsError
from kwire.server.log_dirs import join_dirs, split_dirs
from kwire.server.ports import ReservedPorts
from kwire.server.temporary import TemporaryDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from types import TracebackType
    from typing import Any

    from kwire.snapshots.saved import Snapshot

_MAX_BROKERS = 100
_LISTENERS = "PLAINTEXT://127.0.0.1:{port}"
_LOCKS = {AUTHORIZER_KEY, TLS_KEY, USERS_KEY}
_UNLOCKED = (None, None, False, False, False, ())
_DIRECTORIES_AT_ONCE = 16  # deleted between two turns of the event loop


def spec_of(
    brokers: int,
    controllers: int,
    isolation: str,
    overrides: Mapping[int, Mapping[str, str]],
    values: Mapping[str, str],
    locks: tuple[object, object, object, object, object, object] = _UNLOCKED,
    *,
    fast: object = False,
    **node: Any,
) -> ClusterSpec:
    """The spec of a cluster. `overrides`: keys of single brokers; `values`: of all, "2:KEY" of
    broker 2. `locks`: the arguments sasl, users, tls, mtls, acl, super_users. `node`: more of its NodeSpec.
    ConfigurationError."""
    if any(":" in key for key in values) and isinstance(brokers, int):
        try:
            values, own = split_broker_keys(values, 1, brokers)
        except ValueError as error:
            raise errors.ConfigurationError(f"config: {error}") from None
        ids = overrides.keys() | own.keys()
        overrides = {each: {**overrides.get(each, {}), **own.get(each, {})} for each in ids}
    if any(each is not None and each is not False and each not in ({}, ()) for each in locks):
        from kwire.security.arguments import with_locks

        if isolation == DOCKER:
            from kwire.backends.inside.doors import check_keys

            check_keys(values)
        values = with_locks(values, *locks)
    checked = _checked_flag("fast", fast)
    return ClusterSpec(
        brokers=brokers,
        controllers=controllers,
        isolation=isolation,
        overrides=overrides,
        node=NodeSpec(node_id=1, log_level="warning", values=values, fast=checked, **node),
    )


class NodeLauncher:
    """Makes the supervisor of a cluster from checked options, and owns its data directory."""

    def __init__(self, spec: ClusterSpec, data_dir: str | os.PathLike[str] | None) -> None:
        """`spec`: has the caller's keys but no directory yet. ConfigurationError when refused."""
        brokers, controllers, isolation = spec.brokers, spec.controllers, spec.isolation
        config = dict(spec.node.values)
        if isolation not in (THREAD, PROCESS):
            raise errors.ConfigurationError(
                f'isolation: expected "thread", "process" or "docker", not {isolation!r}'
            )
        checked_controllers(controllers)
        if not isinstance(data_dir, str | PathLike | None):
            raise errors.ConfigurationError(f"data_dir: expected a path, not {data_dir!r}")
        values = {"listeners": _LISTENERS.format(port=0), **config}
        first, comma, rest = values["listeners"].partition(",")
        self._chooses_ports = first.endswith("://127.0.0.1:0") and (
            "listeners" not in config or not _LOCKS.isdisjoint(config)
        )
        self._template = f"{first.removesuffix('0')}{{port}}{comma}{rest}"
        self.spec = spec.replace(node=spec.node.replace(values=values))
        self._data_dir: str | None = None if data_dir is None else str(Path(data_dir).absolute())
        given = config.get("log.dirs") or config.get("log.dir")
        if data_dir is not None and given:
            raise errors.ConfigurationError(
                f"data_dir={str(data_dir)!r} and log.dirs {given!r} in config: give one of them"
            )
        if given:
            with kwire_errors():
                self._data_dir = join_dirs(split_dirs(given))
        self._temporary: TemporaryDirectory | None = None
        self._ports: ReservedPorts | None = None
        self.snapshot: Snapshot | None = None
        """What the cluster starts with; None: with what is in its directory."""
        more = f", controllers={controllers}" if controllers != 1 else ""
        more += ", fast=True" if spec.node.fast else ""
        config = {key: "[hidden]" if is_secret(key) else text for key, text in config.items()}
        self.call = f"Cluster(brokers={brokers}, config={config}, isolation={isolation!r}{more})"
        check_configs(spec, values)

    def prepare(self) -> Supervisor:
        """Make the directory and the nodes, not yet started. StartError."""
        directory = self._data_dir
        if directory is None:
            try:
                self._temporary = TemporaryDirectory()
            except OSError as error:
                text = f"temporary directory: {error.filename}: {error.strerror}"
                raise errors.StartError(text) from None
            directory = self._temporary.path
            if self.snapshot is not None:
                directory = self.snapshot.dirs_below(directory)
        node = self.spec.node.replace(data_dir=directory, temporary=self._temporary is not None)
        if not logging.getLogger("kwire").hasHandlers():
            node = node.replace(log_level="error")  # in child processes as here: see logs.write
        spec = self.spec.replace(node=node, overrides=self._listeners())
        if self.snapshot is not None:
            from kwire.snapshots.restoring import fill_new

            with kwire_errors():
                fill_new(directory, self.snapshot)
        if TLS_KEY in node.values:
            with kwire_errors():
                spec = spec.with_certificates("tls=True")
        return Supervisor(spec)

    def _listeners(self) -> dict[int, Mapping[str, str]]:
        """The overrides of the brokers' keys, with a reserved port for each unless ports are given."""
        overrides = dict(self.spec.overrides)
        if self._chooses_ports:
            first, count = self.spec.node.node_id, self.spec.brokers
            self._ports = ReservedPorts(count)
            for broker_id, port in zip(
                range(first, first + count), self._ports.numbers, strict=True
            ):
                listeners = {"listeners": self._template.format(port=port)}
                overrides[broker_id] = {**listeners, **overrides.get(broker_id, {})}
        return overrides

    async def clean_up(self) -> None:
        """Remove the temporary directory and release the ports, if any. Other clusters on the loop
        run meanwhile."""
        ports, self._ports = self._ports, None
        if ports is not None:
            ports.release()
        temporary, self._temporary = self._temporary, None
        if temporary is None:
            return
        try:
            for number, _ in enumerate(temporary.removal()):
                if number % _DIRECTORIES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            temporary.remove()  # the rest, after a cancellation


def checked_controllers(controllers: object) -> int:
    """Check the number of controllers and return it. ConfigurationError."""
    if isinstance(controllers, bool) or not isinstance(controllers, int) or controllers < 1:
        raise errors.ConfigurationError(
            f"controllers: expected a number from 1, not {controllers!r}"
        )
    if controllers > MAX_CONTROLLERS:
        raise errors.ConfigurationError(
            f"controllers: at most {MAX_CONTROLLERS}, not {controllers}"
        )
    return controllers


def checked_racks(racks: object, brokers: object) -> dict[int, dict[str, str]]:
    """The configuration keys of each broker that these racks give it. ConfigurationError."""
    if isinstance(racks, str) or not isinstance(racks, Sequence):
        raise errors.ConfigurationError(f'racks: expected names, ["a", "b"], not {racks!r}')
    for rack in racks:
        check_name("racks", rack)
    try:
        return rack_overrides(racks, 1, brokers) if isinstance(brokers, int) else {}
    except ValueError as error:
        raise errors.ConfigurationError(f"racks: {error}") from None


def check_configs(spec: ClusterSpec, values: dict[str, str]) -> None:
    """Check the configuration of all brokers, and of those that have keys of their own."""
    check_config(spec.brokers, values)
    if AUTHORIZER_KEY in values:
        from kwire.security.access_rules import doubts

        if (doubt := doubts(values)) is not None:
            import warnings

            warnings.warn(f"access rules: {doubt}", stacklevel=6)
    for own in spec.overrides.values():
        check_config(spec.brokers, {**values, **own})


def check_config(brokers: int, values: dict[str, str]) -> None:
    """Check the configuration; warn of keys that are not known or have no effect. ConfigurationError."""
    if isinstance(brokers, bool) or not isinstance(brokers, int) or brokers < 1:
        raise errors.ConfigurationError(f"brokers: expected a number from 1, not {brokers!r}")
    if brokers > _MAX_BROKERS:
        raise errors.ConfigurationError(f"brokers: at most {_MAX_BROKERS}, not {brokers}")
    if may_ask_for_security(values):
        from kwire.launch.configuration import check_security

        with kwire_errors():
            check_security(values)
    try:
        config = BrokerConfig({**values, "node.id": "1"}, brokers=brokers)
    except ConfigError as error:
        raise errors.ConfigurationError(str(error)) from None
    if all(acts_on_broker_key(key) for key in values):
        return
    from kwire.launch.configuration import ignored_keys

    unknown, unused = ignored_keys(config)
    if unknown or unused:
        import warnings

        named = ", ".join(
            key if meant is None else f"{key} (did you mean {meant}?)"
            for key, meant in unknown.items()
        )
        if named:
            text = f"Kafka does not know these configuration keys, they are ignored: {named}"
            warnings.warn(text, stacklevel=7)
        if unused:
            from kwire.replication.config.given import instead_of

            text = f"these configuration keys have no effect in kwire: {', '.join(unused)}"
            text += f"; {instead}" if (instead := instead_of(unused)) else ""
            warnings.warn(text, stacklevel=7)


def config_texts(config: Mapping[str, object] | None) -> dict[str, str]:
    """Convert configuration values to Kafka's notation. ConfigurationError unless a mapping."""
    if config is None:
        return {}
    if not hasattr(config, "items"):
        raise errors.ConfigurationError(f"config: expected keys and values, not {config!r}")
    texts = {}
    for key, value in config.items():
        check_name("config: a key", key)
        if isinstance(value, bool):
            texts[key] = str(value).lower()
        elif isinstance(value, list | tuple):
            texts[key] = ",".join(map(str, value))
        else:
            texts[key] = str(value)
    return texts


def parse_topics(topics: Iterable[str] | Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Name, partitions, replication factor of each topic; -1: default. ConfigurationError."""
    if isinstance(topics, str):
        topics = [topics]
    if not hasattr(topics, "__iter__"):
        raise errors.ConfigurationError(f"topics: expected names, not {topics!r}")
    parsed = []
    items = (
        [f"{name}:{count}" for name, count in topics.items()]
        if hasattr(topics, "items")
        else topics
    )
    for item in items:
        name, *numbers = item.split(":") if isinstance(item, str) else [""]
        counts = [int(number) for number in numbers if number.isascii() and number.isdigit()]
        if not name or len(numbers) > 2 or len(counts) < len(numbers) or 0 in counts:
            raise errors.ConfigurationError(
                f"topics: expected NAME[:PARTITIONS[:REPLICATION]], not {item!r}"
            )
        partitions, replication = [*counts, -1, -1][:2]
        parsed.append((name, partitions, replication))
    return parsed


def check_name(what: str, value: object) -> None:
    """ConfigurationError unless `value` is a text."""
    if not isinstance(value, str):
        raise errors.ConfigurationError(f"{what}: expected a text, not {value!r}")


def check_number(what: str, value: object) -> None:
    """ConfigurationError unless `value` is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise errors.ConfigurationError(f"{what}: expected a whole number, not {value!r}")


def _checked_flag(what: str, value: object) -> bool:
    """Check a flag and return it. ConfigurationError."""
    if not isinstance(value, bool):
        raise errors.ConfigurationError(f"{what}: expected True or False, not {value!r}")
    return value


def check_assignment(assignment: object) -> None:
    """ConfigurationError unless `assignment` is a list of lists of broker ids."""
    if (
        not assignment
        or not isinstance(assignment, list | tuple)
        or not all(
            isinstance(replicas, list | tuple)
            and all(isinstance(broker, int) for broker in replicas)
            for replicas in assignment
        )
    ):
        raise errors.ConfigurationError(
            f"assignment: expected the brokers of each partition, [[1, 2], …], not {assignment!r}"
        )


def known(what: str, kind: str, name: str | None) -> str | None:
    """A name as kwire writes it (`kwire.control.known`). `what`: the argument. ConfigurationError."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise errors.ConfigurationError(f"{what}: expected the name of an {kind}, not {name!r}")
    try:
        return known_name(kind, name)
    except ValueError as error:
        raise errors.ConfigurationError(f"{what}: {error}") from None


def unknown_topic(
    topic: str, counts: Mapping[str, int], partition: int | None = None
) -> errors.UnknownTopicOrPartitionError:
    """The error about a topic or partition that does not exist, with a topic that may have been meant.

    `counts`: every topic with its partition count."""
    name = f"topic {topic[:100]}" if partition is None else f"partition {topic[:100]}-{partition}"
    text = f"there is no {name}"
    if topic not in counts:
        text += did_you_mean(topic, counts, 0.7)
    kind = errors.UnknownTopicOrPartitionError
    return kind(f"{text} ({kind.kafka_error})")


class kwire_errors:
    """A context manager that translates NodeError, KafkaError and the like to kwire.errors.

    `about`: prefix of their texts."""

    __slots__ = ("_prefix",)

    def __init__(self, about: str = "") -> None:
        self._prefix = about + ": " if about else ""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KafkaError):
            text = self._prefix + (error.message or "refused")
            raise errors.refused(error.code.name, text) from None
        if isinstance(error, SettingsError):
            raise errors.ConfigurationError(f"{self._prefix}{error}") from None
        if isinstance(error, NodeError):
            raise errors.StartError(f"{self._prefix}{error}") from None
        if isinstance(error, NoBrokerError):
            raise errors.BrokerNotAvailableError(f"{self._prefix}{error}") from None
