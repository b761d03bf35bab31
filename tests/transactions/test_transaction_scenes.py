"""kwire plays the scenes of transactions and answers as Apache Kafka 3.9.1 (TV1) and 4.3.1 (TV2, KIP-890) did."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from txn_differences import KNOWN, Known
from txn_scenes import PARTS, play

from kwire.apis import BY_KEY
from kwire.apis.releases import release_ranges
from kwire.broker import Broker
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.protocol.schemas.transactions import InitProducerIdRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Close, Outbox, Reply
from kwire.replication.log.log import AppendOrigin, LogAppendInfo
from kwire.replication.replica.manager import ReplicaManager

DATA = Path(__file__).parent.parent / "data"
RELEASES = {
    "3.9.1": ("oldest", "fenced", "abortable"),
    "4.3.1": ("oldest", "abortable", "bumping"),
}
PATIENCE_MS = 10_000


class BrokerTalker:
    """A whole broker without sockets, and a clock that jumps to the next deadline while a request waits."""

    def __init__(self, release: str, settings: dict[str, str]) -> None:
        self.ranges = release_ranges(release)
        self.clock = Clock(1_000_000, 1_795_000_000_000)
        self.outbox = Outbox()
        self.config = BrokerConfig(settings | {"node.id": "1"})
        self.store = MemoryLogStore(lambda: self.clock.wall_ms)
        self.start()
        self.held: set[str] = set()
        for kind in (0, 1):
            self.ask(3, FindCoordinatorRequest(key="a", key_type=kind))
        # Producer id 0 is taken: it stands in answers without one, too.
        self.ask(4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000))

    def start(self) -> None:
        self.broker = Broker(
            self.config, self.store, self.clock, self.outbox, Random(1), api_caps=self.ranges
        )
        self.broker.start([Endpoint("PLAINTEXT", "localhost", 9092)])
        self.broker.connection_opened(1, "PLAINTEXT", "127.0.0.1")

    def ask(self, version: int, request: Any) -> Any:
        key = api.key_of(request)
        parts = api.encode_request(key, version, 1, "cl", request)
        self.broker.receive_frame(1, b"".join(bytes(part) for part in parts)[4:])
        end_ms = self.clock.now_ms + PATIENCE_MS
        while True:
            for effect in self.outbox.drain():
                if isinstance(effect, Reply):
                    data = b"".join(bytes(part) for part in effect.parts)
                    return api.parse_response(key, version, data[4:])[1]
                assert not isinstance(effect, Close), f"closed by {request}"
            deadline_ms = self.broker.next_deadline_ms()
            assert deadline_ms is not None and deadline_ms < end_ms, f"no answer to {request}"
            self._tick(deadline_ms)

    def pass_ms(self, delay_ms: int) -> None:
        end_ms = self.clock.now_ms + delay_ms
        while (due_ms := self.broker.next_deadline_ms()) is not None and due_ms <= end_ms:
            self._tick(due_ms)
        self._move(end_ms)

    def hold(self, topic: str) -> None:
        self.held.add(topic)
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        self.ask(5, CreateTopicsRequest(topics=[wanted], timeout_ms=1_000))

    def release(self, topic: str) -> None:
        self.held.remove(topic)
        self.pass_ms(2_000)

    def wear_out(self, tid: str, epoch: int) -> int:
        """One request in place of thousands: the epoch before the wanted one is put in."""
        request = InitProducerIdRequest(transactional_id=tid, transaction_timeout_ms=60_000)
        self.ask(4, request)
        for known in self.broker.services.transactions.all_transactions():
            for metadata in known:
                if metadata.transactional_id == tid:
                    metadata.values = replace(metadata.values, producer_epoch=epoch - 1)
        answer = self.ask(4, request)
        assert answer.producer_epoch == epoch
        return int(answer.producer_id)

    def restart(self) -> None:
        """As after kill -9: what was written is there, though not flushed."""
        self.store.crash(lambda unflushed: unflushed)
        self.outbox.drain()
        self.start()

    def _tick(self, now_ms: int) -> None:
        self._move(now_ms)
        self.broker.tick()

    def _move(self, now_ms: int) -> None:
        self.clock.wall_ms += max(now_ms - self.clock.now_ms, 0)
        self.clock.now_ms = max(now_ms, self.clock.now_ms)


def hold_markers(talker: BrokerTalker, patch: pytest.MonkeyPatch) -> None:
    """Refuse the markers of held topics as a partition does that has too few replicas in sync."""
    append = ReplicaManager.append_records

    def append_unless_held(manager: ReplicaManager, **arguments: Any) -> None:
        entries, complete = arguments["entries"], arguments["on_complete"]
        refused = {}
        if arguments["origin"] is AppendOrigin.COORDINATOR:
            for key in entries:
                if key[0] in talker.held:
                    refused[key] = LogAppendInfo(-1, -1, -1, -1, False, 0)
                    refused[key].error = ErrorCode.NOT_ENOUGH_REPLICAS
        arguments["entries"] = {key: entries[key] for key in entries if key not in refused}
        arguments["on_complete"] = lambda results: complete({**results, **refused})
        append(manager, **arguments)

    patch.setattr(ReplicaManager, "append_records", append_unless_held)


@cache
def recorded(release: str) -> dict[str, list[list[Any]]]:
    """Kafka's lines by scene and profile."""
    scenes: dict[str, list[list[Any]]] = {}
    data = gzip.decompress((DATA / f"transactions-{release}.jsonl.gz").read_bytes())
    for line in data.decode().splitlines():
        scene, label, answer = json.loads(line)
        scenes.setdefault(scene, []).append([label, answer])
    return scenes


