"""`python -m compat_tests.locks.page`: try all cases with all clients, and print the kinds of error as a table.

With REAL=1 at Apache Kafka. What the page docs/security-clients.md says is judged by a reader, not copied."""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compat_tests.locks.brokers import locked_broker
from compat_tests.locks.cases import CASES, COLUMNS
from compat_tests.locks.probes import IN, PROBES
from compat_tests.tooling import ToolMissing


def kinds(client: str, ports: dict[str, int], names: list[str]) -> dict[str, str]:
    """The kind of each case's outcome; what it said goes to stderr."""
    found = {}
    probe = PROBES[client]()
    for name in names:
        case = CASES[name]
        value = f"{client}-{name}".replace(" ", "-")
        try:
            outcome = probe.attempt(case.attempt(ports[case.listener], value))
            found[name] = outcome.kind
            sys.stderr.write(f"{client} | {name} | {outcome.kind} | {outcome.text[:300]!r}\n")
        except Exception as error:
            sys.stderr.write(f"{client} | {name} | FAILED | {error!r}\n")
    probe.close()
    return found


def main(wanted: list[str]) -> None:
    clients = wanted or list(PROBES)
    with tempfile.TemporaryDirectory() as folder:
        broker = locked_broker(Path(folder) / "broker")
        try:
            with ThreadPoolExecutor(3) as pool:
                done = {c: pool.submit(kinds, c, broker.ports, list(CASES)) for c in clients}
                print(f"| client | {' | '.join(COLUMNS)} |")
                print("|---" * (len(COLUMNS) + 1) + "|")
                for client, future in done.items():
                    try:
                        found = future.result()
                    except ToolMissing as missing:
                        print(f"{client}: {missing}")
                        continue
                    cells = []
                    for column in COLUMNS:
                        names = {found.get(n, "") for n, c in CASES.items() if c.column == column}
                        cells.append(" or ".join(f"`{each}`" for each in sorted(names)))
                    print(f"| {client} | {' | '.join(cells)} |")
                    for name, case in CASES.items():
                        if not case.column and found.get(name) != IN:
                            print(f"{client}: {name}: {found.get(name)}")
        finally:
            broker.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
