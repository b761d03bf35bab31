"""The options of `kwire up` and what they make of the configuration; no event loop, no sockets."""

from __future__ import annotations

from kwire.server.errors import NodeError, SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kwire.broker import Broker
    from kwire.control.routes import Handler
    from kwire.control.socket import ControlSocket
    from kwire.launch.supervisor import Supervisor
    from kwire.server.node import Node

    MakeControl = Callable[[Supervisor], Handler]
    OpenControl = Callable[[Node, Broker], Awaitable[ControlSocket]]


DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092


class UpSettings:
    """The options of `kwire up`; None where an option was not given."""

    __slots__ = (
        "advertise",
        "announce",
        "as_version",
        "brokers",
        "cluster_id",
        "config_path",
        "control_port",
        "controllers",
        "data_dir",
        "first_id",
        "host",
        "isolation",
        "log_json",
        "log_level",
        "make_control",
        "open_control",
        "overrides",
        "port",
        "ready_file",
        "recent_requests",
        "topic_configs",
        "topics",
    )

    def __init__(
        self,
        *,
        host: str | None = None,
        port: int | None = None,
        advertise: str | None = None,
        data_dir: str | None = None,
        config_path: str | None = None,
        overrides: dict[str, str] | None = None,
        topics: list[tuple[str, int, int]] | None = None,
        as_version: str | None = None,
        ready_file: str | None = None,
        first_id: int | None = None,
        brokers: int = 1,
        controllers: int = 1,
        isolation: str = "thread",
        log_level: str = "info",
        log_json: bool = False,
        cluster_id: str | None = None,
        announce: Callable[[str], None] | None = None,
        topic_configs: dict[str, dict[str, str]] | None = None,
        control_port: int | None = None,
        make_control: MakeControl | None = None,
        open_control: OpenControl | None = None,
        recent_requests: bool = False,
    ) -> None:
        """`overrides`: configuration keys from -c. `topics`: name, partitions, replication (-1: default).

        `control_port`: of the control API; None: a cluster's is the kernel's choice, a broker alone has none.
        `make_control`: what answers there, of a supervisor; `open_control`: opens that of a container's broker.
        `recent_requests`: brokers keep them (kwire.recent).
        `announce` is told the bootstrap servers when the node is ready; None: the ready line on stdout."""
        self.control_port = control_port
        self.make_control = make_control
        self.open_control = open_control
        self.recent_requests = recent_requests
        self.cluster_id = cluster_id
        self.announce = announce
        self.topic_configs = topic_configs or {}
        self.brokers = brokers
        self.controllers = controllers
        self.isolation = isolation
        self.host = host
        self.port = port
        self.advertise = advertise
        self.data_dir = data_dir
        self.config_path = config_path
        self.overrides = overrides or {}
        self.topics = topics or []
        self.as_version = as_version
        self.ready_file = ready_file
        self.first_id = first_id
        self.log_level = log_level
        self.log_json = log_json


def config_values(settings: UpSettings) -> dict[str, str]:
    """Keys and texts of the node's configuration: the file, then -c, then the options. SettingsError, NodeError."""
    values: dict[str, str] = {}
    if settings.config_path is not None:
        from kwire.launch.properties import load_properties

        try:
            values.update(load_properties(settings.config_path))
        except OSError as error:
            raise NodeError(f"cannot read {settings.config_path}: {error.strerror}") from None
        except ValueError as error:
            raise SettingsError(str(error)) from None
    values.update(settings.overrides)
    if "node.id" not in values and "broker.id" in values:
        values["node.id"] = values["broker.id"]
    if settings.first_id is not None or "node.id" not in values:
        values["node.id"] = str(1 if settings.first_id is None else settings.first_id)
        values.pop("broker.id", None)
    if "listeners" not in values or settings.host is not None or settings.port is not None:
        host = DEFAULT_HOST if settings.host is None else settings.host
        port = DEFAULT_PORT if settings.port is None else settings.port
        values["listeners"] = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
        if "advertised.listeners" not in settings.overrides:
            values.pop("advertised.listeners", None)  # the file's, of listeners that are no more
    if settings.advertise is not None:
        names = [item.partition("://")[0].strip() for item in values["listeners"].split(",")]
        controllers = values.get("controller.listener.names", "").split(",")
        host = f"[{settings.advertise}]" if ":" in settings.advertise else settings.advertise
        values["advertised.listeners"] = ",".join(
            f"{name}://{host}:0" for name in names if name not in controllers
        )
    return values


def check_one_data_dir(data_dir: str | None, overrides: dict[str, str]) -> None:
    """SettingsError when the command line names the log directories twice. A file's are overridden as any key is."""
    also = overrides.get("log.dirs") or overrides.get("log.dir")
    if data_dir and also:
        raise SettingsError(f"--data-dir {data_dir} and -c log.dirs={also}: give one of them")


def data_dir_of(settings: UpSettings, values: dict[str, str]) -> tuple[str, bool]:
    """The log directory's absolute path, those of several with commas between, and whether it is a temporary one
    (`temporary.py`, yet to be made)."""
    check_one_data_dir(settings.data_dir, settings.overrides)
    given = settings.data_dir or values.get("log.dirs") or values.get("log.dir")
    if given is None:
        from kwire.server.temporary import new_temporary_path

        return new_temporary_path(), True
    from kwire.server.log_dirs import join_dirs, split_dirs

    return join_dirs(split_dirs(given)), False
