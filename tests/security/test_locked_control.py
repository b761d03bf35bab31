"""The control API of a cluster that asks clients who they are: for those that show its token."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from test_access_options import kwire
from test_certificates import up

from kwire.launch.configuration import asks_who

_USER = ("--user", "alice:secret", "--sasl", "plain")


@pytest.mark.parametrize("more", [(), ("--brokers", "2")])
def test_who_does_not_know_the_token_reads_nothing(more: tuple[str, ...], tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    words = (*_USER, *more, "--topic", "orders", "--ready-file", str(ready))
    with up(*words) as line:
        url = json.loads(ready.read_text())["control"]
        assert f"control={url}" in line and ready.stat().st_mode & 0o777 == 0o600
        scheme, _, place = url.partition("kwire:")
        place = scheme + place.partition("@")[2]
        for path in ("/v1/topics/orders/records", "/v1/events", "/v1", "/v1/report"):
            with pytest.raises(HTTPError) as refused:
                urlopen(place + path, timeout=20)
            assert refused.value.code == 401
            refused.value.close()
        port = url.rpartition(":")[2]
        assert "broker 1" in kwire("ctl", "--port", port, "status").stdout  # by the registry
        refusal = kwire("ctl", "--control", place, "status", home=tmp_path)
        assert refusal.returncode == 1
        assert refusal.stderr.startswith("kwire ctl: no token: "), refusal.stderr
        assert refusal.stderr.count("\n") == 1


def test_an_open_cluster_needs_none() -> None:
    with up("--topic", "orders") as line:
        assert "control=http://127.0.0.1:" in line


@pytest.mark.parametrize(
    ("keys", "is_asked"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, False),
        ({"listeners": "SSL://:9092"}, False),
        ({"listeners": "SASL_SSL://:9092"}, True),
        ({"listeners": "A://:1", "listener.security.protocol.map": "A:sasl_plaintext"}, True),
        ({"listeners": "SSL://:1", "listener.name.ssl.ssl.client.auth": "required"}, True),
        ({"listeners": "SSL://:1", "ssl.client.auth": "requested"}, False),
        ({"listeners": "PLAINTEXT://:1", "authorizer.class.name": "x"}, True),
    ],
)
def test_which_clusters_ask(keys: dict[str, str], is_asked: bool) -> None:
    assert asks_who(keys) is is_asked
