"""What clients try at locked listeners, and what docs/security-clients.md says comes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compat_tests.locks.brokers import PASSWORD, STORES, TOPIC, USER
from compat_tests.locks.probes import IN, Attempt
from compat_tests.tooling import HERE

PAGE = HERE.parent / "docs" / "security-clients.md"
COLUMNS = {
    # heading on the page: what is wrong
    "authority": "The broker's certificate is of an authority that the client does not trust.",
    "host name": "The broker's certificate is for another host.",
    "expired": "The broker's certificate has expired.",
    "own certificate": "The client's certificate is missing, of another authority, or has expired.",
    "secret": "The password is wrong, or the user is unknown: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.",
    "mechanism": "The listener does not have the client's mechanism.",
}


@dataclass(frozen=True)
class Case:
    """`column`: a key of COLUMNS; "": the client comes in."""

    column: str
    listener: str
    ca: str = "ca"
    own: str = ""
    mechanism: str = ""
    user: str = USER
    password: str = PASSWORD

    def attempt(self, port: int, value: str) -> Attempt:
        own = str(STORES / f"{self.own}.pem") if self.own else ""
        return Attempt(
            servers=f"127.0.0.1:{port}",
            ca=str(STORES / f"{self.ca}.pem"),
            own=own,
            mechanism=self.mechanism,
            user=self.user,
            password=self.password,
            topic=TOPIC,
            value=value,
        )


CASES = {
    "tls": Case("", "TLS"),
    "mutual": Case("", "MUTUAL", own="client"),
    "plain": Case("", "LOGIN", mechanism="PLAIN"),
    "scram-256": Case("", "LOGIN", mechanism="SCRAM-SHA-256"),
    "scram-512": Case("", "LOGIN", mechanism="SCRAM-SHA-512"),
    "mutual-scram-512": Case("", "BOTH", own="client", mechanism="SCRAM-SHA-512"),
    "foreign-authority": Case("authority", "TLS", ca="foreign-ca"),
    "foreign-authority-scram": Case(
        "authority", "LOGIN", ca="foreign-ca", mechanism="SCRAM-SHA-512"
    ),
    "other-host": Case("host name", "OTHERHOST"),
    "expired": Case("expired", "EXPIRED", ca="expired-ca"),
    "no-certificate": Case("own certificate", "MUTUAL"),
    "foreign-certificate": Case("own certificate", "MUTUAL", own="foreign-client"),
    "expired-certificate": Case("own certificate", "MUTUALX", own="expired-client"),
    "wrong-plain": Case("secret", "LOGIN", mechanism="PLAIN", password="wrong"),
    "wrong-256": Case("secret", "LOGIN", mechanism="SCRAM-SHA-256", password="wrong"),
    "wrong-512": Case("secret", "LOGIN", mechanism="SCRAM-SHA-512", password="wrong"),
    "nobody-plain": Case("secret", "LOGIN", mechanism="PLAIN", user="nobody"),
    "nobody-512": Case("secret", "LOGIN", mechanism="SCRAM-SHA-512", user="nobody"),
    "not-enabled": Case("mechanism", "PLAINONLY", mechanism="SCRAM-SHA-512"),
}
SHORT = ("tls", "mutual", "scram-512", "foreign-authority", "no-certificate", "wrong-512")


def documented() -> dict[tuple[str, str], set[str]]:
    """The kinds of error that a client may show, by client and column, from the page."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    headings = rows[0][1:]
    assert headings == list(COLUMNS), headings
    found = {}
    for name, *cells in rows[2:]:
        for heading, cell in zip(headings, cells, strict=True):
            found[name, heading] = set(re.findall(r"`([^`]+)`", cell))
    return found


def expected(client: str, case: Case) -> set[str]:
    """The kinds of outcome that are right."""
    return documented()[client, case.column] if case.column else {IN}
