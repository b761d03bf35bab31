"""Transactions of any client library that has a driver (compat_tests/clients.py), for an owner of bank.py.

What a driver says has failed ends the process: how the transaction has ended is for its successor to read. So does
silence: kafka-python 3.0.12 never sends its EndTxn again once the coordinator has died before it, although it has found
the next coordinator.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from compat_tests.clients import KINDS, TRANSACTIONAL, ClientError
from compat_tests.transaction_soak.librdkafka import LastWord

KNOWN = KINDS | TRANSACTIONAL
_FENCED = re.compile("fenced|invalid.?producer.?epoch|old epoch", re.IGNORECASE)


class Driven:
    """A transactional producer in a process of its own, which ends with this one."""

    is_open = False
    """Never to be aborted after an error: there is none that this process gets over."""

    def __init__(self, kind: str, bootstrap: str, transactional_id: str) -> None:
        self._client = KNOWN[kind].start(bootstrap)
        self._call("txn_init", id=transactional_id, timeout_ms=60_000)

    def _call(self, word: str, **arguments: Any) -> None:
        try:
            self._client.call(word, **arguments)
        except ClientError as error:
            raise LastWord("fenced" if _FENCED.search(str(error)) else "lost", error) from None

    def begin(self) -> None:
        """The driver begins with the first record."""

    def write(self, topic: str, partition: int, value: bytes) -> None:
        values = [b64encode(value).decode()]
        self._call("txn_send", topic=topic, partition=partition, values=values)

    def commit(self) -> None:
        self._call("txn_end", commit=True)

    def abort(self) -> None:
        self._call("txn_end", commit=False)
