"""kafka-producer-perf-test and kafka-consumer-perf-test of the image, for smoke tests and load scripts.

Corresponds to org.apache.kafka.tools.ProducerPerformance and ConsumerPerformance, in their lines. One
request is in flight at a time, so this measures a client of kwire's, not what the broker can do.
"""

from __future__ import annotations

import sys
import time
from itertools import cycle

from kwire.client.admin import EARLIEST, LATEST
from kwire.docker.client import ToolError
from kwire.docker.console import Reading, send_records
from kwire.protocol.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kwire.docker.options import Options

_BATCH_BYTES = 64 << 10
_BATCH_RECORDS = 1000
_REPORT_SECONDS = 5.0
_MEBIBYTE = 1 << 20
_PERCENTILES = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))
_CONSUMER_HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,"
    " rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def producer_performance(options: Options) -> None:
    """Produce records as fast as asked for, and print rates and latencies."""
    topic = options.need("topic")
    options.need("num-records")
    total = options.number("num-records", 0)
    throughput = options.number("throughput", -1)
    values = _payloads(options)
    servers = options.assignments("producer-props").get("bootstrap.servers")
    client = options.client(servers=servers)
    leaders = sorted(client.leaders(topic, create=True).items())
    figures = _Latencies()
    for turn, records in enumerate(_batches(values, total, throughput)):
        began = time.monotonic()
        send_records(client, topic, leaders, {turn % len(leaders): records})
        size = sum(len(record.value or b"") for record in records)
        figures.add(time.monotonic() - began, len(records), size)
        if throughput > 0:
            time.sleep(max(0.0, figures.records / throughput - figures.seconds))
    figures.print_total()


def _payloads(options: Options) -> Iterator[bytes]:
    """The values to send, without an end. ToolError."""
    path = options.get("payload-file")
    if path is None:
        options.need("record-size")
        size = options.number("record-size", 0)
        if size < 1:
            raise ToolError(f"--record-size {size}: expected 1 or more")
        return cycle(
            [
                (
                    b"SSXVNJHPDQDXVCRASTVYBCWVMGNYKRXVZXKGXTSPSJDGYLUEGQFLAQLOCFLJ"
                    * (size // 60 + 1)
                )[:size]
            ]
        )
    delimiter = (options.get("payload-delimiter") or "\\n").replace("\\n", "\n").encode()
    try:
        with open(path, "rb") as file:
            lines = [line for line in file.read().split(delimiter) if line]
    except OSError as error:
        raise ToolError(f"--payload-file {path}: {error.strerror}") from None
    if not lines:
        raise ToolError(f"--payload-file {path}: it is empty")
    return cycle(lines)


def _batches(values: Iterator[bytes], total: int, throughput: int) -> Iterator[list[Record]]:
    """Lists of records for one request each; at a low `throughput` small ones."""
    most = min(_BATCH_RECORDS, max(1, throughput // 10)) if throughput > 0 else _BATCH_RECORDS
    while total > 0:
        records: list[Record] = []
        size = 0
        now_ms = time.time_ns() // 1_000_000
        while len(records) < min(most, total) and (size < _BATCH_BYTES or not records):
            value = next(values)
            records.append(Record(-1, now_ms, None, value, []))
            size += len(value)
        total -= len(records)
        yield records


class _Latencies:
    """Records, bytes and latencies so far; prints a line every few seconds, and at the end."""

    def __init__(self) -> None:
        self._began = self._window_began = time.monotonic()
        self.records = self._bytes = 0
        self._found: list[tuple[float, int]] = []  # milliseconds, and how many records had them
        self._window = 0  # the first of `_found` that no line has told

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    def add(self, seconds: float, records: int, size: int) -> None:
        """Count the records of one request."""
        self.records += records
        self._bytes += size
        self._found.append((seconds * 1000, records))
        now = time.monotonic()
        if now - self._window_began >= _REPORT_SECONDS:
            window = self._found[self._window :]
            count = sum(each for _, each in window)
            share = self._bytes * count / self.records
            sys.stdout.write(_figures(window, share, now - self._window_began) + ".\n")
            sys.stdout.flush()
            self._window, self._window_began = len(self._found), now

    def print_total(self) -> None:
        line = _figures(self._found, self._bytes, self.seconds)
        for share, name in _PERCENTILES:
            line += f", {_percentile(self._found, share):.0f} ms {name}"
        sys.stdout.write(line + ".\n")


def _figures(found: list[tuple[float, int]], size: float, seconds: float) -> str:
    count = sum(each for _, each in found)
    mean = sum(ms * each for ms, each in found) / max(1, count)
    most = max((ms for ms, _ in found), default=0.0)
    seconds = max(seconds, 1e-6)
    return (
        f"{count} records sent, {count / seconds:.6f} records/sec"
        f" ({size / seconds / _MEBIBYTE:.2f} MB/sec), {mean:.2f} ms avg latency,"
        f" {most:.2f} ms max latency"
    )


def _percentile(found: list[tuple[float, int]], share: float) -> float:
    left = share * sum(each for _, each in found)
    for ms, each in sorted(found):
        left -= each
        if left <= 0:
            return ms
    return 0.0


def consumer_performance(options: Options) -> None:
    """Consume records from the start, and print rates."""
    topic = options.need("topic")
    options.need("messages")
    wanted = options.number("messages", 0)
    patience = options.number("timeout", 10_000) / 1000
    client = options.client()
    began = last = time.time()
    reading = Reading(client, None)
    reading.add(topic, None, LATEST if "from-latest" in options else EARLIEST)
    joined = time.time()
    count = size = 0
    while count < wanted and time.time() - last <= patience:
        for _, record, _kind in reading.poll():
            count += 1
            size += len(record.key or b"") + len(record.value or b"")
            last = time.time()
    ended = time.time()
    if "hide-header" not in options:
        sys.stdout.write(_CONSUMER_HEADER + "\n")
    fetching = max(ended - joined, 1e-6)
    seconds, megabytes = max(ended - began, 1e-6), size / _MEBIBYTE
    cells = [_stamp(began), _stamp(ended), f"{megabytes:.4f}", f"{megabytes / seconds:.4f}", count]
    cells += [f"{count / seconds:.4f}", round((joined - began) * 1000), round(fetching * 1000)]
    cells += [f"{megabytes / fetching:.4f}", f"{count / fetching:.4f}"]
    sys.stdout.write(", ".join(map(str, cells)) + "\n")
    if count < wanted:
        sys.stderr.write(
            f"WARNING: Exiting before consuming the expected number of messages: timeout"
            f" ({patience * 1000:.0f} ms) exceeded. You can use the --timeout option to increase"
            " the timeout.\n"
        )


def _stamp(seconds: float) -> str:
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    return f"{text}:{int(seconds * 1000) % 1000:03d}"
