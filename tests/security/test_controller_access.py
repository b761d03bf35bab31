"""Dedicated controllers with an authorizer: who may act as a node there, and whose requests brokers forward."""

from __future__ import annotations

from asyncio import run
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from test_access import STANDARD
from test_peers import keys_of, two_brokers

from kwire import Cluster
from kwire.apis.access.table import AMONG_NODES
from kwire.apis.controller_plane import BY_KEY
from kwire.client.streams import ask
from kwire.controller_node import ControllerNode
from kwire.launch.spec import ClusterSpec, NodeSpec
from kwire.protocol import api
from kwire.protocol.api import ApiKey, request_class
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
)
from kwire.protocol.schemas.cluster import DescribeClusterRequest
from kwire.protocol.schemas.control_plane import EnvelopeRequest, LeaderAndIsrRequest
from kwire.protocol.schemas.nodes import BrokerRegistrationRequest
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.acls import (
    ALLOW,
    ANY,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    LITERAL,
    TOPIC,
)
from kwire.replication.core.clock import Clock
from kwire.replication.core.events import Event
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Log, Outbox, Reply
from kwire.replication.core.principals import principal_bytes
from kwire.replication.core.types import INTERNAL_LISTENER
from kwire.security.access_rules import with_acls
from kwire.security.client import Access, Credentials
from kwire.security.options import with_logins
from kwire.server.errors import NodeError

NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
IPV4, IPV6 = bytes([10, 1, 2, 3]), bytes(15) + b"\1"


class Rig:
    """A controller without brokers. Whoever connects is the user that a test says."""

    def __init__(self, store: MemoryLogStore | None = None, **options: Any) -> None:
        self.clock = Clock(now_ms=1000, wall_ms=1_700_000_000_000)
        self.outbox = Outbox(self.clock)
        keys = {"authorizer.class.name": STANDARD, "super.users": "User:broker;User:admin"}
        config = BrokerConfig({"node.id": "1000", **keys}, brokers=1)
        self.store = store or MemoryLogStore()
        self.node = ControllerNode(
            config, self.store, self.clock, self.outbox, Random(1), cluster_id="here", **options
        )
        self.connections = 0
        self.logged: list[Log] = []

    def start(self) -> Rig:
        self.node.start([Endpoint("CONTROLLER", "here", 9090)])
        self.outbox.drain()
        return self

    def ask(
        self, user: str, request: Any, version: int | None = None, listener: str = "CONTROLLER"
    ) -> Any:
        key = ApiKey(api.key_of(request))
        version = BY_KEY[key].max_version if version is None else version
        self.connections += 1
        session = self.node.connection_opened(self.connections, listener, "10.0.0.1")
        session.principal = f"User:{user}"
        parts = api.encode_request(key, version, 7, "me", request)
        self.node.receive_frame(self.connections, b"".join(map(bytes, parts))[4:])
        answer = None
        for effect in self.outbox.drain():
            if isinstance(effect, Reply) and effect.connection == self.connections:
                data = b"".join(map(bytes, effect.parts))[4:]
                answer = api.parse_response(key, version, data)[1]
            elif isinstance(effect, Log):
                self.logged.append(effect)
        return answer

    def forward(
        self, principal: str, request: Any, address: bytes = IPV4, sender: str = "broker"
    ) -> Any:
        """What a client gets whose request a broker forwards; an error code: what the broker gets."""
        key = ApiKey(api.key_of(request))
        version = BY_KEY[key].max_version
        parts = api.encode_request(key, version, 3, "me", request)
        envelope = EnvelopeRequest(
            request_data=b"".join(map(bytes, parts))[4:],
            request_principal=principal_bytes(principal),
            client_host_address=address,
        )
        answer = self.ask(sender, envelope, 0)
        if answer.error_code:
            return answer.error_code
        return api.parse_response(key, version, answer.response_data)[1]

    def allow(self, operation: int, kind: int = TOPIC, name: str = "t", host: str = "*") -> None:
        made = self.ask(
            "admin",
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=kind,
                        resource_name="kafka-cluster" if kind == CLUSTER else name,
                        resource_pattern_type=LITERAL,
                        principal="User:alice",
                        host=host,
                        operation=operation,
                        permission_type=ALLOW,
                    )
                ]
            ),
        )
        assert [each.error_code for each in made.results] == [0]


def every_rule_of(topic: str) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


@pytest.fixture
def rig() -> Rig:
    return Rig().start()


def creation(name: str = "t") -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=0)


def code_of(response: Any) -> int:
    (topic,) = response.topics
    return int(topic.error_code)


