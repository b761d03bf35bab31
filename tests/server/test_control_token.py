"""The token of the control API: at addresses that others reach, and where one is given."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest

from kwire import aio
from kwire.control import TOKEN
from kwire.control.client import call, hidden
from kwire.control.errors import ControlError
from kwire.control.routes import cluster_handler
from kwire.control.socket import ControlSocket, is_loopback
from kwire.control.token import shows, token_of
from kwire.server.errors import NodeError

pytestmark = pytest.mark.timeout(30)


def basic(text: str) -> bytes:
    return b"Basic " + b64encode(text.encode())


@pytest.mark.parametrize(
    ("header", "is_right"),
    [
        (b"Bearer t-0_ken", True),
        (b"bearer   t-0_ken ", True),
        (basic("kwire:t-0_ken"), True),
        (basic(":t-0_ken"), True),
        (basic("t-0_ken"), False),
        (basic("t-0_ken:"), False),
        (b"Bearer t-0_keN", False),
        (b"Bearer t-0_ke", False),
        (b"Bearer ", False),
        (b"Bearer", False),
        (b"Basic ***", False),
        (b"Basic t-0_ken", False),
        (b"Digest t-0_ken", False),
        (b"t-0_ken", False),
        (b"", False),
        (b"Bearer t\xe9ken", False),
    ],
)
def test_a_header_shows_the_token(header: bytes, is_right: bool) -> None:
    assert shows(header, "t-0_ken") is is_right


@pytest.mark.parametrize(
    ("host", "is_near"),
    [
        *((host, True) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "kafka", "127")),
    ],
)
def test_addresses_that_only_this_machine_reaches(host: str, is_near: bool) -> None:
    assert is_loopback(host) is is_near


def test_a_token_is_made_up_unless_one_is_given() -> None:
    (one, is_made_up), (other, _) = token_of(""), token_of(None)
    assert is_made_up and len(one) >= 24 and one != other
    assert token_of("abc") == ("abc", False)
    for bad in ("a b", "é", "a\x7f"):
        with pytest.raises(NodeError, match="visible ASCII") as refused:
            token_of(bad)
        assert bad not in str(refused.value)


def test_on_this_machine_a_token_is_asked_for_if_one_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def statuses() -> list[int]:
        async with aio.Cluster() as cluster:
            control = ControlSocket(lambda: cluster_handler(cluster))
            await control.open("127.0.0.1", 0)
            assert control.url == control.place
            port = int(control.url.rpartition(":")[2])
            found = [await asked(port), await asked(port, "Authorization: Bearer abc")]
            await control.close()
            return [each[0] for each in found]

    monkeypatch.delenv(TOKEN, raising=False)
    assert asyncio.run(statuses()) == [200, 200]
    monkeypatch.setenv(TOKEN, " abc ")
    assert asyncio.run(statuses()) == [401, 200]


async def asked(port: int, *headers: str) -> tuple[int, bytes, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = ["GET /v1/cluster HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), head, json.loads(body)


def test_the_url_of_an_api_that_others_reach_has_its_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(TOKEN, raising=False)

    async def main() -> None:
        async with aio.Cluster() as cluster:
            control = ControlSocket(lambda: cluster_handler(cluster))
            await control.open("0.0.0.0", 0)
            port = int(control.url.rpartition(":")[2])
            token = control.url.partition("@")[0].rpartition(":")[2]
            assert control.place == f"http://127.0.0.1:{port}" == hidden(control.url)

            status, head, found = await asked(port)
            assert status == 401 and b"WWW-Authenticate: Basic" in head
            assert found["message"].startswith("no token: ") and TOKEN in found["message"]
            status, _, found = await asked(port, "Authorization: Bearer wrong")
            assert status == 401 and found["message"].startswith("a wrong token: ")
            assert token not in str(found)
            twice = [f"Authorization: Bearer {token}"] * 2
            assert (await asked(port, *twice))[0] == 401
            assert (await asked(port, twice[0], "Origin: http://evil.com"))[0] == 403
            assert (await asked(port, twice[0]))[0] == 200

            def commands() -> None:
                assert "brokers" in call(control.url, "GET", "/v1/cluster")
                for url in (control.place, control.url.replace(token, "wrong")):
                    with pytest.raises(ControlError) as refused:
                        call(url, "GET", "/v1/cluster")
                    assert refused.value.status == 401
                monkeypatch.setenv(TOKEN, token)
                assert "brokers" in call(control.place, "GET", "/v1/cluster")

            await asyncio.to_thread(commands)
            await control.close()

    asyncio.run(main())


def test_a_url_in_a_message_has_no_token() -> None:
    for url in ("http://kwire:hush@127.0.0.1:1", "ftp://kwire:hush@h:1", "kwire:hush@127.0.0.1:1"):
        with pytest.raises(ControlError) as refused:
            call(url, "GET", "/", seconds=5)
        assert "hush" not in str(refused.value)
