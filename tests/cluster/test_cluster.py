"""kwire.Cluster: what a test author does with it, with brokers as threads and as processes."""

import asyncio
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_clients import consume, produce

import kwire
from kwire import Cluster, errors
from kwire.client.streams import ask
from kwire.protocol.schemas import configs
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.replication.log_dirs.manager import LogManager

pytestmark = pytest.mark.timeout(60)
BOTH = pytest.mark.parametrize("isolation", ["thread", "process"])


def ask_broker(cluster: Cluster, name: str, version: int, request: Any) -> Any:
    """About the configurations of a broker that broker itself is asked; "" stands for all."""
    host, port = cluster.broker(int(name or 1)).address.split(":")
    return asyncio.run(ask((host, int(port)), request, version=version))


def alter_broker_configs(cluster: Cluster, *names: str) -> None:
    """Makes them dynamic ones."""
    for name in names:
        config = configs.IncrementalAlterableConfig(
            name="log.cleaner.threads", value="2", config_operation=0
        )
        resource = configs.IncrementalAlterConfigsResource(
            resource_type=4, resource_name=name, configs=[config]
        )
        request = configs.IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = ask_broker(cluster, name, 1, request).responses
        assert result.error_code == 0


def dynamic_configs(cluster: Cluster, name: str) -> set[str]:
    """The keys that a dynamic configuration has changed, of this broker or of all."""
    resource = configs.DescribeConfigsResource(resource_type=4, resource_name=name)
    request = configs.DescribeConfigsRequest(resources=[resource])
    (result,) = ask_broker(cluster, name, 4, request).results
    return {config.name for config in result.configs if config.config_source in (2, 3)}


def racks_in_metadata(address: str) -> list[str]:
    """The racks of the brokers, by id, as a client is told."""
    host, _, port = address.rpartition(":")
    found = asyncio.run(ask((host, int(port)), MetadataRequest(topics=[]), version=9))
    return [broker.rack for broker in sorted(found.brokers, key=lambda each: each.node_id)]


@BOTH
def test_racks_go_to_the_brokers_in_turn(isolation: str) -> None:
    with Cluster(3, racks=["a", "b"], isolation=isolation) as cluster:
        assert racks_in_metadata(cluster.broker(1).address) == ["a", "b", "a"]
        assert [broker.rack for broker in cluster.brokers] == ["a", "b", "a"]
        assert cluster.controllers[0].rack is None


@BOTH
def test_a_key_of_a_single_broker(isolation: str) -> None:
    config = {"num.partitions": 1, "2:num.partitions": 5, "2:broker.rack": "b"}
    with Cluster(2, config=config, racks=["a"], isolation=isolation) as cluster:
        assert racks_in_metadata(cluster.broker(1).address) == ["a", "b"]
        for broker, partitions in ((1, 1), (2, 5)):
            host, port = cluster.broker(broker).address.split(":")
            named = [configs.DescribeConfigsResource(resource_type=4, resource_name=str(broker))]
            request = configs.DescribeConfigsRequest(resources=named)
            answer = asyncio.run(ask((host, int(port)), request, version=1))
            values = {entry.name: entry.value for entry in answer.results[0].configs}
            assert values["num.partitions"] == str(partitions)


@pytest.fixture
def three() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


# -- the example of the design --------------------------------------------------------------------------------------


@BOTH
def test_the_example_works_line_by_line(isolation: str) -> None:
    with Cluster(brokers=3, isolation=isolation) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 3
        cluster.create_topic(
            "orders", partitions=3, replication_factor=3, config={"min.insync.replicas": "2"}
        )
        produce(cluster.bootstrap_servers, "orders", ["a", "b", "c"], acks="all")
        cluster.wait_for(lambda c: c.partition("orders", 0).high_watermark == 3)
        p = cluster.partition("orders", 0)
        assert p.leader in {1, 2, 3}
        assert (p.leader_epoch, p.isr, p.high_watermark) == (0, {1, 2, 3}, 3)
        replica = p.replica(2)
        assert (replica.log_end_offset, replica.log_start_offset) == (3, 0)
        assert replica.epochs == [(0, 0)]
        cluster.broker(1).kill()
        cluster.broker(1).start()
        cluster.wait_for(lambda c: c.partition("orders", 0).isr == {1, 2, 3}, timeout=10)
        cluster.elect("orders", 0, leader=2)
        assert cluster.partition("orders", 0).leader == 2
        with cluster.network.cut({1}, {2, 3}):
            pass
        cluster.network.delay(1, 2, milliseconds=50)
        cluster.network.heal()
        cluster.wait_for(lambda c: c.partition("orders", 0).isr == {1, 2, 3}, timeout=5)


