"""What sendfile would save a fetch: `pread` + `send`, as kwire does, beside `sendfile`, same bytes.

    python bench/sendfile.py [--mib 256]

A file in the page cache goes through a loopback connection in pieces of one size to a process that
throws it away. CPU is the sender's own, user and system, per MB; both ways take turns, the least of
the rounds counts. The last row is a fetch of kwire's: its CPU per MB is what `make bench` says.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SIZES = (4 << 10, 64 << 10, 1 << 20, 4 << 20)
ROUNDS = 5


def by_pread(out: socket.socket, file: int, size: int, total: int) -> None:
    for offset in range(0, total, size):
        out.sendall(os.pread(file, size, offset))


def by_sendfile(out: socket.socket, file: int, size: int, total: int) -> None:
    for offset in range(0, total, size):
        sent = 0
        while sent < size:
            sent += os.sendfile(out.fileno(), file, offset + sent, size - sent)


def reader() -> tuple[int, socket.socket]:
    """A child process that reads until the end, and the socket to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        pid = os.fork()
        if pid == 0:
            try:
                with socket.create_connection(server.getsockname()) as connection:
                    buffer = bytearray(1 << 20)
                    while connection.recv_into(buffer):
                        pass
            finally:
                os._exit(0)
        connection, _ = server.accept()
    return pid, connection


def cpu_ms_per_mb(
    send: Callable[[socket.socket, int, int, int], None], file: int, size: int, total: int
) -> float:
    pid, connection = reader()
    with connection:
        before = time.process_time()
        send(connection, file, size, total)
        used = time.process_time() - before
    os.waitpid(pid, 0)
    return used * 1000 / (total / 1e6)


def measure(mib: int, folder: str | None = None) -> list[tuple[int, float, float]]:
    """(bytes a piece, ms of CPU per MB by pread + send, by sendfile) for each size."""
    total = mib << 20
    with tempfile.TemporaryFile(dir=folder) as stored:
        for _ in range(mib):
            stored.write(os.urandom(1 << 20))
        stored.flush()
        found = []
        for size in SIZES:
            least = {by_pread: 1e9, by_sendfile: 1e9}
            for _ in range(ROUNDS):
                for send in least:
                    least[send] = min(
                        least[send], cpu_ms_per_mb(send, stored.fileno(), size, total)
                    )
            found.append((size, least[by_pread], least[by_sendfile]))
    return found


def table(found: list[tuple[int, float, float]]) -> list[list[str]]:
    lines = [["bytes a piece", "pread + send, CPU ms/MB", "sendfile, CPU ms/MB", "ratio"]]
    for size, copied, sent in found:
        lines.append([f"{size >> 10} KiB", f"{copied:.3f}", f"{sent:.3f}", f"{copied / sent:.1f}"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=256, help="MiB of the file")
    options = parser.parse_args()
    for line in table(measure(options.mib)):
        print("  ".join(cell.rjust(24) for cell in line))


if __name__ == "__main__":
    if not Path("/proc/self").exists():
        raise SystemExit("bench/sendfile.py: Linux only")
    main()
