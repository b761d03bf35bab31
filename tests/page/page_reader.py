"""What the script of the page makes of the stream, without a browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from kwire.control.live.hub import NOTHING_NEW, Hub

Json = dict[str, Any]


class Page:
    """A page that is open."""

    def __init__(self, hub: Hub) -> None:
        self._parts: AsyncGenerator[bytes] = hub.parts()
        self.partitions: dict[tuple[str, int], list[Any]] = {}
        self.copies: dict[int, dict[int, list[int]]] = {}
        self.names: dict[int, dict[int, tuple[str, int]]] = {}
        self.last: Json = {}
        self.events: list[Json] = []
        self.beginnings = 0

    async def __aenter__(self) -> Page:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    async def until(self, condition: Callable[[], Any], seconds: float = 15) -> Any:
        async with asyncio.timeout(seconds):
            while not (found := condition()):
                await self.next()
        return found

    async def next(self) -> None:
        data = await anext(self._parts)
        if data != NOTHING_NEW:
            self.take(json.loads(data.removeprefix(b"data: ")))

    def take(self, part: Json) -> None:
        self.last |= part
        self.beginnings += "all" in part
        if "begin" in part:
            self.partitions.clear()
        for topic in part.get("gone", ()):
            for key in [key for key in self.partitions if key[0] == topic]:
                del self.partitions[key]
        for topic, index, *state in part.get("partitions", ()):
            self.partitions[topic, index] = state
        for text, told in part.get("replicas", {}).items():
            names, copies = (
                self.names.setdefault(int(text), {}),
                self.copies.setdefault(int(text), {}),
            )
            if told.get("whole"):
                names.clear()
                copies.clear()
            names |= {number: (topic, index) for number, topic, index in told.get("names", ())}
            flat = told.get("offsets", [])
            copies |= {flat[at]: flat[at + 1 : at + 6] for at in range(0, len(flat), 6)}
            for number in told.get("gone", ()):
                del names[number], copies[number]
        self.events += part.get("events", ())

    def ends(self, topic: str, index: int = 0) -> dict[int, int]:
        """The log end at each broker."""
        return {
            broker: self.copies[broker][number][2]
            for broker, names in self.names.items()
            for number, key in names.items()
            if key == (topic, index)
        }

    def words(self) -> list[str]:
        return [each["words"] for each in self.events]
