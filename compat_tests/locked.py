"""Locks for `cluster.running`: SASL_SSL and access rules for clients, brokers and controllers alike."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import pytest

from kwire.replication.core.types import AUTHORIZER_KEY, TLS, TLS_KEY, USERS_KEY
from kwire.security.client import Access, Credentials
from kwire.security.options import certificates_in, client_config_in

_MECHANISM = "SCRAM-SHA-512"
_NODE, _NODES_SECRET = "broker", "between-us"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOCKS = {
    "listeners": "SASL_SSL://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.enabled.mechanisms": _MECHANISM,
    "sasl.mechanism.inter.broker.protocol": _MECHANISM,
    "sasl.mechanism.controller.protocol": _MECHANISM,
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
        f'{_MODULE} required username="{_NODE}" password="{_NODES_SECRET}";'
    ),
    TLS_KEY: TLS,
    USERS_KEY: "alice:secret",
    AUTHORIZER_KEY: "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{_NODE};User:alice",
}
"""Of all nodes, whose controllers listen as the brokers do; alice is the client."""


def client_of(values: Mapping[str, str], kind: str, servers: str) -> dict[str, Any]:
    """The configuration of a client of nodes with these keys, locked or not."""
    return client_config_in(values, kind, servers, None)


def access_of(values: Mapping[str, str]) -> Access | None:
    """How the test itself comes in at such nodes, once there are certificates: as a node, which standby controllers
    know, too; alice they do not."""
    files = certificates_in(values)
    if files is None:
        return None
    credentials = Credentials(_MECHANISM, _NODE, _NODES_SECRET)
    return Access(credentials, ssl.create_default_context(cafile=files.ca))


def scenarios(metafunc: pytest.Metafunc, telling: tuple[str, ...]) -> None:
    """Run each test of a module with and without locks; of those with locks only the `telling` ones, which begin with
    one of these, in `make test`."""
    if "start" not in metafunc.fixturenames:
        return
    marks = () if metafunc.function.__name__.startswith(telling) else pytest.mark.slow
    ways = [
        pytest.param({}, id="plaintext"),
        pytest.param({"locked": True}, id="sasl_ssl", marks=marks),
    ]
    metafunc.parametrize("start", ways, indirect=True)
