"""The client of a group member's request. Answers to RequestContext as Kafka's coordinator gets it."""

from __future__ import annotations


class MemberContext:
    """The client of a request. `client_host` as Kafka shows it: "/127.0.0.1"."""

    __slots__ = ("api_version", "client_host", "client_id")

    def __init__(self, api_version: int, client_id: str, client_host: str) -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
