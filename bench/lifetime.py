"""What a broker's start, first use and stop cost: CPU time and wall time of its process.

    python bench/lifetime.py                       10 brokers of this checkout
    python bench/lifetime.py --kwire VENV/bin/kwire --runs 20
    python bench/lifetime.py --partitions 1000 --write --keep

"start": exec to the first Metadata response. "first use": create a topic, produce to it, join a
group, fetch, commit and leave, with the newest versions that the broker serves; "again" is the same
once more, with another topic and group. "stop": SIGTERM to the end of the process. CPU is the
broker's own, to the nanosecond (/proc/PID/task/*/schedstat); the minimum counts on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kwire.client.connection import Connection
from kwire.protocol.api import key_of
from kwire.protocol.language.schema import Message
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas import (
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    topics,
    transactions,
)

GROUP_BYTES = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"


class Client:
    """One connection that asks with the newest versions that both sides have."""

    def __init__(self, port: int) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.0005)
        self.connection = Connection("lifetime")

    def ask(self, request: Message, version: int | None = None) -> Any:
        if version is None:
            if self.connection.ranges is None:
                self._carry(self.connection._ask_ranges())
            assert self.connection.ranges is not None
            version = min(self.connection.ranges[key_of(request)][1], type(request).versions[1])
        return self._carry(self.connection.ask(request, version))

    def _carry(self, exchange: Any) -> Any:
        received = None
        try:
            while True:
                data = exchange.send(received)
                received = None
                if data is None:
                    received = self.socket.recv(1 << 20)
                else:
                    self.socket.sendall(data)
        except StopIteration as done:
            return done.value


def flow(client: Client, name: str) -> None:
    """A producer and a consumer of one record, as franz-go speaks."""
    client.ask(
        topics.CreateTopicsRequest(
            timeout_ms=5000,
            topics=[topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
        )
    )
    answer = client.ask(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)]))
    topic_id = answer.topics[0].topic_id
    producer = client.ask(
        transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
    )
    batch = build_batch(
        [Record(offset=0, timestamp=1, key=None, value=b"v" * 100)],
        producer_id=producer.producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    partition = produce.PartitionProduceData(index=0, records=batch)
    written = client.ask(
        produce.ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                produce.TopicProduceData(name=name, topic_id=topic_id, partition_data=[partition])
            ],
        )
    )
    assert written.responses[0].partition_responses[0].error_code == 0, written
    while True:
        found = client.ask(groups.FindCoordinatorRequest(key_type=0, coordinator_keys=[name]))
        if not found.coordinators[0].error_code:
            break
        time.sleep(0.002)
    protocol = groups.JoinGroupRequestProtocol(name="range", metadata=GROUP_BYTES)
    member = ""
    while True:
        joined = client.ask(
            groups.JoinGroupRequest(
                group_id=name,
                session_timeout_ms=10000,
                rebalance_timeout_ms=10000,
                member_id=member,
                protocol_type="consumer",
                protocols=[protocol],
            )
        )
        member = joined.member_id
        if not joined.error_code:
            break
        time.sleep(0.002)
    generation = joined.generation_id
    synced = client.ask(
        groups.SyncGroupRequest(
            group_id=name,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                groups.SyncGroupRequestAssignment(member_id=member, assignment=GROUP_BYTES)
            ],
        )
    )
    assert not synced.error_code
    client.ask(
        offsets.OffsetFetchRequest(
            require_stable=True,
            groups=[
                offsets.OffsetFetchRequestGroup(
                    group_id=name,
                    topics=[
                        offsets.OffsetFetchRequestTopics(
                            name=name, topic_id=topic_id, partition_indexes=[0]
                        )
                    ],
                )
            ],
        )
    )
    client.ask(
        offsets.ListOffsetsRequest(
            topics=[
                offsets.ListOffsetsTopic(
                    name=name,
                    partitions=[offsets.ListOffsetsPartition(partition_index=0, timestamp=-2)],
                )
            ]
        )
    )
    fetched = client.ask(
        fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                fetch.FetchTopic(
                    topic=name,
                    topic_id=topic_id,
                    partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1 << 20)],
                )
            ],
        )
    )
    assert bytes(fetched.responses[0].partitions[0].records)
    client.ask(groups.HeartbeatRequest(group_id=name, generation_id=generation, member_id=member))
    committed = client.ask(
        offsets.OffsetCommitRequest(
            group_id=name,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[
                offsets.OffsetCommitRequestTopic(
                    name=name,
                    topic_id=topic_id,
                    partitions=[
                        offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
                    ],
                )
            ],
        )
    )
    assert not committed.topics[0].partitions[0].error_code
    client.ask(
        groups.LeaveGroupRequest(
            group_id=name, members=[groups.MemberIdentity(member_id=member, reason="done")]
        )
    )


def cpu_ms(pid: int) -> float:
    """CPU time of a process and of its ended and running threads, in milliseconds."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e6


