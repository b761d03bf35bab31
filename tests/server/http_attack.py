"""Malformed requests for an HTTP server, by a seed: what a fuzzer, a scanner or a web page sends to the control API."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

PATHS = (
    *("/healthz", "/v1/cluster", "/v1/topics", "/v1/topics/t/records", "/v1/brokers/1/kill"),
    *("/v1/network/cuts", "/v1/faults", "/v1/snapshots", "/v1/clock", "/v1/reset", "/v1/elections"),
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "P\u00d6ST")
FOREIGN = ("evil.com", "evil.com:9099", "127.0.0.1.evil.com", "a.b.corp.net.", "xn--80ak6aa92e.com")
UP = (
    "..",
    "../..",
    "../../../../tmp/kwire-attack",
    "/etc/passwd",
    "..\\..\\x",
    "a/../../b",
    "\0",
    ".x",
)
ODD_TEXTS = ("\ud800", "\0", "a" * 300, "\u202e", "..", "/", "%", "<script>", "\r\nX: y", "")
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 10**30, 1e308, float("nan"), float("inf"), [], {}, [[]], {"a": {}}),
    *ODD_TEXTS,
)


class Attack:
    """What is sent on one connection. `answers`: how many it must get, each a refusal."""

    def __init__(self, name: str, data: bytes, answers: int = 1) -> None:
        self.name = name
        self.data = data
        self.answers = answers


class Attacker:
    """Makes attacks of all kinds, the same ones for the same seed."""

    def __init__(self, seed: int, token: str) -> None:
        self.random = Random(seed)
        self.token = token
        self.kinds: list[Callable[[], Attack]] = [
            *(self.request_line, self.garbage, self.headers, self.long_head, self.content_length),
            *(self.chunks, self.cut_off, self.pipelined, self.origin, self.host, self.no_token),
            *(
                self.climbing,
                self.deep,
                self.no_json,
                self.odd_fields,
                self.odd_query,
                self.odd_path,
            ),
            *(self.large, self.smuggled),
        ]

    def attacks(self, count: int) -> Iterator[Attack]:
        for number in range(count):
            yield self.kinds[number % len(self.kinds)]()

    # --- parts

    def head(self, method: str, path: str, *headers: str, host: str = "localhost") -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {host}",
            f"Authorization: Bearer {self.token}",
        ]
        return "\r\n".join([*lines, *headers, "", ""]).encode("utf-8", "surrogatepass")

    def _with_body(self, path: str, body: bytes, method: str = "POST") -> bytes:
        return self.head(method, path, f"Content-Length: {len(body)}") + body

    def _bytes(self, most: int) -> bytes:
        return self.random.randbytes(self.random.randrange(1, most))

    def _path(self) -> str:
        return self.random.choice(PATHS)

    # --- kinds

    def request_line(self) -> Attack:
        line = self.random.choice(
            [
                *(
                    "GET",
                    "GET /",
                    "GET / HTTP/9.9",
                    "GET  / HTTP/1.1",
                    "GET /\tHTTP/1.1",
                    " / HTTP/1.1",
                ),
                *(
                    "GET / HTTP/1.1 x",
                    "\x00 / HTTP/1.1",
                    "GET /\x7f\x01 HTTP/1.1",
                    "HTTP/1.1 200 OK",
                ),
                *(
                    "GET / http/1.1",
                    "GET / HTTP/1.1\nHost:",
                    "G" * 5000 + " / HTTP/1.1",
                    "PRI * HTTP/2.0",
                ),
            ]
        )
        return Attack("request line", f"{line}\r\nHost: a\r\n\r\n".encode())

    def garbage(self) -> Attack:
        return Attack("garbage", b"\x80" + self._bytes(400) + b"\r\n\r\n")

    def headers(self) -> Attack:
        header = self.random.choice(
            [
                *("Host: b", "No colon", ": empty", "A b: c", "X: \x00", " folded", "X: a\x0bb"),
                *("Transfer-Encoding: gzip", "Content-Length: 1\r\nContent-Length: 2", "X\x80: y"),
            ]
        )
        return Attack("headers", self.head("GET", "/v1/nothing", header))

    def long_head(self) -> Attack:
        if self.random.random() < 0.5:
            headers = [f"X-{number}: {'a' * 100}" for number in range(400)]
        else:
            headers = [f"X: {'a' * self.random.randrange(40_000, 100_000)}"]
        return Attack("long head", self.head("GET", "/healthz", *headers))

    def content_length(self) -> Attack:
        value = self.random.choice(
            [
                *("-1", "+5", "0x10", "1e3", "", " ", "5, 6", "5;6", "\u0665", "9" * 19, "9" * 400),
                *("18446744073709551617", "65537", "99999999", "1 2", "NaN"),
            ]
        )
        return Attack("length", self.head("POST", self._path(), f"Content-Length: {value}") + b"{}")

    def chunks(self) -> Attack:
        chunk = self.random.choice(
            [
                *(
                    b"-1\r\n{}\r\n",
                    b"zz\r\n{}\r\n",
                    b"\r\n\r\n",
                    b"2\r\n{}2\r\n",
                    b"ffffffffffffffffff\r\n{",
                ),
                *(b"2;" + b"x" * 30_000, b"2\n{}\n0\n\n", b" 2\r\n{}", b"0x2\r\n{}\r\n0\r\n\r\n"),
                *(b"2\r\n{}\r\n0\r\nX: y", b"1\r\n[\r\n" * 50 + b"0\r\n\r\n", b"5\r\n{}"),
                *(b"fff\r\n" + b" " * 0xFFF + b"\r\n",) * 2,
            ]
        )
        if chunk.startswith(b"fff\r"):
            chunk = chunk * 20  # more than a body may have
        head = self.head("POST", self._path(), "Transfer-Encoding: chunked")
        return Attack("chunks", head + chunk)

    def smuggled(self) -> Attack:
        head = self.head("POST", "/v1/nothing", "Content-Length: 4", "Transfer-Encoding: chunked")
        return Attack("smuggled", head + b"0\r\n\r\n" + self.head("POST", "/v1/nothing"), 2)

    def cut_off(self) -> Attack:
        whole = self._with_body(self._path(), b'{"name": "x"}')
        return Attack("cut off", whole[: self.random.randrange(1, len(whole) - 1)])

    def pipelined(self) -> Attack:
        count = self.random.randrange(2, 30)
        data = b"".join(self.head("GET", f"/v1/nothing/{number}") for number in range(count))
        return Attack("pipelined", data, count)

    def origin(self) -> Attack:
        origin = self.random.choice(["https://evil.com", "null", "http://localhost:1", ""])
        head = self.head(self.random.choice(("GET", "POST")), self._path(), f"Origin: {origin}")
        return Attack("origin", head)

    def host(self) -> Attack:
        return Attack("host", self.head("GET", self._path(), host=self.random.choice(FOREIGN)))

    def no_token(self) -> Attack:
        shown = self.random.choice(
            [
                *(
                    "",
                    "Bearer",
                    "Bearer x",
                    "Basic",
                    "Basic !!!",
                    "Basic eDp5",
                    "Bearer " + "x" * 5000,
                ),
                *(self.token, f"bearer  {self.token}x", f"Digest {self.token}", "Bearer \xff"),
                f"Bearer {self.token}\r\nAuthorization: Bearer {self.token}",
            ]
        )
        lines = (
            f"{self.random.choice(('GET', 'POST'))} {self._path()} HTTP/1.1\r\nHost: localhost\r\n"
        )
        if shown:
            lines += f"Authorization: {shown}\r\n"
        return Attack("token", (lines + "\r\n").encode("latin-1"))

    def climbing(self) -> Attack:
        name = self.random.choice(UP)
        if self.random.random() < 0.5:
            body = json.dumps({"name": name}).encode()
            return Attack("climbing", self._with_body("/v1/snapshots", body))
        quoted = "".join(f"%{byte:02x}" for byte in name.encode())
        method, rest = self.random.choice((("GET", ""), ("POST", "/restore"), ("DELETE", "")))
        return Attack("climbing", self.head(method, f"/v1/snapshots/{quoted}{rest}"))

    def deep(self) -> Attack:
        depth = self.random.choice((10, 500, 900, 1100, 20_000))
        opening, closing = self.random.choice((("[", "]"), ('{"a":', "}")))
        inner = opening * depth + "1" + closing * depth
        if len(inner) > 60_000:
            inner = opening * 9000
        name = self.random.choice(("name", "config", "a", "headers", "key", "api"))
        path = self.random.choice(
            ("/v1/topics", "/v1/network/cuts", "/v1/faults", "/v1/topics/t/records")
        )
        body = f'{{"{name}": {inner}}}' if self.random.random() < 0.7 else inner
        return Attack("deep", self._with_body(path, body.encode()))

    def no_json(self) -> Attack:
        body = self.random.choice(
            [
                *(
                    b"\xff\xfe",
                    b"{",
                    b'{"name": "\xff"}',
                    b'{"name": "\xed\xa0\x80"}',
                    b"null",
                    b"[]",
                    b"1",
                ),
                *(
                    b'{"milliseconds": NaN}',
                    b'{"milliseconds": -Infinity}',
                    b'{"days": 1e999}',
                    b"{'a': 1}",
                ),
                *(
                    b'{"a": 1, "a": 2}',
                    b'{"name": ' + b"9" * 10_000 + b"}",
                    b"\xef\xbb\xbf{}",
                    b'"' * 3,
                ),
                '{"name": 1}'.encode("utf-16"),
            ]
        )
        path = self.random.choice(("/v1/clock", "/v1/topics", "/v1/network/delays"))
        return Attack("no JSON", self._with_body(path, body))

    def odd_fields(self) -> Attack:
        """Bodies whose values make no sense, at requests which refuse them all."""
        path, names = self.random.choice(
            [
                ("/v1/faults", ("version", "broker", "partition", "times", "seed", "drop", "api")),
                ("/v1/network/cuts", ("a", "b")),
                ("/v1/network/delays", ("a", "b", "milliseconds")),
                ("/v1/elections", ("topic", "partition", "leader")),
                (
                    "/v1/topics/no-such-topic/records",
                    ("value", "key", "partition", "headers", "timestamp"),
                ),
                ("/v1/brokers/1/kill", ("id", "verb")),
            ]
        )
        body: dict[str, Any] = {name: self.random.choice(ODD_VALUES) for name in names}
        return Attack("odd fields", self._with_body(path, json.dumps(body).encode()))

    def odd_query(self) -> Attack:
        query = self.random.choice(
            [
                *(
                    "since=x",
                    "since=1&since=2",
                    "name=%ff",
                    "%00=1",
                    "a" * 5000,
                    "broker=-",
                    "&&=&",
                ),
                *("since=" + "9" * 3000, "x=1", "name=NO_SUCH", "broker=1e5", "since=nan"),
            ]
        )
        if query == "&&=&":
            query = "&&x=&"
        return Attack("odd query", self.head("GET", f"/v1/events?{query}"))

    def odd_path(self) -> Attack:
        text = self.random.choice(ODD_TEXTS + UP[:-1])
        quoted = "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "surrogatepass")) or "%"
        path = self.random.choice(
            [
                *(f"/v1/topics/{quoted}", f"/v1/topics/t/partitions/{quoted}", f"/{quoted}"),
                *(
                    f"/v1/brokers/{quoted}/kill",
                    f"//{quoted}",
                    f"http://[{quoted}",
                    f"/v1/nodes/{quoted}/status",
                ),
                *(
                    f"/v1/topics/{quoted}/records",
                    f"/v1/faults/{quoted}",
                    f"*{quoted}",
                    f"/v1/topics/t{quoted}",
                ),
            ]
        )
        return Attack("odd path", self.head(self.random.choice(("GET", "POST")), path))

    def large(self) -> Attack:
        size = self.random.choice((65_537, 200_000))
        return Attack("large", self._with_body("/v1/topics", b" " * size))


class Answer:
    """An answer: its status, and the object in its body."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body


def send(address: tuple[str, int], attack: Attack, seconds: float = 20.0) -> list[Answer]:
    """The answers to an attack: all until the connection ends."""
    found = b""
    with socket.create_connection(address, seconds) as connection:
        try:
            connection.sendall(attack.data)
            connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                found += more
        except (BrokenPipeError, ConnectionResetError):
            pass  # what has been read counts
    return list(answers_in(found))


def answers_in(data: bytes) -> Iterator[Answer]:
    """The answers in what a server has sent. ValueError: it is none."""
    while data:
        head, separator, rest = data.partition(b"\r\n\r\n")
        if not separator:
            raise ValueError(f"no answer: {data[:200]!r}")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        size = int(headers["content-length"])
        yield Answer(int(first.split(" ")[1]), rest[:size])
        data = rest[size:]