# -- brokers --------------------------------------------------------------------------------------------------------


@BOTH
def test_a_leader_is_killed_and_nothing_acknowledged_is_lost(isolation: str) -> None:
    with Cluster(3, {"min.insync.replicas": 2}, isolation=isolation) as cluster:
        cluster.create_topic("t", 1, 3)
        produce(cluster.bootstrap_servers, "t", ["1", "2"], acks="all")
        old = cluster.partition("t", 0).leader
        cluster.broker(old).kill()
        assert not cluster.broker(old).running
        cluster.wait_for(lambda c: c.partition("t", 0).leader not in (-1, old))
        produce(cluster.bootstrap_servers, "t", ["3"], acks="all")
        with pytest.raises(errors.BrokerNotAvailableError, match=f"broker {old} does not run"):
            cluster.partition("t", 0).replica(old)
        cluster.broker(old).start()
        cluster.wait_for(lambda c: c.partition("t", 0).replica(old).log_end_offset == 3, 10)
        assert consume(cluster.bootstrap_servers, "t", 3) == ["1", "2", "3"]


@BOTH
def test_a_stopped_broker_gives_its_leaderships_away_first(isolation: str) -> None:
    with Cluster(3, isolation=isolation, topics=["t:1:3"]) as cluster:
        old = cluster.partition("t", 0).leader
        cluster.broker(old).stop()
        assert cluster.partition("t", 0).leader not in (-1, old)


@BOTH
def test_a_paused_broker_loses_its_lease_and_comes_back(isolation: str) -> None:
    config = {"broker.session.timeout.ms": 300, "broker.heartbeat.interval.ms": 50}
    with Cluster(3, config, isolation=isolation, topics=["t:1:3"]) as cluster:
        old = cluster.partition("t", 0).leader
        cluster.broker(old).pause()
        cluster.wait_for(lambda c: c.partition("t", 0).leader not in (-1, old))
        with pytest.raises(errors.BrokerNotAvailableError, match="is paused"):
            cluster.partition("t", 0).replica(old)
        cluster.broker(old).resume()
        cluster.wait_for(lambda c: len(c.partition("t", 0).isr) == 3, 15)


def test_there_is_no_broker_of_an_unknown_id(three: Cluster) -> None:
    with pytest.raises(errors.ClusterStateError, match=r"no broker 7; the brokers are \[1, 2, 3\]"):
        three.broker(7)


@BOTH
def test_a_consumer_group_starts_although_a_broker_was_killed_first(isolation: str) -> None:
    """Its topic gets three replicas all the same, one of them on the dead broker (KRaft's placement)."""
    with Cluster(3, {"min.insync.replicas": 2}, isolation=isolation) as cluster:
        cluster.create_topic("t", 1, 3)
        cluster.broker(1).kill()
        cluster.wait_for(lambda c: c.partition("t", 0).isr == {2, 3})
        servers = cluster.bootstrap_servers
        produce(servers, "t", ["1", "2"], acks="all")
        assert consume(servers, "t", 2) == ["1", "2"]
        offsets = [cluster.partition("__consumer_offsets", index) for index in range(4)]
        assert all(p.isr == {2, 3} and set(p.replicas) == {1, 2, 3} for p in offsets)
        cluster.broker(1).start()
        cluster.wait_for(
            lambda c: all(c.partition("__consumer_offsets", i).isr == {1, 2, 3} for i in range(4))
        )
        cluster.wait_for(lambda c: c.partition("t", 0).isr == {1, 2, 3})
        cluster.broker(2).kill()
        produce(servers, "t", ["3"], acks="all")
        assert consume(servers, "t", 1) == ["3"]  # the group's offset has survived, too


# -- elections and the network --------------------------------------------------------------------------------------


