"""What every driver of a node (`up.py`, `node_runner.py`) makes in the same way from its configuration."""

from __future__ import annotations

from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.server.errors import SettingsError
from kwire.server.listeners import SECURITY_PROTOCOLS
from kwire.server.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.metadata import Endpoint

    Ranges = dict[int, tuple[int, int]]


def configured(
    values: dict[str, str], as_version: str | None, *, brokers: int = 1
) -> tuple[BrokerConfig, Node, Ranges | None]:
    """The configuration, a node that is not bound yet, and the API versions of the release to pass for.

    SettingsError for what is refused. `brokers`: the cluster's size."""
    try:
        config = BrokerConfig(values, brokers=brokers)
        node = Node(config)
        if as_version is None:
            return config, node, None
        from kwire.apis.releases import release_ranges

        return config, node, release_ranges(as_version)
    except ConfigError as error:
        raise SettingsError(str(error)) from None
    except ValueError as error:
        raise SettingsError(f"--as-version: {error}") from None


def warn_unknown_keys(config: BrokerConfig) -> None:
    """A line in the log for each key that Kafka does not know."""
    unknown = config.unknown_keys()
    if not unknown:
        return
    import logging

    from kwire.server.logs import event

    for key in unknown:
        meant = config.similar_key(key)
        text = "unknown configuration key, ignored"
        if meant is not None:
            text += f"; did you mean {meant}?"
        event(logging.getLogger(__name__), logging.WARNING, text, key=key)


def endpoints(node: Node) -> list[Endpoint]:
    """Where clients and other nodes are told to find a node that is bound."""
    from kwire.replication.core.metadata import Endpoint

    return [
        Endpoint(
            listener.name,
            listener.advertised_host,
            listener.advertised_port,
            SECURITY_PROTOCOLS.index(listener.security_protocol),
        )
        for listener in node.listeners
    ]
