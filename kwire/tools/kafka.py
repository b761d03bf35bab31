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

    from kwire.client.connection import Address
    from kwire.client.tls import Trust
    from kwire.launch.running import Running
    from kwire.security.client import Credentials

DEFAULT = "localhost:9092"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Target:
    """The cluster that is meant."""

    __slots__ = ("addresses", "control", "credentials", "guessed", "trust")

    def __init__(
        self,
        servers: str,
        control: str | None = None,
        *,
        guessed: bool = False,
        credentials: Credentials | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`control`: the URL of its control API, if known. `guessed`: nothing is named and nothing
        runs. `credentials`: to log in by. `trust`: it speaks TLS. SettingsError for malformed addresses."""
        try:
            self.addresses = [parse_address(text) for text in servers.split(",")]
        except ValueError as error:
            raise SettingsError(f"--bootstrap: {error}") from None
        self.control = control
        self.credentials = credentials
        self.trust = trust
        self.guessed = guessed


def find_target(
    bootstrap: str | None,
    port: int | None,
    credentials: Credentials | None = None,
    trust: Trust | None = None,
) -> Target:
    """The cluster at these addresses, or that runs at this port, or the only one that runs."""
    from kwire.launch.running import all_running, choose

    if bootstrap is not None:
        target = Target(bootstrap, credentials=credentials, trust=trust)
        running = next((each for each in all_running() if _is_at(each, target.addresses)), None)
        if running is None or running.addresses == running.bootstrap:
            return target  # it is another Kafka, or wants no log-in and no TLS
    elif port is None:
        running = choose(what="--port PORT or --bootstrap HOST:PORT")
    else:
        running = next((each for each in all_running() if port in each.ports), None)
    if running is not None:
        # Clients log in at the address that they are given, kwire's own need not where there is another.
        if credentials is None and trust is None:
            return Target(running.addresses, running.control)
        trust = trust or _trust_in(running)
        return Target(running.bootstrap, running.control, credentials=credentials, trust=trust)
    at = DEFAULT if port is None else f"localhost:{port}"
    return Target(at, guessed=port is None, credentials=credentials, trust=trust)


def _is_at(running: Running, addresses: list[Address]) -> bool:
    """Whether these are clients' addresses of a running cluster, as it names them or by the loopback's names."""
    own = [parse_address(text) for text in running.bootstrap.split(",")]
    ports = {port for host, port in own if host in _LOOPBACK}
    return all(each in own or (each[0] in _LOOPBACK and each[1] in ports) for each in addresses)


def _trust_in(running: Running) -> Trust | None:
    """The certificates that a running kwire up has made; None: it has made none."""
    directory = running.entry.get("tls")
    if directory is None:
        return None
    from kwire.security.certificates import Certificates

    files = Certificates(directory, mutual=bool(running.entry.get("mutual")))
    own = f"{files.client}.pem" if files.mutual else None
    return trust_of(files.ca, own, None)


def trust_of(ca: str, certificate: str | None, key: str | None) -> Trust:
    """The trust in those whose certificates are in a file. SettingsError."""
    from kwire.client.tls import Trust

    try:
        return Trust(ca, certificate, key)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def credentials_of(user: str, mechanism: str) -> Credentials:
    """The credentials of NAME:SECRET; of NAME alone, where unsecured tokens say who a client is. SettingsError."""
    from kwire.security.client import Credentials
    from kwire.security.options import TOKENS, parse_users

    if mechanism == TOKENS:
        if not user or ":" in user:
            raise SettingsError("--user: oauthbearer has no secrets, expected NAME")
        return Credentials(mechanism.upper(), user, "")
    try:
        ((name, secret),) = parse_users([user]).items()
    except ValueError as error:
        raise SettingsError(f"--user: {error}") from None
    return Credentials(mechanism.upper(), name, secret)


@contextmanager
def connected(
    target: Target, client_id: str, seconds: float = CONNECTION_SECONDS
) -> Iterator[Client]:
    """A client of a cluster. Errors of Kafka's become NodeError."""
    client = Client(lambda: target.addresses, seconds, client_id, target.credentials, target.trust)
    try:
        yield client
    except NoBrokerError as error:
        hint = (
            "; no kwire up is running: start one, or name a --bootstrap" if target.guessed else ""
        )
        if target.credentials is None and "closed the connection" in str(error):
            hint = "; does it ask for a log-in (--user NAME:SECRET), or for TLS (--ca FILE)?"
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
