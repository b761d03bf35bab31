"""How a tool comes in at a broker: a client's properties as Kafka's tools take them (`--command-config FILE`).

Answers to the keys of org.apache.kafka.clients.CommonClientConfigs, SslConfigs and SaslConfigs that a log-in and TLS
need: PLAIN and SCRAM by `sasl.jaas.config`, stores of types PEM, PKCS12 and JKS. Other keys have no effect here.
"""

from __future__ import annotations

from kwire.docker.client import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.client.tls import Trust
    from kwire.security.client import Credentials

FILES = ("command-config", "admin.config", "producer.config", "consumer.config")
"""The options that name a file of properties."""
PROPERTIES = ("command-property", "producer-property", "consumer-property")
"""The options that give one property; they win."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = "TOOL"
"""Under this name the keys of a client are read as those of brokers among themselves."""


def read_properties(path: str) -> dict[str, str]:
    """The properties in a file. ToolError."""
    from kwire.launch.properties import load_properties

    try:
        return load_properties(path)
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ToolError(str(error)) from None


def access_of(values: Mapping[str, str]) -> tuple[Credentials | None, Trust | None]:
    """The log-in and the TLS that a client's properties ask for. ToolError; no secret is in it."""
    protocol = values.get("security.protocol", _PROTOCOLS[0]).strip().upper()
    if protocol not in _PROTOCOLS:
        raise ToolError(f"security.protocol: expected {', '.join(_PROTOCOLS)}, not {protocol}")
    credentials = _credentials(values) if protocol.startswith("SASL_") else None
    return credentials, _trust(values) if protocol.endswith("SSL") else None


def _credentials(values: Mapping[str, str]) -> Credentials:
    from kwire.replication.config.broker_config import BrokerConfig, ConfigError
    from kwire.security.settings import node_login

    mechanism = values.get("sasl.mechanism", "GSSAPI").strip()
    if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        reason = "the image's tools log in by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512"
        raise ToolError(f"sasl.mechanism={mechanism}: {reason}")
    key = f"listener.name.{_LISTENER.lower()}.{mechanism.lower()}.sasl.jaas.config"
    try:
        config = BrokerConfig({key: values.get("sasl.jaas.config", "")})
        return node_login(config, _LISTENER, mechanism)
    except ConfigError as error:
        raise ToolError(str(error).replace(key, "sasl.jaas.config")) from None


def _trust(values: Mapping[str, str]) -> Trust:
    from kwire.client.tls import Trust
    from kwire.replication.config.broker_config import BrokerConfig, ConfigError
    from kwire.server.tls.context import client_context

    prefix = f"listener.name.{_LISTENER.lower()}."
    own = {prefix + key: text for key, text in values.items() if key.startswith("ssl.")}
    try:
        return Trust.of(client_context(BrokerConfig(own), _LISTENER))
    except ConfigError as error:
        raise ToolError(str(error).replace(prefix, "")) from None