class Run:
    """One broker from exec to exit; `figures` by name, in milliseconds."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.figures: dict[str, float] = {}
        self.folder = tempfile.mkdtemp(prefix="lifetime-")

    def measure(self) -> dict[str, float]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [*shlex.split(self.options.kwire), "up", "--port", str(port)]
        if self.options.keep:
            command += ["--data-dir", f"{self.folder}/data"]
        command += ["--log-level", "error", *self.options.argument]
        began = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, cwd=self.options.cwd, env=self.options.env
        )
        try:
            client = Client(port)
            client.ask(metadata.MetadataRequest(topics=[]), 12)
            self.figures["start wall"] = (time.perf_counter() - began) * 1e3
            self.figures["start cpu"] = cpu_ms(process.pid)
            if not self.options.partitions:
                for name in ("first use", "again"):
                    self.timed(name, process.pid, lambda name=name: flow(client, name[:5]))
            else:
                self.fill(client)
            if self.options.close:
                client.socket.close()
        finally:
            before = cpu_ms(process.pid)
            began = time.perf_counter()
            process.send_signal(signal.SIGTERM)
            _, status, usage = os.wait4(process.pid, 0)
            self.figures["stop wall"] = (time.perf_counter() - began) * 1e3
            process.returncode = os.waitstatus_to_exitcode(status)
            total = (usage.ru_utime + usage.ru_stime) * 1e3
            self.figures["stop cpu"] = total - before
            shutil.rmtree(self.folder)
        assert process.returncode == 0, process.returncode
        return self.figures

    def timed(self, name: str, pid: int, action: Callable[[], None]) -> None:
        before, began = cpu_ms(pid), time.perf_counter()
        action()
        self.figures[f"{name} wall"] = (time.perf_counter() - began) * 1e3
        time.sleep(0.01)  # what follows the last answer
        self.figures[f"{name} cpu"] = cpu_ms(pid) - before

    def fill(self, client: Client) -> None:
        """Create the partitions, and write a record to each with --write."""
        left, number = self.options.partitions, 0
        while left:
            count = min(left, self.options.per_topic)
            name = f"t{number}"
            topic = topics.CreatableTopic(name=name, num_partitions=count, replication_factor=-1)
            created = client.ask(topics.CreateTopicsRequest(timeout_ms=60000, topics=[topic]))
            assert created.topics[0].error_code == 0, created
            if self.options.write:
                batch = build_batch([Record(offset=0, timestamp=1, key=None, value=b"v" * 100)])
                data = [
                    produce.PartitionProduceData(index=index, records=batch)
                    for index in range(count)
                ]
                topic = produce.TopicProduceData(name=name, partition_data=data)
                request = produce.ProduceRequest(acks=-1, timeout_ms=60000, topic_data=[topic])
                written = client.ask(request, 12)
                assert not any(each.error_code for each in written.responses[0].partition_responses)
            left -= count
            number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kwire", help="the command; default: this checkout's")
    parser.add_argument("--partitions", type=int, default=0, help="measure a stop with so many")
    parser.add_argument("--per-topic", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="a record to each partition")
    parser.add_argument("--keep", action="store_true", help="a data directory that is kept")
    parser.add_argument("--close", action="store_true", help="close the client before the stop")
    parser.add_argument("argument", nargs="*", help="further arguments of `kwire up`")
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    options.env = {**os.environ, "PYTHONPATH": str(root)}
    options.env.pop("PYTHONDONTWRITEBYTECODE", None)
    options.cwd = str(root)
    if options.kwire is None:
        options.kwire = f"{sys.executable} -m kwire"
    else:
        del options.env["PYTHONPATH"]
        options.cwd = tempfile.gettempdir()
    runs = [Run(options).measure() for _ in range(options.runs)]
    print(f"{'ms':16}{'min':>9}{'median':>9}")
    for name in runs[0]:
        values = [run[name] for run in runs]
        print(f"{name:16}{min(values):9.1f}{statistics.median(values):9.1f}")


if __name__ == "__main__":
    main()
