"""The listener of a controller beside brokers whose listeners are not plaintext: Kafka's keys, rewritten. No I/O."""

from __future__ import annotations

from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.core.types import INTERNAL_LISTENER
from kwire.server.listeners import (
    controller_names,
    inter_broker_listener,
    parse_listeners,
    protocol_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PLAINTEXT = "PLAINTEXT"
_KEPT = ("listener.name.", "sasl.", "security.", "ssl.")


def secured(values: Mapping[str, str], of_brokers: Mapping[str, str]) -> dict[str, str]:
    """The keys of a controller with one plaintext listener, `values`, so that this listener is the one of
    `controller.listener.names`, else as secure as the brokers' own, by the brokers' keys. Keys of brokers that are
    refused change nothing: the brokers' start says why."""
    found = dict(values)
    config = BrokerConfig(of_brokers)
    try:
        names = controller_names(config)
        brokers = inter_broker_listener(config, parse_listeners(config))
        name = names[0] if names else brokers.name
        protocol = protocol_of(config, name)
    except ConfigError:
        return found
    if brokers.name == INTERNAL_LISTENER and not names:
        return _internal(found, of_brokers)
    if name == INTERNAL_LISTENER:  # in a network of the nodes' own (kwire/backends/inside)
        for key in ("listeners", "advertised.listeners"):
            found[key] = f"{name}://{found[key].partition('://')[2]}"
        found["listener.security.protocol.map"] = f"{name}:{PLAINTEXT}"
        found["inter.broker.listener.name"] = name
        found.pop("security.inter.broker.protocol", None)
        return found
    found.update((key, of_brokers[key]) for key in of_brokers if key.startswith(_KEPT))
    if protocol == brokers.security_protocol == PLAINTEXT:
        found.pop("security.inter.broker.protocol", None)
        return found
    mapped = config.listener_security_protocol_map
    if config.inter_broker_listener_name is not None or names:
        found["inter.broker.listener.name"] = config.inter_broker_listener_name or brokers.name
        found.pop("security.inter.broker.protocol", None)
    if names:
        found["controller.listener.names"] = name
        if f"{name}:" not in mapped.upper():
            mapped += f",{name}:{protocol}"
    for key in ("listeners", "advertised.listeners"):
        if key in found:
            found[key] = f"{name}://{found[key].partition('://')[2]}"
    found["listener.security.protocol.map"] = mapped
    return found


def _internal(values: dict[str, str], of_brokers: Mapping[str, str]) -> dict[str, str]:
    """The keys of a controller that is reached as its brokers reach each other: from this machine, at a port that no
    client learns, without a log-in, and without access rules."""
    found = {key: text for key, text in values.items() if key != "advertised.listeners"}
    found["listeners"] = f"{INTERNAL_LISTENER}://127.0.0.1:0"
    found["listener.security.protocol.map"] = of_brokers["listener.security.protocol.map"]
    found["inter.broker.listener.name"] = INTERNAL_LISTENER
    found.pop("security.inter.broker.protocol", None)
    return found