NO_BROKER = ErrorCode.INVALID_REPLICATION_FACTOR
"""What a client gets that may create topics: there is no broker for them."""


@pytest.mark.parametrize("key", [key for key in AMONG_NODES if key in BY_KEY])
def test_what_nodes_ask_of_a_controller_needs_cluster_action(rig: Rig, key: ApiKey) -> None:
    assert rig.ask("alice", request_class(key)()).error_code == NO_CLUSTER
    assert [(each.event, each.fields["principal"]) for each in rig.logged] == [
        (Event.NODE_UNAUTHORIZED, "User:alice")
    ]
    rig.ask("alice", request_class(key)())
    assert len(rig.logged) == 1
    assert rig.ask("broker", request_class(key)()).error_code != NO_CLUSTER
    rig.allow(CLUSTER_ACTION, CLUSTER)
    assert rig.ask("alice", request_class(key)()).error_code != NO_CLUSTER


def test_nodes_of_this_machine_are_trusted(rig: Rig) -> None:
    request = BrokerRegistrationRequest()
    assert rig.ask("ANONYMOUS", request).error_code == NO_CLUSTER
    answer = rig.ask("ANONYMOUS", request, listener=INTERNAL_LISTENER)
    assert answer.error_code != NO_CLUSTER
    assert code_of(rig.ask("alice", creation(), listener=INTERNAL_LISTENER)) == NO_BROKER


def test_a_client_that_connects_to_the_controller_needs_what_it_needs_at_a_broker(rig: Rig) -> None:
    assert code_of(rig.ask("alice", creation())) == NO_TOPIC
    rig.allow(CREATE)
    assert code_of(rig.ask("alice", creation())) == NO_BROKER
    assert code_of(rig.ask("alice", creation("other"))) == NO_TOPIC
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert rig.ask("alice", asked).cluster_authorized_operations == 0
    rig.allow(DESCRIBE, CLUSTER)
    assert rig.ask("alice", asked).cluster_authorized_operations == 1 << DESCRIBE


def test_topics_that_are_deleted_by_id_stay_unknown(rig: Rig) -> None:
    by_name = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=0)
    by_id = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=b"x" * 16)], timeout_ms=0
    )
    assert [each.error_code for each in rig.ask("alice", by_name).responses] == [NO_TOPIC]
    (answer,) = rig.ask("alice", by_id).responses
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    rig.allow(DELETE)
    (answer,) = rig.ask("alice", by_name).responses
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_forwarded_request_needs_the_rights_of_its_client(rig: Rig) -> None:
    assert code_of(rig.forward("User:alice", creation())) == NO_TOPIC
    assert code_of(rig.forward("User:ANONYMOUS", creation())) == NO_TOPIC
    assert code_of(rig.forward("User:admin", creation())) == NO_BROKER
    assert code_of(rig.forward("", creation())) == NO_BROKER  # the broker itself
    rig.allow(CREATE)
    assert code_of(rig.forward("User:alice", creation())) == NO_BROKER
    assert code_of(rig.forward("User:alice", creation("other"))) == NO_TOPIC


@pytest.mark.parametrize(
    ("host", "address"), [("10.1.2.3", IPV4), ("0:0:0:0:0:0:0:1", IPV6)], ids=["IPv4", "IPv6"]
)
def test_rules_are_about_the_host_of_the_client(rig: Rig, host: str, address: bytes) -> None:
    rig.allow(CREATE, host=host)
    assert code_of(rig.forward("User:alice", creation(), address)) == NO_BROKER
    assert code_of(rig.forward("User:alice", creation(), b"")) == NO_TOPIC
    other = address[:-1] + b"\7"
    assert code_of(rig.forward("User:alice", creation(), other)) == NO_TOPIC
    assert rig.forward("User:alice", creation(), b"123") == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("principal", ["", "User:admin", "User:alice"])
def test_only_brokers_forward_requests(rig: Rig, principal: str) -> None:
    assert rig.forward(principal, creation(), sender="alice") == NO_CLUSTER


