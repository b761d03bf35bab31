"""What it costs to read the records of producers: kwire.record.validation=full beside header.

    python -m bench.validation [--seconds 2]

Two brokers, asked in turns by one client: CPU time of the broker per request (from /proc) and the
median latency, for batches of one record and of a thousand. Ratios are what to look at.
"""

from __future__ import annotations

import os
import random
import statistics
import struct
import tempfile
import time
from pathlib import Path

from compat_tests.brokers import KwireBroker
from compat_tests.record_dialogue import SocketClient
from kwire.protocol import api
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

ROUNDS = 8
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def batches() -> dict[str, bytes]:
    """Batches of 100-byte values: alike (one size, as of a load generator), and varied as JSON is."""
    draw = random.Random(7)
    words = [draw.randbytes(draw.randrange(3, 9)).hex().encode() for _ in range(300)]
    now_ms = int(time.time() * 1000)

    def records(count: int, varied: bool) -> list[Record]:
        return [
            Record(
                -1,
                now_ms + i // 50,
                b"key-%06d" % i,
                b" ".join(draw.choices(words, k=8 + draw.randrange(5) * varied))[
                    : None if varied else 100
                ].ljust(100),
            )
            for i in range(count)
        ]

    found = {"1 record": build_batch(records(1, False))}
    for varied, name in ((False, "alike"), (True, "varied")):
        for codec in ("none", "lz4", "zstd", "gzip", "snappy"):
            found[f"1000 {name}, {codec}"] = build_batch(records(1000, varied), compression=codec)
    return found


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def frame(batch: bytes) -> bytes:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])
    return b"".join(bytes(part) for part in api.encode_request(0, 9, 1, "bench", request))


def produce(client: SocketClient, request: bytes, count: int, times: list[float]) -> None:
    for _ in range(count):
        began = time.perf_counter()
        client.socket.sendall(request)
        (size,) = struct.unpack(">i", client.exactly(4))
        answer = client.exactly(size)
        times.append(time.perf_counter() - began)
    response = api.parse_response(0, 9, answer)[1]
    assert response.responses[0].partition_responses[0].error_code == 0


def main() -> None:
    print(f"{'batch':22} {'bytes':>7} | {'µs CPU a request':>20} | {'p50 µs':>15} |")
    print(
        f"{'':22} {'':>7} | {'header':>6} {'full':>6} {'ratio':>6} | {'header':>7} {'full':>7} | ns a record"
    )
    with tempfile.TemporaryDirectory() as folder:
        brokers = {}
        for mode in ("header", "full"):
            config = {"kwire.record.validation": mode, "log.retention.bytes": str(64 << 20)}
            config["log.segment.bytes"] = str(32 << 20)
            brokers[mode] = KwireBroker(Path(folder) / mode, config)
            brokers[mode].start()
        try:
            clients = {mode: SocketClient(broker.port) for mode, broker in brokers.items()}
            for client in clients.values():
                topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
                client.ask(19, 5, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
            for name, batch in batches().items():
                request, count = frame(batch), 4000 if name == "1 record" else 60
                for client in clients.values():
                    produce(client, request, 20, [])
                spent = dict.fromkeys(clients, 0.0)
                times: dict[str, list[float]] = {mode: [] for mode in clients}
                for _ in range(ROUNDS):
                    for mode, client in clients.items():
                        began = cpu_s(brokers[mode].pid)
                        produce(client, request, count, times[mode])
                        spent[mode] += cpu_s(brokers[mode].pid) - began
                cpu = {mode: total / ROUNDS / count * 1e6 for mode, total in spent.items()}
                p50 = {mode: statistics.median(each) * 1e6 for mode, each in times.items()}
                records = 1 if name == "1 record" else 1000
                print(
                    f"{name:22} {len(batch):7} | {cpu['header']:6.0f} {cpu['full']:6.0f}"
                    f" {cpu['full'] / max(cpu['header'], 1):6.2f} | {p50['header']:7.0f} {p50['full']:7.0f}"
                    f" | {(p50['full'] - p50['header']) * 1000 / records:.0f}",
                    flush=True,
                )
        finally:
            for broker in brokers.values():
                broker.kill9()


if __name__ == "__main__":
    main()