def differences(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in {**ours, **theirs}:
            yield from differences(ours.get(name), theirs.get(name), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(our, their, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path}: Kafka {json.dumps(theirs)}, kwire {json.dumps(ours)}"


def compare(release: str, scene: str, lines: list[str]) -> list[str]:
    """The differences that are not known; those that are, are noted in `met`."""
    ours = [json.loads(line)[1:] for line in lines]
    theirs = recorded(release)[scene]
    found = []
    for number, ((label, our), (_, their)) in enumerate(zip(ours, theirs, strict=False)):
        for difference in differences(our, their, f"{number} {label} "):
            known = {each for each in KNOWN if each.covers(release, scene, difference)}
            met.update(known)
            if not known:
                found.append(difference)
    labels = [label for label, _ in ours], [label for label, _ in theirs]
    if labels[0] != labels[1]:
        found.append(f"kwire's scene has the lines {labels[0]}, Kafka's {labels[1]}")
    return found


met: set[Known] = set()
played: set[tuple[str, str]] = set()


def cases() -> Iterator[Any]:
    for release, profiles in RELEASES.items():
        for settings, wanted, scenes in PARTS:
            for scene in scenes:
                for profile in profiles[wanted]:
                    name = f"{scene.__name__} ({profile})"
                    yield pytest.param(release, settings, scene, profile, id=f"{release}-{name}")


whole = pytest.mark.skipif(
    ApiKey.TXN_OFFSET_COMMIT not in BY_KEY or BY_KEY[ApiKey.END_TXN].max_version < 5,
    reason="transactions are not whole yet",
)


@whole
@pytest.mark.parametrize(("release", "settings", "scene", "profile"), list(cases()))
def test_kwire_answers_as_kafka_does(
    release: str,
    settings: dict[str, str],
    scene: Any,
    profile: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talker = BrokerTalker(release, settings)
    hold_markers(talker, monkeypatch)
    lines = play(talker, scene, profile)
    name = f"{scene.__name__} ({profile})"
    if lines or name in recorded(release):
        assert compare(release, name, lines) == []
    assert talker.broker.failed == []
    played.add((release, name))


@whole
def test_every_known_difference_occurs() -> None:
    if len(played) < len(list(cases())):
        pytest.skip("not all scenes were played")
    assert [known for known in KNOWN if known not in met] == []
