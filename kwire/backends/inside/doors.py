"""The listeners of a cluster's containers, as variables of the image, and what guards them.

Without locks a broker has one listener for clients, and in a cluster of several another one for brokers, HOST and
INSIDE. With `sasl`, `tls`, `mtls` or `acl` that of clients asks for what the keys of `kwire.security.arguments` say,
and KWIRE_INTERNAL is for brokers and for kwire itself, as it is elsewhere: plaintext, not subject to access rules, in a
network of the cluster's own, and at a port of this machine that no client learns. So the engine has to be on it.

Certificates are made here, where clients need them, too, and a node's own are put into its container.
"""

from __future__ import annotations

from kwire import errors
from kwire.launch.spec import CONTROL_PORT
from kwire.replication.core.types import (
    CONTROLLER_ID,
    INTERNAL_LISTENER,
    TLS_DIRECTORY_KEY,
    TLS_KEY,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kwire.launch.spec import ClusterSpec

INSIDE_PORT = 19092
SECRETS = "/etc/kafka/secrets"
_USER_ID = 1000  # of the image
_PROTOCOL_MAP = "listener.security.protocol.map"
_LISTENER_KEYS = ("listeners", _PROTOCOL_MAP, "inter.broker.listener.name")
_OWN_KEYS = ("listeners", "advertised.listeners", "node.id", "broker.id", "log.dirs", "log.dir")
_OWN_PREFIXES = ("listener.", "inter.broker.", "controller.listener.", "controller.quorum.voters")
_OF_ROLES = {
    "KAFKA_PROCESS_ROLES": "broker",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}
_OPEN_BROKER = {
    **_OF_ROLES,
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,HOST:PLAINTEXT,INSIDE:PLAINTEXT",
    "KAFKA_LISTENERS": f"HOST://0.0.0.0:9092,INSIDE://0.0.0.0:{INSIDE_PORT}",
}
_OPEN_CONTROLLER = {
    "KAFKA_PROCESS_ROLES": "controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "CONTROLLER://0.0.0.0:9093",
}
_LOCKED_CONTROLLER = {
    **_OPEN_CONTROLLER,
    "KAFKA_CONTROLLER_LISTENER_NAMES": INTERNAL_LISTENER,
    "KAFKA_LISTENERS": f"{INTERNAL_LISTENER}://0.0.0.0:9093",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": f"{INTERNAL_LISTENER}:PLAINTEXT",
}


def check_keys(values: Mapping[str, str]) -> None:
    """ConfigurationError for keys that a container's own set."""
    for key in values:
        if key in _OWN_KEYS or key.startswith(_OWN_PREFIXES):
            raise errors.ConfigurationError(f'{key}: not possible with isolation "docker"')


def alias_of(node_id: int) -> str:
    """The name of a node in the network of the cluster."""
    if node_id == CONTROLLER_ID:
        return "controller"
    return f"controller-{node_id}" if node_id > CONTROLLER_ID else f"kafka-{node_id}"


def variables_of(config: Mapping[str, str]) -> dict[str, str]:
    """Translate configuration keys to the image's variables (docs/docker.md)."""
    found = {}
    for key, value in config.items():
        name = key.replace("_", "__").replace("-", "___").replace(".", "_")
        found["KAFKA_" + name.upper()] = value
    return found


class Doors:
    """Of one cluster. `spec`: with the certificates, once they are made."""

    def __init__(self, spec: ClusterSpec) -> None:
        """ConfigurationError."""
        values = spec.node.values
        self._given = self.spec = spec
        self.is_locked = values.get("inter.broker.listener.name") == INTERNAL_LISTENER
        if not self.is_locked:
            check_keys(values)
        self._clients = values.get("listeners", "PLAINTEXT").partition("://")[0]

    @property
    def ports(self) -> list[int]:
        """The ports of a broker's container that this machine reaches: clients', the control API's, kwire's own."""
        return [9092, CONTROL_PORT, *([INSIDE_PORT] if self.is_locked else [])]

    def make_certificates(self, folder: str, bound: str) -> None:
        """Make the certificates, if they are asked for. `bound`: the address of this machine at which ports are
        published. StartError."""
        self.spec = spec = self._given
        if self.is_locked and bound != "127.0.0.1":
            raise errors.StartError(
                "sasl, tls, mtls, acl: not possible with a Docker engine on another machine, where everybody would"
                f" reach {INTERNAL_LISTENER}"
            )
        if TLS_KEY in spec.node.values:
            from kwire.backends.options import kwire_errors

            node = spec.node.replace(data_dir=folder)
            with kwire_errors():
                self.spec = spec.replace(node=node).with_certificates("tls=True")

    def forget_certificates(self) -> ClusterSpec:
        """The spec without them: their folder is gone."""
        self.spec = self._given
        return self._given

    def of_controller(self, node_id: int) -> dict[str, str]:
        """The variables of a controller's container."""
        own = _LOCKED_CONTROLLER if self.is_locked else _OPEN_CONTROLLER
        return {**variables_of(self._keys(node_id)), **own}

    def of_broker(self, node_id: int, advertised: str, *, is_alone: bool) -> dict[str, str]:
        """The variables of a broker's container, whose clients are told `advertised`. `is_alone`: the controller is
        in it."""
        found = variables_of(self._keys(node_id))
        inside = f"{alias_of(node_id)}:{INSIDE_PORT}"
        if not self.is_locked:
            if is_alone:
                found["KAFKA_LISTENERS"] = "PLAINTEXT://0.0.0.0:9092"
                found["KAFKA_ADVERTISED_LISTENERS"] = f"PLAINTEXT://{advertised}"
            else:
                found.update(_OPEN_BROKER)
                found["KAFKA_ADVERTISED_LISTENERS"] = f"HOST://{advertised},INSIDE://{inside}"
            return found
        found.update({} if is_alone else _OF_ROLES)
        protocols = self.spec.node.values[_PROTOCOL_MAP]
        own = {
            "listeners": f"{self._clients}://0.0.0.0:9092,{INTERNAL_LISTENER}://0.0.0.0:{INSIDE_PORT}",
            "advertised.listeners": f"{self._clients}://{advertised},{INTERNAL_LISTENER}://{inside}",
            "inter.broker.listener.name": INTERNAL_LISTENER,
            _PROTOCOL_MAP: protocols if is_alone else f"{protocols},CONTROLLER:PLAINTEXT",
        }
        return {**found, **variables_of(own)}

    def _keys(self, node_id: int) -> dict[str, str]:
        """A node's keys without those of listeners, and with certificates as its container has them."""
        spec = self.spec
        values = {**spec.node.values, **spec.overrides.get(node_id, {})}
        if not self.is_locked:
            return values
        has_own = values.pop(TLS_DIRECTORY_KEY, None) is not None
        values.pop(TLS_KEY, None)
        if has_own:
            values["ssl.keystore.location"] = f"{SECRETS}/node.pem"
            values["ssl.truststore.location"] = f"{SECRETS}/ca.pem"
        if node_id >= CONTROLLER_ID:  # without a listener that needs them
            values = {
                key: it for key, it in values.items() if not key.startswith(("ssl.", "listener."))
            }
        return {key: it for key, it in values.items() if key not in _LISTENER_KEYS}

    def put_certificates(self, container: Any, node_id: int) -> None:
        """Put a broker's certificate into its container, which has not started."""
        values = self.spec.node.values
        if TLS_DIRECTORY_KEY not in values:
            return
        own = {**values, **self.spec.overrides.get(node_id, {})}
        files = {"node.pem": own["ssl.keystore.location"], "ca.pem": own["ssl.truststore.location"]}
        container.put_archive(SECRETS, _archive(files))


def _archive(files: Mapping[str, str]) -> bytes:
    """Files by name as a tar file, for the image's user alone."""
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, path in files.items():

            def owned(info: tarfile.TarInfo) -> tarfile.TarInfo:
                info.uid = info.gid = _USER_ID
                info.mode = 0o600
                return info

            archive.add(path, arcname=name, filter=owned)
    return buffer.getvalue()
