"""The page as a file: who gets it, what it may do in a browser, and what it can be made of."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kwire import aio
from kwire.control import TOKEN
from kwire.control.live import page as page_module
from kwire.control.routes import cluster_handler, node_handler
from kwire.control.socket import ControlSocket
from kwire.launch.handles import ProcessHandle
from kwire.launch.welcome import open_page, page_of

pytestmark = pytest.mark.timeout(60)

FILE = Path(page_module.__file__).parent / "page.html"
HTML = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
Answer = tuple[int, dict[str, str], bytes]


def ask(url: str, path: str = "/", method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection(url.rpartition("/")[2], timeout=20)
    connection.request(
        method, path, headers={key.replace("_", "-"): value for key, value in headers.items()}
    )
    response = connection.getresponse()
    found = (
        response.status,
        {key.lower(): value for key, value in response.getheaders()},
        response.read(),
    )
    connection.close()
    return found


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as found:
        yield found


@contextmanager
def served(*, of_nodes: bool = False) -> Iterator[str]:
    from kwire.backends.loop_thread import acquire, release

    owner = object()
    thread = acquire(owner, lambda: None)
    cluster = aio.Cluster(topics=["t"])

    async def begin() -> ControlSocket:
        await cluster.start()
        runner: Any = cluster.inside.handles[1]
        handler = node_handler(runner.runner.control) if of_nodes else cluster_handler(cluster)
        control = ControlSocket(lambda: handler)
        await control.open("127.0.0.1", 0)
        return control

    control = thread.run(begin())
    try:
        yield control.url
    finally:
        thread.run(control.close())
        thread.run(cluster.stop())
        release(owner)


def test_browsers_get_the_page_and_programs_the_list(url: str) -> None:
    status, headers, body = ask(url, Accept=HTML)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert body.startswith(b"<!doctype html>") and b"@STYLE@" not in body
    for accept in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}, {"Accept": "text/*"}):
        status, headers, body = ask(url, **accept)
        assert (status, headers["content-type"]) == (200, "application/json")
        assert "GET /v1/live" in json.loads(body)["requests"]
    assert ask(url, "/v1", Accept=HTML)[1]["content-type"] == "application/json"


def test_the_policy_allows_what_stands_in_the_page_and_nothing_else(url: str) -> None:
    _, headers, body = ask(url, Accept=HTML)
    policy = {
        name: rest
        for name, _, rest in (
            each.strip().partition(" ") for each in headers["content-security-policy"].split(";")
        )
    }
    for kind, tag in (("script-src", b"script"), ("style-src", b"style")):
        (content,) = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), body, re.DOTALL)
        assert policy[kind] == f"'sha256-{b64encode(sha256(content).digest()).decode()}'"
    assert (
        policy["default-src"]
        == policy["frame-ancestors"]
        == policy["base-uri"]
        == policy["form-action"]
        == "'none'"
    )
    assert policy["connect-src"] == "'self'" and policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY" and headers["cache-control"] == "no-store"
    assert (
        headers["referrer-policy"] == "no-referrer"
        and headers["x-content-type-options"] == "nosniff"
    )


def test_the_page_fetches_nothing_from_elsewhere_and_makes_no_markup() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\s\"'<>]+", text) == ["http://www.w3.org/2000/svg"], (
        "a name, not an address"
    )
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "eval(",
        "import(",
        '<link rel="stylesheet',
    ):
        assert word not in text, word
    assert not re.search(r"<\w+[^>]*\son\w+=", text.partition("<script>")[0])
    assert text.count("<script>") == text.count("</script>") == text.count("<style>") == 1
    assert "localStorage.setItem(TOKEN" not in text


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://{host}", 200),
        ("https://{host}", 403),
        ("http://{host}.evil.example", 403),
        ("http://evil.example", 403),
        ("http://127.0.0.1", 403),
        ("http://127.0.0.1:1", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_only_the_page_of_this_host_may_act(url: str, origin: str, expected: int) -> None:
    host = url.removeprefix("http://")
    given = origin.format(host=host)
    assert ask(url, "/v1/requests", "DELETE", Origin=given)[0] in (
        (expected,) if expected == 403 else (200, 409)
    )
    assert ask(url, "/v1/live", Origin=given)[0] == expected


def test_an_origin_that_is_said_twice_is_none(url: str) -> None:
    import socket

    host = url.removeprefix("http://")
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), 5) as connection:
        connection.sendall(
            f"GET /v1 HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nOrigin: http://x.y\r\n\r\n".encode()
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


def test_the_page_is_served_without_the_token_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TOKEN, "s3cret")
    with served() as url:
        status, headers, body = ask(url, Accept=HTML)
        assert status == 200 and headers["content-type"].startswith("text/html")
        assert b"s3cret" not in body
        for path, method in (
            ("/", "GET"),
            ("/v1", "GET"),
            ("/v1/live", "GET"),
            ("/?x=1", "GET"),
            ("/v1/reset", "POST"),
        ):
            accept = {} if path == "/" else {"Accept": HTML}
            assert ask(url, path, method, **accept)[0] == 401, path
        assert ask(url, "/", "POST", Accept=HTML)[0] == 401
        assert ask(url, "/v1/live", Accept="text/event-stream")[0] == 401
        assert ask(url, "/v1/live", Authorization="Bearer s3cret")[0] == 200


def test_a_single_nodes_api_has_no_page_and_keeps_its_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(of_nodes=True) as url:
        assert ask(url, Accept=HTML)[1]["content-type"] == "application/json"
        status, _, body = ask(url, "/v1/live")
        assert status == 404 and b"KWIRE_BROKERS=1" in body
    monkeypatch.setenv(TOKEN, "s3cret")
    with served(of_nodes=True) as url:
        assert ask(url, Accept=HTML)[0] == 401


# --- kwire up --open


def test_the_page_is_opened_without_the_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import threading

    opened: list[str] = []
    done = threading.Event()

    def open_it(url: str) -> bool:
        opened.append(url)
        done.set()
        return True

    monkeypatch.setattr("webbrowser.open", open_it)
    monkeypatch.setenv("BROWSER", "true")
    open_page("http://kwire:s3cret@127.0.0.1:9099")
    assert done.wait(10) and opened == ["http://127.0.0.1:9099/"]
    assert page_of("http://[::1]:9099") == "http://[::1]:9099/"


def test_without_a_screen_no_browser_for_terminals_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kwire.launch import welcome

    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("it was opened"))
    with caplog.at_level("WARNING", "kwire"):
        welcome._open("http://127.0.0.1:1/")
    assert "no browser was found to open http://127.0.0.1:1/" in caplog.text


# --- what the page asks often must not disturb


def test_a_process_that_starts_is_not_asked_before_it_is_ready() -> None:
    """Its first line says that it is ready: it is no answer to who asks meanwhile."""

    async def main() -> None:
        async with aio.Cluster(1, isolation="process", topics=["t"]) as cluster:
            handle = cluster.inside.handles[1]
            assert isinstance(handle, ProcessHandle)
            await cluster.broker(1).kill()
            starting = asyncio.ensure_future(cluster.broker(1).start())
            while not handle.running:
                await asyncio.sleep(0)
            answer = await handle.ask("GET", "/v1/changes")
            assert [each["id"] for each in answer["nodes"]] == [1]
            await starting
            assert (await handle.ask("GET", "/healthz")) == {"status": "ok"}

    asyncio.run(main())
