"""`python -m compat_tests.fault_clients.page`: try all cases with all clients; write the table of docs/faults.md."""

from __future__ import annotations

import sys

from compat_tests.fault_clients.cases import (
    BEGIN,
    CASES,
    CLIENTS,
    CONFIG,
    END,
    PAGE,
    TOPIC,
    attempt,
    start,
    table,
    words,
)
from kwire import Cluster


def main() -> None:
    found = {}
    with Cluster(2, CONFIG, topics=[f"{TOPIC}:1:2"]) as cluster:
        for client in CLIENTS:
            process = start(client)
            for name, case in CASES.items():
                seen = attempt(cluster, process, client, name)
                found[name, client] = words(case, seen)
                sys.stderr.write(f"{client} | {name} | {found[name, client]} | {seen}\n")
            process.close()
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}")


if __name__ == "__main__":
    main()