def test_a_standby_sends_everybody_to_the_active_controller() -> None:
    active = Rig(shared=True).start()
    active.allow(CREATE)
    active.allow(CREATE, name="gone")
    assert code_of(active.ask("alice", creation("gone"))) == NO_BROKER
    rig = Rig(active.store, shared=True, alone=False).start()
    assert rig.ask("alice", BrokerRegistrationRequest()).error_code == ErrorCode.NOT_CONTROLLER
    assert rig.forward("User:alice", creation()) == ErrorCode.NOT_CONTROLLER
    # when the active one is silent, then the standby has its rules
    for _ in range(20):
        rig.clock.now_ms += rig.node.config.controller_quorum_fetch_timeout_ms // 10
        rig.node.tick()
    assert rig.node.controller.active
    assert rig.ask("alice", BrokerRegistrationRequest()).error_code == NO_CLUSTER
    assert code_of(rig.forward("User:alice", creation())) == NO_BROKER
    assert code_of(rig.forward("User:alice", creation("other"))) == NO_TOPIC
    rig.ask("admin", DeleteAclsRequest(filters=[every_rule_of("gone")]))
    # and the first one, when it is back, is a standby without rules, which becomes the active one again
    active.clock.now_ms += 10
    active.node._check_lease()
    assert active.forward("User:alice", creation()) == ErrorCode.NOT_CONTROLLER
    for _ in range(20):
        active.clock.now_ms += active.node.config.controller_quorum_fetch_timeout_ms // 10
        active.node.tick()
    assert active.node.controller.active
    assert code_of(active.forward("User:alice", creation())) == NO_BROKER
    assert code_of(active.forward("User:alice", creation("other"))) == NO_TOPIC
    assert code_of(active.ask("alice", creation("gone"))) == NO_TOPIC


# --- clusters


def test_a_client_with_a_log_in_but_no_rights_is_refused_and_brokers_work() -> None:
    config = keys_of("SASL_PLAINTEXT", "PLAIN") | {
        "authorizer.class.name": STANDARD,
        "super.users": "User:broker",
        "offsets.topic.replication.factor": "2",
    }
    user = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    user |= {"sasl.username": "alice", "sasl.password": "secret"}
    alice = Access(Credentials("PLAIN", "alice", "secret"), None)
    with Cluster(2, controllers=2, config=config, topics=["orders:1:2"]) as cluster:
        for node, request in (
            (cluster.active_controller().address, BrokerRegistrationRequest()),
            (cluster.active_controller().address, EnvelopeRequest(client_host_address=b"")),
            (cluster.broker(1).address, LeaderAndIsrRequest()),
        ):
            host, _, port = node.rpartition(":")
            version = 7 if isinstance(request, LeaderAndIsrRequest) else 0
            answer: Any = run(ask((host, int(port)), request, version=version, access=alice))
            assert answer.error_code == NO_CLUSTER
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **user})
        topic = NewTopic("hers", 1, 1)
        with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
            admin.create_topics([topic])["hers"].result(20)
        user |= {"sasl.username": "broker", "sasl.password": "between-us"}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **user})
        admin.create_topics([topic])["hers"].result(20)
        cluster.produce("orders", b"tea")
        leader = cluster.partition("orders", 0).leader
        cluster.active_controller().kill()
        cluster.broker(leader).kill()
        cluster.produce("orders", b"coffee")
        assert [each.value for each in cluster.records("orders")] == [b"tea", b"coffee"]


@pytest.mark.slow  # the start gives up after 30 s
def test_brokers_that_are_no_super_users_are_not_taken_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": STANDARD,
        "super.users": "User:admin",
    }
    with (
        pytest.raises(NodeError, match="did not take up the broker"),
        two_brokers(tmp_path, config),
    ):
        pass
    assert "name this node's user in super.users there" in caplog.text


def controllers_at(
    values: dict[str, str], overrides: dict[int, dict[str, str]] | None = None
) -> str:
    """Where the controller of two brokers with these keys listens."""
    values = {"listeners": "PLAINTEXT://0.0.0.0:9092", **values}
    node = NodeSpec(node_id=1, values=values, data_dir="/data")
    (spec,) = ClusterSpec(brokers=2, node=node, overrides=overrides or {}).controller_specs()
    return spec.values["listeners"]


def test_controllers_are_reached_as_brokers_reach_each_other() -> None:
    rules = {"authorizer.class.name": STANDARD}
    here = f"{INTERNAL_LISTENER}://127.0.0.1:0"
    listeners = {"listeners": "PLAINTEXT://0.0.0.0:9092"}
    assert controllers_at(with_acls(listeners, ["admin"], acl=True)) == here
    assert controllers_at(with_logins(listeners, "plain", {"alice": "secret"})) == here
    # where the advertised address is another one, brokers have a listener of their own
    advertised = {"advertised.listeners": "PLAINTEXT://elsewhere:9092"}
    assert controllers_at(rules | advertised) == here
    assert controllers_at(rules, {1: advertised}) == here
    assert controllers_at(rules) == "PLAINTEXT://0.0.0.0:0"
    named = {"controller.listener.names": "CONTROLLER"}
    assert controllers_at(rules | advertised | named) == "PLAINTEXT://0.0.0.0:0"
