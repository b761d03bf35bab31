"""What kafka-python and aiokafka need for unsecured tokens: objects of their own classes that make one when asked."""

from __future__ import annotations

import time

from kwire.security.oauth import unsecured_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def token_provider(kind: str, name: str) -> Any:
    """The `sasl_oauth_token_provider` of a client, "kafka-python" or "aiokafka". ImportError without the library."""

    def new_token() -> str:
        return unsecured_token({"sub": name}, time.time())

    if kind == "aiokafka":
        from aiokafka.abc import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return new_token()

        return Provider()
    base = _base_of_kafka_python()

    class BlockingProvider(base):  # type: ignore[misc,valid-type]
        def token(self) -> str:
            return new_token()

    return BlockingProvider()


def _base_of_kafka_python() -> Any:
    """The class that a provider has to be of, in the release that is installed."""
    from importlib import import_module

    for place in ("kafka.net.sasl.oauth", "kafka.sasl.oauth"):  # 3, 2.1
        try:
            return import_module(place).AbstractTokenProvider
        except ModuleNotFoundError:
            pass
    return import_module("kafka.oauth.abstract").AbstractTokenProvider  # 2.0
