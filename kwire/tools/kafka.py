"""The cluster that a command asks over Kafka's protocol: named, else the running one, else localhost:9092.

Any Kafka will do. Every failure is one line (`NodeError`, `SettingsError`).
"""

from __future__ import annotations

from contextlib import contextmanager

from kwire.client.admin import CONNECTION_SECONDS, NoBrokerError
from kwire.client.blocking import Client
from kwire.client.connection import parse_address
from kwire.protocol.errors import KafkaError
from kwire.server.errors import NodeError, SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEFAULT = "localhost:9092"


def bootstrap_servers(given: str | None, port: int | None) -> tuple[str, bool]:
    """HOST:PORT,… and whether it is only a guess, because nothing is named and nothing runs."""
    if given is not None:
        return given, False
    from kwire.launch.running import all_running, choose

    if port is not None:
        known = [each for each in all_running() if port in each.ports]
        return (known[0].addresses if known else f"localhost:{port}"), False
    running = choose(what="--port PORT or --bootstrap HOST:PORT")
    return (DEFAULT, True) if running is None else (running.addresses, False)


@contextmanager
def connected(given: str | None, port: int | None, client_id: str) -> Iterator[Client]:
    """A client of the cluster. Errors of Kafka's become NodeError."""
    servers, guessed = bootstrap_servers(given, port)
    try:
        addresses = [parse_address(text) for text in servers.split(",")]
    except ValueError as error:
        raise SettingsError(f"--bootstrap: {error}") from None
    client = Client(lambda: addresses, CONNECTION_SECONDS, client_id)
    try:
        yield client
    except NoBrokerError as error:
        hint = "; no kwire up is running: start one, or name a --bootstrap" if guessed else ""
        raise NodeError(f"{error}{hint}") from None
    except KafkaError as error:
        raise NodeError(str(error)) from None
    finally:
        client.close()


def table(head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> str:
    """Columns as wide as their widest cell, under their names."""
    cells = [head, *(tuple("-" if cell is None else str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([*lines, ""])