@BOTH
def test_a_divergence_is_written_and_truncated(isolation: str) -> None:
    """The leader takes records that no follower gets; another one is elected; the old one's are cut off."""
    with Cluster(3, {"replica.lag.time.max.ms": 30_000}, isolation=isolation) as cluster:
        cluster.create_topic("t", assignment=[[1, 2, 3]])
        servers = cluster.bootstrap_servers
        produce(servers, "t", ["common"], acks="all")
        with cluster.network.cut(1, {2, 3}):
            produce(servers, "t", ["lost 1", "lost 2"], acks=1)
            p = cluster.partition("t", 0)
            assert (p.replica(1).log_end_offset, p.replica(2).log_end_offset) == (3, 1)
            assert p.high_watermark == 1
            cluster.elect("t", 0, leader=2)
            produce(servers, "t", ["kept"], acks=1)
        cluster.wait_for(lambda c: c.partition("t", 0).replica(1).log_end_offset == 2, 10)
        p = cluster.partition("t", 0)
        assert p.replica(1).epochs == p.replica(2).epochs == [(0, 0), (1, 1)]
        assert consume(servers, "t", 2) == ["common", "kept"]


def test_a_cut_holds_for_a_broker_that_starts_again(three: Cluster) -> None:
    three.create_topic("t", assignment=[[1, 2]])
    three.broker(2).kill()
    three.wait_for(lambda c: c.partition("t", 0).isr == {1})
    with three.network.cut(1, 2):
        three.broker(2).start()
        produce(three.bootstrap_servers, "t", ["x"], acks=1)
        with pytest.raises(errors.WaitTimeoutError):
            three.wait_for(lambda c: c.partition("t", 0).replica(2).log_end_offset == 1, 0.2)
    three.wait_for(lambda c: c.partition("t", 0).isr == {1, 2}, 10)


def test_a_delay_is_seen_by_who_waits_for_the_followers(three: Cluster) -> None:
    three.create_topic("t", assignment=[[1, 2]], config={"min.insync.replicas": 2})
    produce(three.bootstrap_servers, "t", ["warm"], acks="all")
    with three.network.delay(1, 2, milliseconds=150):
        begin = time.monotonic()
        produce(three.bootstrap_servers, "t", ["x"], acks="all")
        assert time.monotonic() - begin > 0.15


@pytest.mark.parametrize(
    ("a", "b", "wrong"),
    [
        (1, 1, "different"),
        ({1, 2}, {2}, "different"),
        (set(), 1, "different"),
        (1, 9, "no broker 9"),
    ],
)
def test_a_cut_that_makes_no_sense_is_refused(three: Cluster, a: Any, b: Any, wrong: str) -> None:
    with pytest.raises(errors.KwireError, match=wrong):
        three.network.cut(a, b)


def test_an_election_without_a_candidate_says_why(three: Cluster) -> None:
    three.create_topic("t", assignment=[[1, 2]])
    with pytest.raises(
        errors.RequestError, match=r"broker 3 cannot lead t-0, it is no replica"
    ) as e:
        three.elect("t", 0, leader=3)
    assert e.value.kafka_error == "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    three.broker(2).kill()
    with pytest.raises(errors.RequestError, match="is not alive"):
        three.wait_for(lambda c: c.partition("t", 0).isr == {1})
        three.elect("t", 0, leader=2)


def test_only_an_unclean_election_takes_a_leader_from_outside_the_isr(three: Cluster) -> None:
    three.create_topic("t", assignment=[[1, 2]], config={"unclean.leader.election.enable": False})
    three.broker(2).kill()
    three.wait_for(lambda c: c.partition("t", 0).isr == {1})
    produce(three.bootstrap_servers, "t", ["x"], acks=1)
    with three.network.cut(1, 2):
        three.broker(2).start()
        with pytest.raises(errors.RequestError, match=r"without loss: the ISR is \[1\]"):
            three.elect("t", 0, leader=2)
        three.elect("t", 0, leader=2, unclean=True)
        assert three.partition("t", 0).leader == 2
    three.wait_for(lambda c: c.partition("t", 0).isr == {1, 2}, 10)
    assert three.partition("t", 0).high_watermark == 0


# -- topics and waiting ---------------------------------------------------------------------------------------------


