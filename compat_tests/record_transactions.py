"""Plays tests/transactions/txn_scenes.py to real Kafkas and writes down what they answer.

    .venv/bin/python -m compat_tests.record_transactions [3.9.1|4.3.1] [SCENE…]

3.9.1 has transactions of version 1 (TV1), 4.3.1 of version 2 (KIP-890). With names of scenes nothing is written: their
lines are printed. A broker 2 is registered that does not exist: a topic that has a replica there and wants two in sync
takes no markers.
"""

from __future__ import annotations

import gzip
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from compat_tests.brokers import CLUSTER_ID, RealKafka, RealKafka4
from compat_tests.record_dialogue import SocketClient
from kwire.protocol import api
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kwire.protocol.schemas.groups import FindCoordinatorRequest, HeartbeatRequest
from kwire.protocol.schemas.nodes import BrokerRegistrationRequest, Feature, Listener
from kwire.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kwire.protocol.schemas.transactions import InitProducerIdRequest

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
PROFILES = {
    "3.9.1": ("oldest", "fenced", "abortable"),
    "4.3.1": ("oldest", "abortable", "bumping"),
}
FEATURES = (
    "metadata.version",
    "kraft.version",
    "transaction.version",
    "group.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
)
TOPIC = 2
CONCURRENT_TRANSACTIONS = 51
SETTLE_S = 0.5


class KafkaTalker:
    """A running Kafka over one connection."""

    def __init__(self, broker: RealKafka) -> None:
        self._broker = broker
        self._client = SocketClient(broker.port)
        self._controller = SocketClient(broker.controller_port)
        keys = self.ask(
            3, ApiVersionsRequest(client_software_name="kwire", client_software_version="1")
        ).api_keys
        self.ranges = {key.api_key: (key.min_version, key.max_version) for key in keys}

    def ask(self, version: int, request: Any) -> Any:
        return self._client.ask(api.key_of(request), version, request)

    def pass_ms(self, delay_ms: int) -> None:
        time.sleep(delay_ms / 1000)

    def hold(self, topic: str) -> None:
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        answer = self.ask(5, CreateTopicsRequest(topics=[wanted], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0, answer

    def release(self, topic: str) -> None:
        config = IncrementalAlterableConfig(
            name="min.insync.replicas", config_operation=0, value="1"
        )
        resource = IncrementalAlterConfigsResource(
            resource_type=TOPIC, resource_name=topic, configs=[config]
        )
        answer = self.ask(1, IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0, answer
        time.sleep(SETTLE_S)

    def wear_out(self, tid: str, epoch: int) -> int:
        request = InitProducerIdRequest(transactional_id=tid, transaction_timeout_ms=60_000)
        while True:
            answer = self.ask(4, request)
            if answer.error_code == 0 and answer.producer_epoch == epoch:
                return int(answer.producer_id)
            assert answer.error_code in (0, CONCURRENT_TRANSACTIONS), answer

    def restart(self) -> None:
        self._broker.kill9()
        self._broker.start()
        self._client.connect()
        self._controller.connect()
        self.warm_up()

    def register_a_phantom(self) -> None:
        request = BrokerRegistrationRequest(
            broker_id=2,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes(range(16)),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=0, max_supported_version=100)
                for name in FEATURES
            ],
            rack=None,
            log_dirs=[bytes(range(16, 32))],
        )
        answer = self._controller.ask(api.key_of(request), 4, request)
        assert answer.error_code == 0, answer

    def warm_up(self) -> None:
        """Wait until every coordinator's partition is led and loaded: a, b and c are one each."""
        for word in "abc":
            for kind in (0, 1):
                while self.ask(3, FindCoordinatorRequest(key=word, key_type=kind)).error_code:
                    time.sleep(0.1)
            request = InitProducerIdRequest(transactional_id=word, transaction_timeout_ms=1000)
            while self.ask(4, request).error_code:
                time.sleep(0.1)
            while self.ask(0, HeartbeatRequest(group_id=word)).error_code in (14, 15, 16):
                time.sleep(0.1)


def record(version: str, chosen: list[str]) -> list[str]:
    lines = []
    for settings, profiles, scenes in importlib.import_module("txn_scenes").PARTS:
        wanted = [scene for scene in scenes if not chosen or scene.__name__ in chosen]
        if wanted:
            lines += record_part(version, settings, PROFILES[version][profiles], wanted)
    return lines


def record_part(
    version: str, settings: dict[str, str], profiles: tuple[str, ...], scenes: list[Any]
) -> list[str]:
    play = importlib.import_module("txn_scenes").play
    with tempfile.TemporaryDirectory(prefix="kwire-txn-") as folder:
        settings = settings | {"group.coordinator.rebalance.protocols": "classic,consumer"}
        kind = RealKafka4 if version == RealKafka4.version else RealKafka
        broker = kind(Path(folder) / "kafka", settings)
        broker.heap_mb = 400
        broker.start()
        try:
            talker = KafkaTalker(broker)
            talker.register_a_phantom()
            talker.warm_up()
            lines = []
            for scene in scenes:
                for profile in profiles:
                    lines += play(talker, scene, profile)
            return lines
        finally:
            broker.kill9()


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "transactions"))
    versions = [word for word in sys.argv[1:] if word in PROFILES] or list(PROFILES)
    chosen = [word for word in sys.argv[1:] if word not in PROFILES]
    for version in versions:
        started = time.monotonic()
        lines = record(version, chosen)
        if chosen:
            print("\n".join(lines))
            continue
        path = DATA / f"transactions-{version}.jsonl.gz"
        text = "".join(line + "\n" for line in lines)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        took = time.monotonic() - started
        print(f"{len(lines)} answers in {path}, {path.stat().st_size} bytes, {took:.0f} s")
        scenes = {json.loads(line)[0] for line in lines}
        print(f"{len(scenes)} scenes")


if __name__ == "__main__":
    main()