def test_what_kafka_refuses_has_kafkas_name(three: Cluster) -> None:
    three.create_topic("t", 2)
    for call, name in [
        (lambda: three.create_topic("t"), "TOPIC_ALREADY_EXISTS"),
        (lambda: three.create_topic("u", 1, 4), "INVALID_REPLICATION_FACTOR"),
        (lambda: three.create_topic("a b"), "INVALID_TOPIC_EXCEPTION"),
        (lambda: three.create_topic("u", config={"no.such.key": 1}), "INVALID_CONFIG"),
        (lambda: three.delete_topic("nothing"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (lambda: three.partition("t", 2), "UNKNOWN_TOPIC_OR_PARTITION"),
        (lambda: three.elect("nothing", 0), "UNKNOWN_TOPIC_OR_PARTITION"),
    ]:
        with pytest.raises(errors.RequestError) as found:
            call()
        assert found.value.kafka_error == name
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        three.partition("nothing", 0)
    three.delete_topic("t")
    assert three.topics(internal=True) == {}


def test_a_time_out_tells_what_was_waited_for_and_what_was_seen(three: Cluster) -> None:
    three.create_topic("t", assignment=[[2, 3]])
    with pytest.raises(errors.WaitTimeoutError) as found:
        three.wait_for(lambda c: c.partition("t", 0).isr == {1, 2, 3}, timeout=0.01)
    assert str(found.value).splitlines() == [
        'waited 0.01 s for: c.partition("t", 0).isr == {1, 2, 3}',
        "the last time it was False",
        "t-0: leader 2, leader epoch 0, ISR [2, 3], high watermark 0",
        "  replica 2: offsets 0..0, epochs 0@0",
        "  replica 3: offsets 0..0",
    ]
    assert isinstance(found.value, TimeoutError)

    def nothing_there(cluster: Cluster) -> bool:
        """The topic is made."""
        return cluster.partition("nothing", 0).leader == 1

    with pytest.raises(errors.WaitTimeoutError) as found:
        three.wait_for(nothing_there, timeout=0.01)
    assert str(found.value).splitlines() == [
        "waited 0.01 s for: nothing_there (The topic is made.)",
        "the last time it failed: there is no partition nothing-0 (UNKNOWN_TOPIC_OR_PARTITION)",
    ]


@BOTH
def test_the_last_requests_of_clients_are_described_where_they_are_kept(isolation: str) -> None:
    with Cluster(3, isolation=isolation, topics=["t:1:3"], recent_requests=True) as cluster:
        produce(cluster.bootstrap_servers, "t", ["x"], acks="all", **{"client.id": "shop"})
        leader = cluster.partition("t", 0).leader
        _, _, told = cluster.describe().partition("last requests of clients:\n")
        lines = [line.strip().split("  ", 1)[1] for line in told.splitlines()]
        assert any(
            line.startswith(f"broker {leader}  shop  Produce v") and line.endswith("  t-0: ok")
            for line in lines
        ), told
        # Neither the followers' nor what kwire asks for itself; each broker's last ones.
        assert {line.split("  ")[1] for line in lines} == {"shop"}
        for end in (cluster.broker(leader).kill, cluster.broker(leader).stop):
            end()
            assert f"broker {leader}  shop  Produce v" in cluster.describe()
        cluster.broker(leader).start()
        assert f"broker {leader}  shop  Produce v" in cluster.describe()
        cluster.reset()
        assert "shop" not in cluster.describe()
    with Cluster(isolation=isolation, topics=["t"]) as cluster:
        produce(cluster.bootstrap_servers, "t", ["x"])
        assert "requests" not in cluster.describe()


def test_a_mistake_in_a_predicate_is_not_waited_for(three: Cluster) -> None:
    with pytest.raises(AttributeError):
        three.wait_for(lambda c: c.nothing)  # type: ignore[attr-defined]


@BOTH
def test_reset_leaves_nothing_of_what_was(isolation: str) -> None:
    with Cluster(3, isolation=isolation) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("t", 2, 3)
        produce(servers, "t", ["x"])
        assert consume(servers, "t", 1) == ["x"]
        assert "__consumer_offsets" in cluster.topics(internal=True)
        alter_broker_configs(cluster, "", "1", "2")
        assert dynamic_configs(cluster, "2") == {"log.cleaner.threads"}
        cluster.broker(2).kill()
        cluster.broker(3).pause()
        cluster.network.cut(1, 2)
        cluster.reset()
        assert cluster.topics(internal=True) == {}
        assert not dynamic_configs(cluster, "1") and not dynamic_configs(cluster, "2")
        assert all(broker.running and not broker.paused for broker in cluster.brokers)
        cluster.create_topic("t", 1, 3)
        produce(servers, "t", ["y"], acks="all")
        # The group has no offset any more: it reads from the start.
        assert consume(servers, "t", 1) == ["y"]


# -- start and stop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Cluster(0), "brokers: expected a number from 1, not 0"),
        (lambda: Cluster(isolation="vm"), '"thread", "process" or "docker", not \'vm\''),
        (lambda: Cluster(config={"num.partitions": "many"}), "num.partitions"),
        (lambda: Cluster(topics=["t:0"]), "expected NAME"),
        (lambda: Cluster.connect("nowhere"), "expected HOST:PORT"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(make: Callable[[], Any], what: str) -> None:
    with pytest.raises(errors.ConfigurationError) as found:
        make()
    assert what in str(found.value) and "\n" not in str(found.value)
    assert found.value.kafka_error == "INVALID_CONFIG"


def test_a_key_that_kafka_does_not_know_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"does not know.*no\.such\.key"):
        Cluster(config={"no.such.key": 1})
    with pytest.warns(UserWarning, match=r"num\.partition \(did you mean num\.partitions\?\)"):
        Cluster(config={"num.partition": 1})


def test_keys_that_have_no_effect_are_one_warning() -> None:
    config = {
        "num.io.threads": 9,
        "group.consumer.max.size": 7,
        "group.consumer.min.session.timeout.ms": 7,
    }
    named = "group.consumer.max.size, group.consumer.min.session.timeout.ms"
    with pytest.warns(UserWarning, match=f"no effect in kwire: {named}$") as found:
        Cluster(config=config)
    assert len(found) == 1 and found[0].filename == __file__


@pytest.mark.parametrize("isolation", ["thread", "process", "docker"])
def test_a_key_that_would_protect_is_refused(isolation: str) -> None:
    with pytest.raises(
        errors.ConfigurationError, match=r"create\.topic\.policy\.class\.name: kwire runs no Java"
    ):
        Cluster(config={"create.topic.policy.class.name": "my.Policy"}, isolation=isolation)


@BOTH
def test_a_port_in_use_is_told(isolation: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = Cluster(
            config={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}, isolation=isolation
        )
        with pytest.raises(errors.StartError, match=f"broker 1: .*{port}"):
            cluster.start()


def test_data_stays_where_it_is_told_to(tmp_path: Path) -> None:
    with Cluster(2, data_dir=tmp_path, topics={"t": 2}) as cluster:
        produce(cluster.bootstrap_servers, "t", ["x"], partition=1)
        assert Path(cluster.broker(1).log_dir).parent == tmp_path
        with pytest.raises(errors.StartError, match="lock"):
            Cluster(2, data_dir=tmp_path).start()
    with Cluster(2, data_dir=tmp_path, topics={"t": 2}) as cluster:
        assert cluster.partition("t", 1).high_watermark == 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_stop_closes_no_logs_that_are_deleted_next(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots, checkpoints and index files of 300 replicas were a second of each stop."""
    closed: list[int] = []
    close = LogManager.close

    def counted(self: LogManager, broker_epoch: int = -1) -> None:
        closed.append(self.node_id)
        close(self, broker_epoch)

    monkeypatch.setattr(LogManager, "close", counted)
    with Cluster(2, data_dir=tmp_path if kept else None, topics={"t": 2}) as cluster:
        produce(cluster.bootstrap_servers, "t", ["a"])
        cluster.broker(1).stop()  # one that may be started again
        assert closed == [1]
        cluster.broker(1).start()
        cluster.wait_for(lambda c: c.partition("t", 0).leader is not None)
        closed.clear()
    assert sorted(closed) == ([1, 2] if kept else [])


def test_what_is_not_started_says_so() -> None:
    cluster = Cluster()
    for call in (lambda: cluster.bootstrap_servers, lambda: cluster.partition("t", 0)):
        with pytest.raises(errors.ClusterStateError, match="does not run"):
            call()
    cluster.stop()
    cluster.start()
    cluster.start()
    cluster.stop()
    cluster.stop()
    with pytest.raises(errors.ClusterStateError, match="does not run"):
        cluster.create_topic("t")


@BOTH
def test_an_internal_error_of_a_broker_is_raised_at_the_end(isolation: str) -> None:
    cluster = Cluster(isolation=isolation)
    cluster.start()
    # A question that no broker answers: its handler raises KeyError within the node.
    inner = cluster._inner.broker(1)._handle
    cluster._run(_let_fail(inner))
    with pytest.raises(
        errors.InternalError, match=r"(?s)RuntimeError: on purpose.*To reproduce"
    ) as e:
        cluster.stop()
    assert e.value.kafka_error == "UNKNOWN_SERVER_ERROR"
    with pytest.raises(ValueError, match="mine") as mine, Cluster(isolation=isolation) as cluster:
        cluster._run(_let_fail(cluster._inner.broker(1)._handle))
        raise ValueError("mine")
    assert "on purpose" in mine.value.__notes__[0]


def test_a_process_that_crashes_is_told_and_one_that_somebody_kills_is_not() -> None:
    cluster = Cluster(2, isolation="process")
    for number, expected in [(signal.SIGKILL, None), (signal.SIGABRT, "broker 2.*SIGABRT")]:
        cluster.start()
        os.kill(cluster._inner.node(2).pid, number)
        cluster.wait_for(lambda c: not c.broker(2).running)
        if expected is None:
            cluster.stop()
        else:
            with pytest.raises(errors.InternalError, match=expected):
                cluster.stop()


def test_directories_of_two_clusters_do_not_mix(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with Cluster(2, data_dir=tmp_path / name):
            pass
    shutil.rmtree(tmp_path / "one" / "broker-2")
    shutil.move(tmp_path / "other" / "broker-2", tmp_path / "one" / "broker-2")
    with pytest.raises(
        errors.StartError, match=r"broker 2: data directory .*belongs to cluster"
    ) as e:
        Cluster(2, data_dir=tmp_path / "one").start()
    assert "\n" not in str(e.value)


async def _let_fail(handle: Any) -> None:
    await handle.ask("POST", "/v1/failures", {"text": "on purpose"})


# -- from outside ---------------------------------------------------------------------------------------------------


def test_a_cluster_that_runs_elsewhere(three: Cluster) -> None:
    with Cluster.connect(three.bootstrap_servers) as outside:
        assert outside.external and outside.bootstrap_servers == three.bootstrap_servers
        outside.create_topic("t", assignment=[[1, 2, 3]])
        produce(outside.bootstrap_servers, "t", ["x"], acks="all")
        outside.wait_for(lambda c: c.partition("t", 0).replica(3).log_end_offset == 1)
        p = outside.partition("t", 0)
        assert (p.leader, p.leader_epoch, p.isr) == (1, 0, {1, 2, 3})
        assert (p.high_watermark, p.replica(2).log_start_offset) == (1, 0)
        outside.elect("t", 0, leader=3)
        assert three.partition("t", 0).leader == 3
        with pytest.raises(errors.NotSupportedError, match="somebody else has started"):
            outside.broker(1)
        with pytest.raises(errors.NotSupportedError, match="somebody else has started"):
            outside.network.cut(1, 2)
        with pytest.raises(errors.NotSupportedError):
            _ = p.replica(2).epochs
        outside.reset()
        assert three.topics(internal=True) == {}


def test_nobody_answers_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(errors.BrokerNotAvailableError, match=f"127.0.0.1:{port}"):
        Cluster.connect(f"127.0.0.1:{port}")


def test_the_package_offers_nothing_but_what_it_says() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Kluster'"):
        _ = kwire.Kluster  # type: ignore[attr-defined]
    types = [
        "Client",
        "ClusterFactory",
        "Event",
        "Group",
        "GroupOffset",
        "Member",
        "Partition",
        "Record",
        "Replica",
        "Request",
        "Transaction",
        "TransactionPartition",
    ]
    assert sorted(kwire.__all__) == sorted(["Cluster", *types, "__version__"])


def test_processes_run_nothing_from_the_users_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kwire").mkdir()
    (tmp_path / "typing.py").write_text("raise SystemExit('a typing.py of the user')")
    monkeypatch.chdir(tmp_path)
    with Cluster(1, isolation="process", topics=["t"]) as cluster:
        assert cluster.topics() == {"t": 1}


@pytest.mark.parametrize(("waits", "first"), [("true", 0), ("false", 3)])
def test_who_creates_a_topic_waits_for_it_or_asks_again_as_with_kafka(
    waits: str, first: int
) -> None:
    with Cluster(2, config={"kwire.topic.creation.waits": waits}) as cluster:
        host, port = cluster.bootstrap_servers.split(",")[0].split(":")
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        errors = []
        while 0 not in errors:
            answer = asyncio.run(ask((host, int(port)), request, version=9))
            errors.append(answer.topics[0].error_code)
        assert errors[0] == first and set(errors) <= {0, 3}
        found = [asyncio.run(ask((host, int(port)), FindCoordinatorRequest(key="g"), version=3))]
        assert found[0].error_code == (15 if first else 0)
