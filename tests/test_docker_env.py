"""A container's environment as settings: Kafka's rule for names, listeners as others write them, roles, refusals."""

from __future__ import annotations

import pytest

from kwire.docker.cluster_node import broker_spec, controller_spec
from kwire.docker.container import ready_lines
from kwire.docker.environment import DATA_DIR, container_settings, parse_topics, parse_voters
from kwire.docker.listeners import (
    advertised_addresses,
    health_address,
    tidy_listeners,
    unreachable_listeners,
)
from kwire.docker.variables import (
    configuration,
    in_variables,
    property_name,
    unknown_variables,
    variable_of,
)
from kwire.launch.configuration import warn_about_keys
from kwire.launch.spec import ClusterSpec
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.core.types import CONTROLLER_IDS_FROM
from kwire.server.errors import SettingsError
from kwire.server.listeners import inter_broker_listener, own_listener, parse_listeners

TESTCONTAINERS = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "0",
    "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://x:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://172.17.0.2:9093",
}


def listeners_of(environ: dict[str, str]) -> list[tuple[str, str, int, str, int]]:
    """Name, bound host and port, advertised host and port."""
    settings = container_settings(environ)
    return [
        (each.name, each.host, each.port, each.advertised_host, each.advertised_port)
        for each in parse_listeners(BrokerConfig(settings.node.configuration()))
    ]


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
        (
            "KAFKA_LISTENER_NAME_SECURE_SCRAM-SHA-512_SASL_JAAS_CONFIG",
            "listener.name.secure.scram-sha-512.sasl.jaas.config",
        ),
        ("KAFKA_HEAP_OPTS", None),
        ("KAFKA_LOG4J_LOGGERS", None),
        ("KAFKA_VERSION", None),
        ("KAFKA_CREATE_TOPICS", None),
        ("KAFKA_CLUSTER_ID", None),
        ("KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE", None),
        ("NUM_PARTITIONS", None),
        ("MY_KAFKA_NUM_PARTITIONS", None),
    ],
)
def test_a_variable_names_a_key(variable: str, key: str | None) -> None:
    assert property_name(variable) == key


def test_no_variable_at_all_is_one_node_for_this_machine() -> None:
    settings = container_settings({"PATH": "/bin"})
    assert settings.node.node_id == 1
    assert settings.node.data_dir == DATA_DIR
    assert settings.node.cluster_id is None and not settings.node.controllers
    assert listeners_of({}) == [("PLAINTEXT", "0.0.0.0", 9092, "localhost", 0)]


def test_one_variable_leaves_the_defaults_of_the_others() -> None:
    settings = container_settings({"KAFKA_NUM_PARTITIONS": "3"})
    assert settings.node.values["num.partitions"] == "3"
    assert settings.node.values["listeners"] == "PLAINTEXT://0.0.0.0:9092"


def test_what_testcontainers_sets_is_one_node() -> None:
    settings = container_settings(TESTCONTAINERS)
    assert not settings.node.controllers
    assert settings.node.cluster_id == "4L6g3nShT-eMCtK--X86sw"
    assert listeners_of(TESTCONTAINERS) == [
        ("PLAINTEXT", "0.0.0.0", 9092, "localhost", 32768),
        ("BROKER", "0.0.0.0", 9093, "172.17.0.2", 9093),
    ]


def test_the_order_of_listeners_does_not_matter() -> None:
    turned = ",".join(reversed(TESTCONTAINERS["KAFKA_LISTENERS"].split(",")))
    found = listeners_of({**TESTCONTAINERS, "KAFKA_LISTENERS": turned})
    assert sorted(found) == sorted(listeners_of(TESTCONTAINERS))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("PLAINTEXT://h:1,BROKER://i:2,", "PLAINTEXT://h:1,BROKER://i:2"),
        (" PLAINTEXT://h:1 , BROKER://i:2 ", "PLAINTEXT://h:1,BROKER://i:2"),
        ("BROKER://172.17.0.2 172.18.0.3:9092", "BROKER://172.17.0.2:9092"),
        ("BROKER://172.17.0.2 :9092", "BROKER://172.17.0.2:9092"),
        ("BROKER://fd00::2 172.18.0.3:9092", "BROKER://172.18.0.3:9092"),
        ("BROKER://fd00::2 fd00::3:9092", "BROKER://[fd00::2]:9092"),
        ("PLAINTEXT://:9092", "PLAINTEXT://:9092"),
        ("", ""),
        (",", ""),
    ],
)
def test_listeners_are_tidied(written: str, meant: str) -> None:
    assert tidy_listeners(written) == meant


def test_listeners_follow_from_what_is_advertised() -> None:
    advertised = "PLAINTEXT://localhost:29092,INSIDE://kafka:19092"
    environ = {
        "KAFKA_ADVERTISED_LISTENERS": advertised,
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,",
    }
    assert listeners_of(environ) == [
        ("PLAINTEXT", "0.0.0.0", 29092, "localhost", 29092),
        ("INSIDE", "0.0.0.0", 19092, "kafka", 19092),
    ]


def anything_is_free(_port: int) -> bool:
    return True


def bound_by(environ: dict[str, str]) -> list[tuple[str, int, str, int]]:
    """Name, port, advertised host and port of each listener, where every port is free."""
    values = container_settings(environ, None, anything_is_free).node.values
    config = BrokerConfig({**values, "node.id": "1"})
    return [
        (each.name, each.port, each.advertised_host, each.advertised_port)
        for each in parse_listeners(config)
    ]


def test_the_exposed_port_is_bound_beside_the_advertised_one() -> None:
    """docker run -p 19192:9092 -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:19192"""
    environ = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:19192"}
    assert bound_by(environ) == [
        ("PLAINTEXT", 19192, "localhost", 19192),
        ("KWIRE_EXPOSED", 9092, "localhost", 19192),
    ]
    assert [name for name, *_ in listeners_of(environ)] == ["PLAINTEXT"]  # 9092 is not free


def test_the_exposed_port_leads_to_the_listener_for_this_machine() -> None:
    names = {"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "IN:PLAINTEXT,OUT:PLAINTEXT"}
    environ = {"KAFKA_ADVERTISED_LISTENERS": "IN://kafka:29092,OUT://127.0.0.1:19092", **names}
    assert bound_by(environ)[2] == ("KWIRE_EXPOSED", 9092, "127.0.0.1", 19092)
    environ = {"KAFKA_ADVERTISED_LISTENERS": "IN://kafka:29092,OUT://docker-host:19092", **names}
    assert bound_by(environ)[2] == ("KWIRE_EXPOSED", 9092, "kafka", 29092)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092"},
        {
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:19092",
            "KAFKA_LISTENERS": "PLAINTEXT://:9093",
        },
        TESTCONTAINERS,
        {"KWIRE_BROKERS": "3", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9094"},
    ],
)
def test_the_exposed_port_is_left_alone(environ: dict[str, str]) -> None:
    """Bound by its own listener, or not wanted: the listeners are given."""
    assert "KWIRE_EXPOSED" not in [name for name, *_ in bound_by(environ)]


def test_a_listener_that_cannot_be_served_is_refused_by_its_own_name() -> None:
    environ = {"KAFKA_ADVERTISED_LISTENERS": "SSL://localhost:19093"}
    with pytest.raises(ConfigError, match=r"no listener speaks it \(SSL\)"):
        bound_by(environ)


def test_what_is_advertised_in_words() -> None:
    values = container_settings({}).node.values
    assert advertised_addresses(values) == ["localhost:9092"]
    assert advertised_addresses(values, brokers=3) == ["localhost:9092-9094"]
    assert advertised_addresses(container_settings(TESTCONTAINERS).node.values) == [
        "localhost:32768",
        "172.17.0.2:9093",
    ]
    given = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:19192"}
    values = container_settings(given, None, anything_is_free).node.values
    assert advertised_addresses(values) == ["localhost:19192"]


def test_a_listener_on_the_loopback_is_named() -> None:
    environ = {
        "KAFKA_LISTENERS": "PLAINTEXT://localhost:9092,HOST://0.0.0.0:9093,CONTROLLER://localhost:1",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT",
    }
    values = container_settings(environ).node.values
    assert unreachable_listeners(values) == ["PLAINTEXT://localhost:9092"]


# -- variables that mean nothing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("KAFKA_NUM_PARTITION", "KAFKA_NUM_PARTITIONS"),
        ("KAFKA_CFG_NODE_ID", "KAFKA_NODE_ID"),
        ("KAFKA_CFG_NODE_IDS", "KAFKA_NODE_ID"),
        ("KAFKA_SOMETHING_ELSE_ENTIRELY", None),
        ("KAFKA_CREATE_TOPIC", "KAFKA_CREATE_TOPICS"),
        ("KWIRE_TOPICS", "KAFKA_CREATE_TOPICS"),
        ("KWIRE_CONTROL_PRT", "KWIRE_CONTROL_PORT"),
        ("KWIRE_BROKER", "KWIRE_BROKERS"),
        ("KWIRE_SOMETHING_ELSE_ENTIRELY", None),
    ],
)
def test_an_unknown_variable_is_named_with_the_one_that_was_meant(
    variable: str, meant: str | None
) -> None:
    settings = container_settings({variable: "3", "PATH": "/bin"})
    assert settings.unknown == {variable: meant}
    assert property_name(variable) not in settings.node.values  # said once


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_NUM_PARTITIONS",
        "KAFKA_PORT",
        "KAFKA_PORT_9092_TCP_ADDR",
        "KAFKA_SERVICE_HOST",
        "KAFKA_SERVICE_PORT_CLIENTS",
        "KAFKA_LISTENER_NAME_PLAINTEXT_MAX_CONNECTIONS",
        "KAFKA_KWIRE_LEADER_EPOCH_BUMP_ON_ISR_SHRINK",
        "KWIRE_HEALTH_FILE",
        "KWIRE_CONTROL",
        "SOMETHING",
    ],
)
def test_a_variable_with_a_meaning_is_not_named(variable: str) -> None:
    """KAFKA_PORT…: what Kubernetes sets for a service of that name."""
    assert unknown_variables({variable: "3"}) == {}


@pytest.mark.parametrize(
    "key", ["num.partitions", "listener.name.a-b.c_d", "log.cleaner.io.max.bytes.per.second"]
)
def test_a_key_has_one_variable(key: str) -> None:
    assert property_name(variable_of(key)) == key


def test_a_failure_speaks_of_variables() -> None:
    assert in_variables("start it with --brokers 3 --first-id 5") == (
        "start it with KWIRE_BROKERS=3 KAFKA_NODE_ID=5"
    )
    assert in_variables("--topic a: no") == "KAFKA_CREATE_TOPICS: a: no"
    assert in_variables("start that without --brokers,") == "start that without KWIRE_BROKERS,"


# -- a cluster in one container --------------------------------------------------------------------------------------


def cluster_of(environ: dict[str, str]) -> ClusterSpec:
    settings = container_settings(environ, None, anything_is_free)
    assert settings.in_cluster_of_its_own()
    return ClusterSpec(node=settings.node, **settings.cluster)


def addresses_of(cluster: ClusterSpec) -> list[dict[str, tuple[int, str]]]:
    """For each broker: its listeners, their ports and what they advertise."""
    return [
        {
            each.name: (each.port, f"{each.advertised_host}:{each.advertised_port}")
            for each in parse_listeners(BrokerConfig(spec.configuration(), brokers=3))
        }
        for spec in cluster.broker_specs()
    ]


def test_the_key_of_delegation_tokens_reaches_broker_and_controller() -> None:
    key = "delegation.token.secret.key"
    environ = {"KAFKA_DELEGATION_TOKEN_SECRET_KEY": "hush"}
    assert container_settings(environ).node.values[key] == "hush"
    cluster = cluster_of(environ | {"KWIRE_BROKERS": "2"})
    for spec in (*cluster.broker_specs(), *cluster.controller_specs()):
        assert spec.configuration()[key] == "hush"


def test_three_brokers_in_one_container() -> None:
    environ = {"KWIRE_BROKERS": "3", "KAFKA_MIN_INSYNC_REPLICAS": "2", "KWIRE_CONTROLLERS": "2"}
    cluster = cluster_of(environ)
    assert (cluster.brokers, cluster.controllers) == (3, 2)
    assert container_settings(environ).control_port == 9099
    specs = cluster.broker_specs()
    assert [spec.node_id for spec in specs] == [1, 2, 3]
    assert all(spec.values["min.insync.replicas"] == "2" for spec in specs)
    assert addresses_of(cluster) == [
        {"PLAINTEXT": (port, "localhost:0")} for port in (9092, 9093, 9094)
    ]
    assert specs[0].data_dir == f"{DATA_DIR}/broker-1"


def test_brokers_in_one_container_advertise_ports_that_count_up() -> None:
    advertised = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://docker-host:19092"}
    found = addresses_of(cluster_of({"KWIRE_BROKERS": "3", "KAFKA_NODE_ID": "5", **advertised}))
    for number, listeners in enumerate(found):
        assert listeners.pop("KWIRE_INTERNAL")[0] == 0
        at = f"docker-host:{19092 + number}"
        assert listeners == {
            "PLAINTEXT": (19092 + number, at),
            "KWIRE_EXPOSED": (9092 + number, at),
        }


def test_brokers_in_one_container_get_racks_in_turn() -> None:
    cluster = cluster_of({"KWIRE_BROKERS": "3", "KWIRE_RACKS": "a, b"})
    assert [each.values["broker.rack"] for each in cluster.broker_specs()] == ["a", "b", "a"]


@pytest.mark.parametrize("more", [{}, {"KWIRE_BROKERS": "1"}])
def test_a_single_broker_gets_its_rack_too(more: dict[str, str]) -> None:
    settings = container_settings({"KWIRE_RACKS": "a", **more}, None, anything_is_free)
    assert settings.node.values["broker.rack"] == "a"
    assert not settings.in_cluster_of_its_own()


def test_a_broker_of_a_cluster_of_containers_gets_its_rack_too() -> None:
    environ = {
        "KAFKA_NODE_ID": "2",
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@one:9093",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092",
        "KWIRE_RACKS": "a",
    }
    assert container_settings(environ).node.values["broker.rack"] == "a"
    environ |= {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_NODE_ID": "1"}
    environ |= {
        "KAFKA_LISTENERS": "CONTROLLER://:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    }
    with pytest.raises(SettingsError, match="KWIRE_RACKS=a: 1 racks"):
        container_settings(environ)


def test_a_cluster_in_one_container_needs_no_quorum() -> None:
    """The variables of a single KRaft node, as in the README of apache/kafka, and three brokers."""
    environ = {
        "KWIRE_BROKERS": "3",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    }
    assert [list(each) for each in addresses_of(cluster_of(environ))] == [["PLAINTEXT"]] * 3


def test_a_cluster_of_one_broker_and_two_controllers() -> None:
    cluster = cluster_of({"KWIRE_BROKERS": "1", "KWIRE_CONTROLLERS": "2"})
    assert (cluster.brokers, cluster.controllers, cluster.is_standalone) == (1, 2, False)


def test_one_broker_stays_a_standalone_one() -> None:
    settings = container_settings({"KWIRE_BROKERS": "1"})
    assert not settings.in_cluster_of_its_own()
    assert (settings.serves_whole_api(), settings.control_port) == (True, 9099)
    settings = container_settings({"KWIRE_CONTROL_PORT": "9098"})
    assert (settings.serves_whole_api(), settings.control_port) == (False, 9098)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"KWIRE_BROKERS": "0"}, "KWIRE_BROKERS=0: expected a number of 1 or more"),
        ({"KWIRE_BROKERS": "three"}, "KWIRE_BROKERS=three"),
        ({"KWIRE_BROKERS": "2", "KWIRE_RACKS": "a,b,c"}, "KWIRE_RACKS=a,b,c: 3 racks"),
        ({"KWIRE_BROKERS": "2", "KWIRE_RACKS": "a,"}, "KWIRE_RACKS=a,: a rack has no name"),
        ({"KWIRE_RACKS": "a,b"}, "KWIRE_RACKS=a,b: 2 racks (a, b) for 1 broker(s)"),
        (
            {"KWIRE_BROKERS": "2", "KWIRE_RACKS": "a", "KAFKA_BROKER_RACK": "b"},
            "KWIRE_RACKS=a and KAFKA_BROKER_RACK: give one of them",
        ),
        ({"KWIRE_ISOLATION": "docker"}, "KWIRE_ISOLATION=docker: expected thread or process"),
        ({"KWIRE_LOG_LEVEL": "trace"}, "KWIRE_LOG_LEVEL=trace: expected debug, info, warning or"),
        ({"KAFKA_LOG4J_ROOT_LOGLEVEL": "loud"}, "KAFKA_LOG4J_ROOT_LOGLEVEL=loud"),
        ({"KWIRE_LOG_JSON": "maybe"}, "KWIRE_LOG_JSON=maybe: expected true or false"),
        ({"KWIRE_CONTROL_PORT": "9092"}, "KWIRE_CONTROL_PORT=9092: a broker listens"),
        ({"KWIRE_BROKERS": "8"}, "KWIRE_CONTROL_PORT=9099: a broker listens"),
        ({"KAFKA_ADVERTISED_LISTENERS": "localhost:1"}, "KAFKA_ADVERTISED_LISTENERS=localhost:1"),
        (
            {"KWIRE_BROKERS": "2", "KAFKA_LISTENERS": "PLAINTEXT://:65535"},
            "the last one's would be 65536",
        ),
        (
            {
                "KWIRE_BROKERS": "2",
                "KAFKA_LISTENERS": "PLAINTEXT://:9092,HOST://:9093",
                "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT",
            },
            "9093 would be bound twice; leave 2 ports",
        ),
        (
            {
                "KWIRE_BROKERS": "2",
                "KAFKA_PROCESS_ROLES": "broker",
                "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093",
            },
            "this container is a cluster of its own",
        ),
        (
            {"KWIRE_BROKERS": "2", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:1,2@b:1"},
            "this container is a cluster of its own",
        ),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_what_makes_no_cluster_is_refused(environ: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        container_settings(environ)
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("PLAINTEXT://localhost", "'PLAINTEXT://localhost' has no port; listeners are NAME"),
        ("PLAINTEXT://localhost:", "has no port from 0 to 65535, but ''"),
        ("PLAINTEXT://localhost:99999", "has no port from 0 to 65535, but '99999'"),
        ("A://x:1, localhost:9092", "'localhost:9092' has no name; listeners are NAME"),
        ("://localhost:9092", "has no name before ://"),
        ("PLAINTEXT://::1:9092", "an IPv6 address, which stands in brackets"),
        ("PLAINTEXT://[::1]", "'PLAINTEXT://[::1]' has no port"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "PLAINTEXT comes twice"),
        ("HOST://a:1", "add HOST:PLAINTEXT to KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"),
    ],
)
def test_a_refused_listener_has_its_variable_its_value_and_what_is_missing(
    written: str, says: str
) -> None:
    for variable in ("KAFKA_ADVERTISED_LISTENERS", "KAFKA_LISTENERS"):
        with pytest.raises(SettingsError) as refused:
            container_settings({variable: written})
        said = str(refused.value)
        assert said.startswith(f"{variable}={written}: ") and says in said and "\n" not in said


def test_an_address_that_leads_nowhere_is_not_advertised() -> None:
    assert container_settings({"KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092"}).node.values
    for host in ("0.0.0.0", "[::]"):
        with pytest.raises(SettingsError, match="clients cannot connect to"):
            container_settings({"KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{host}:9092"})


@pytest.mark.parametrize(("given", "level"), [("DEBUG", "debug"), ("warning", "warning")])
def test_the_level_of_the_log_goes_by_two_names(given: str, level: str) -> None:
    assert container_settings({"KWIRE_LOG_LEVEL": given}).node.log_level == level
    assert container_settings({"KAFKA_LOG4J_ROOT_LOGLEVEL": given}).node.log_level == level
    assert container_settings({"KAFKA_LOG4J_ROOT_LOGLEVEL": "TRACE"}).node.log_level == "debug"


def test_a_controllers_address_is_not_advertised_to_clients() -> None:
    advertised = TESTCONTAINERS["KAFKA_ADVERTISED_LISTENERS"] + ",CONTROLLER://localhost:9094"
    found = listeners_of({**TESTCONTAINERS, "KAFKA_ADVERTISED_LISTENERS": advertised})
    assert found == listeners_of(TESTCONTAINERS)


def test_zookeepers_mode_is_one_node_with_the_brokers_id() -> None:
    environ = {
        "KAFKA_BROKER_ID": "5",
        "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:40000,BROKER://172.17.0.2 172.18.0.2:9092",
    }
    settings = container_settings(environ)
    assert settings.node.node_id == 5 and not settings.node.controllers
    assert listeners_of(environ)[1] == ("BROKER", "0.0.0.0", 9092, "172.17.0.2", 9092)


def test_an_id_to_be_made_up_is_one() -> None:
    assert container_settings({"KAFKA_BROKER_ID": "-1"}).node.values["node.id"] == "1"


def test_the_environment_wins_over_a_mounted_file() -> None:
    file_values = {"num.partitions": "2", "log.retention.ms": "7"}
    settings = container_settings({"KAFKA_NUM_PARTITIONS": "3"}, file_values)
    assert settings.node.values["num.partitions"] == "3"
    assert settings.node.values["log.retention.ms"] == "7"


@pytest.mark.parametrize("variable", ["CLUSTER_ID", "KAFKA_CLUSTER_ID"])
def test_the_clusters_id_goes_by_two_names(variable: str) -> None:
    assert container_settings({variable: "abc"}).node.cluster_id == "abc"


def test_topics_in_the_form_that_is_known() -> None:
    assert parse_topics("a:3:1,b, c:2\nd:1:1:compact") == [
        ("a", 3, 1, {}),
        ("b", -1, -1, {}),
        ("c", 2, -1, {}),
        ("d", 1, 1, {"cleanup.policy": "compact"}),
    ]
    assert [topic[0] for topic in parse_topics("a:1:1;b", ";")] == ["a", "b"]


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"KAFKA_NUM_PARTITIONS": "x"}, "KAFKA_NUM_PARTITIONS: Invalid value x"),
        ({"KAFKA_CREATE_TOPICS": "a:0"}, "KAFKA_CREATE_TOPICS"),
        ({"KAFKA_CREATE_TOPICS": "a:999999"}, "1 to 10000"),
        ({"KAFKA_CREATE_TOPICS": ":1"}, "KAFKA_CREATE_TOPICS"),
        ({"KAFKA_CREATE_TOPICS": "a:1:1:compact:x"}, "KAFKA_CREATE_TOPICS"),
        ({"CLUSTER_ID": "a b"}, "CLUSTER_ID"),
        ({"KWIRE_LOG_LEVEL": "loud"}, "KWIRE_LOG_LEVEL"),
        ({"KAFKA_PROCESS_ROLES": "leader"}, "KAFKA_PROCESS_ROLES"),
        ({"KAFKA_PROCESS_ROLES": "broker"}, "KAFKA_CONTROLLER_QUORUM_VOTERS"),
        (
            {"KAFKA_PROCESS_ROLES": "broker", "KAFKA_CONTROLLER_QUORUM_VOTERS": "one"},
            "ID@HOST:PORT",
        ),
        (
            {
                "KAFKA_PROCESS_ROLES": "controller",
                "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://a:1",
                "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:2",
            },
            "KAFKA_ADVERTISED_LISTENERS",
        ),
        (
            {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:2"},
            "KAFKA_LISTENERS",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_refusal_is_one_line_that_names_the_variable(environ: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        container_settings(environ)
    assert says in str(refused.value) and "\n" not in str(refused.value)


# -- several nodes ---------------------------------------------------------------------------------------------------

VOTERS = "4@controller:9093,5@other:9093"


def node(roles: str, node_id: int, voters: str = VOTERS) -> dict[str, str]:
    environ = {
        "KAFKA_NODE_ID": str(node_id),
        "KAFKA_PROCESS_ROLES": roles,
        "KAFKA_CONTROLLER_QUORUM_VOTERS": voters,
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": "CONTROLLER://:9093",
    }
    if "broker" in roles:
        environ["KAFKA_LISTENERS"] = "PLAINTEXT://:19092,CONTROLLER://:9093"
        environ["KAFKA_ADVERTISED_LISTENERS"] = f"PLAINTEXT://broker-{node_id}:19092"
    return environ


def test_voters_are_read() -> None:
    assert parse_voters(VOTERS) == [(4, "controller", 9093), (5, "other", 9093)]
    assert parse_voters("1@[::1]:9093,") == [(1, "::1", 9093)]


def test_a_broker_goes_to_the_first_voter() -> None:
    settings = container_settings(node("broker", 1))
    assert settings.node.controllers == ((4 + CONTROLLER_IDS_FROM, "controller", 9093),)
    assert (settings.runs_broker, settings.runs_controller) == (True, False)
    made = broker_spec(settings)
    found = parse_listeners(BrokerConfig(made.configuration()))
    assert [str(listener) for listener in found] == ["PLAINTEXT://:19092"]


def test_the_first_voter_is_the_controller_and_the_others_stand_by() -> None:
    first, second = (container_settings(node("controller", number)) for number in (4, 5))
    assert (first.runs_broker, first.runs_controller) == (False, True)
    assert (second.runs_broker, second.runs_controller) == (False, False)
    made = controller_spec(first)
    assert made.node_id == 4 + CONTROLLER_IDS_FROM
    (listener,) = parse_listeners(BrokerConfig(made.configuration()))
    assert (listener.port, listener.advertised_host) == (9093, "controller")
    assert made.data_dir == DATA_DIR


def test_three_nodes_with_both_roles_have_one_controller() -> None:
    voters = "1@a:9093,2@b:9093,3@c:9093"
    made = [container_settings(node("broker,controller", number, voters)) for number in (1, 2, 3)]
    assert [each.runs_controller for each in made] == [True, False, False]
    assert all(each.runs_broker and each.node.brokers == 3 for each in made)
    assert controller_spec(made[0]).data_dir.startswith(DATA_DIR + "/")
    for settings in made:
        names = [
            each.name
            for each in parse_listeners(BrokerConfig(broker_spec(settings).configuration()))
        ]
        assert names == ["PLAINTEXT"]


def test_voters_may_take_over_from_each_other() -> None:
    two = {"KWIRE_CONTROLLERS": "2"}
    made = [container_settings(node("controller", number) | two) for number in (4, 5)]
    for settings in made:
        assert settings.runs_controller
        asked = controller_spec(settings)
        assert asked.standby and asked.data_dir == DATA_DIR
    assert controller_spec(made[1]).node_id == 5 + CONTROLLER_IDS_FROM
    assert controller_spec(made[1]).values["advertised.listeners"] == "PLAINTEXT://other:9093"
    broker = broker_spec(container_settings(node("broker", 1) | two))
    assert broker.controllers == (
        (4 + CONTROLLER_IDS_FROM, "controller", 9093),
        (5 + CONTROLLER_IDS_FROM, "other", 9093),
    )
    assert not controller_spec(container_settings(node("controller", 4))).standby

    both = node("broker,controller", 2, "1@a:9093,2@b:9093") | two
    with pytest.raises(SettingsError, match="KWIRE_CONTROLLER_DIR is needed"):
        container_settings(both)
    settings = container_settings(both | {"KWIRE_CONTROLLER_DIR": "/shared"})
    assert controller_spec(settings).data_dir == "/shared"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"KWIRE_CONTROLLERS": "two"}, "KWIRE_CONTROLLERS=two: expected a number from 1 to 9"),
        ({"KWIRE_CONTROLLERS": "0"}, "KWIRE_CONTROLLERS=0: expected a number from 1 to 9"),
        ({"KWIRE_CONTROLLERS": "2"}, "KAFKA_CONTROLLER_QUORUM_VOTERS names 0"),
        ({"KWIRE_CONTROL_PORT": "0"}, "KWIRE_CONTROL_PORT=0: expected a number from 1 to 65535"),
    ],
)
def test_kwires_own_numbers_are_checked(variables: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        container_settings(variables)
    with pytest.raises(SettingsError, match="names 2"):
        container_settings(node("controller", 4) | {"KWIRE_CONTROLLERS": "3"})


def test_the_control_api_is_there_when_asked_for() -> None:
    settings = container_settings({"KWIRE_CONTROL_PORT": "9099", "KWIRE_RECENT_REQUESTS": "true"})
    assert (settings.control_port, settings.node.recent_requests) == (9099, True)
    settings = container_settings({})
    assert (settings.control_port, settings.node.recent_requests) == (None, False)


# -- what is said ----------------------------------------------------------------------------------------------------


def test_the_lines_that_others_wait_for() -> None:
    text = "\n".join(ready_lines("3", "2026-01-31 12:00:00,000"))
    for line in (
        "Transitioning from RECOVERY to RUNNING",
        "[KafkaServer id=3] started",
        "Kafka Server started",
    ):
        assert text.count(line) == 1


@pytest.mark.parametrize(
    ("listeners", "address", "is_tls"),
    [
        ("PLAINTEXT://0.0.0.0:9092", "127.0.0.1:9092", False),
        ("CONTROLLER://:9094,PLAINTEXT://:9092", "127.0.0.1:9092", False),
        ("CONTROLLER://:9094", "127.0.0.1:9094", False),
        ("PLAINTEXT://[::]:9092", "127.0.0.1:9092", False),
        ("PLAINTEXT://kafka:19092", "kafka:19092", False),
        ("CONTROLLER://:9094,SASL_SSL://:9092", "127.0.0.1:9092", True),
        ("SSL://:9092,SASL_PLAINTEXT://:9093", "127.0.0.1:9093", False),
        ("A://:9092", "127.0.0.1:9092", True),
    ],
)
def test_where_a_health_check_asks(listeners: str, address: str, is_tls: bool) -> None:
    protocols = "A:SSL,SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"
    values = {"listeners": listeners, "listener.security.protocol.map": protocols}
    assert health_address(values) == (address, is_tls)


def test_the_settings_of_testcontainers_are_all_accepted() -> None:
    BrokerConfig(configuration(TESTCONTAINERS))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFKA_AUTHORIZER_CLASS_NAME", "my.Authorizer"),
        ("KAFKA_SASL_SERVER_CALLBACK_HANDLER_CLASS", "my.Handler"),
        ("KAFKA_SSL_ENGINE_FACTORY_CLASS", "my.Factory"),
    ],
)
def test_a_variable_that_would_protect_is_refused_by_its_name(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable}: .*leave this key out$"):
        container_settings({**TESTCONTAINERS, variable: value})


def test_a_container_whose_clients_log_in() -> None:
    from kwire.launch.node_runner import NodeRunner

    line = 'x.PlainLoginModule required username="a" password="hush" user_a="hush";'
    settings = container_settings(
        {
            "KAFKA_LISTENERS": "SASL_PLAINTEXT://0.0.0.0:9092",
            "KAFKA_ADVERTISED_LISTENERS": "SASL_PLAINTEXT://localhost:9092",
            "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
            "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
            "KAFKA_SECURITY_INTER_BROKER_PROTOCOL": "SASL_PLAINTEXT",
            "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG": line,
        }
    )
    assert settings.unknown == {}
    runner = NodeRunner(settings.node)
    assert [each.asks_login for each in runner.node.listeners] == [True]
    assert runner.logins is not None and runner.logins.own is not None
    credentials = runner.logins.own.credentials
    assert credentials is not None and credentials.user == "a"


def test_security_that_asks_for_nothing_and_keys_of_vendors_are_neither_refused_nor_unknown() -> (
    None
):
    settings = container_settings(
        {
            **TESTCONTAINERS,
            "KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true",
            "KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "",
            "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://localhost:9092",
            "KAFKA_CONFLUENT_TIER_ENABLE": "true",
        }
    )
    assert settings.unknown == {}


def test_keys_without_effect_are_called_by_their_variables(
    caplog: pytest.LogCaptureFixture,
) -> None:
    variables = {"KAFKA_CONFLUENT_TIER_ENABLE": "true", "KAFKA_NUM_IO_THREADS": "99"}
    variables["KAFKA_REMOTE_LOG_STORAGE_SYSTEM_ENABLE"] = "true"
    settings = container_settings({**TESTCONTAINERS, **variables})
    with caplog.at_level("WARNING", "kwire"):
        warn_about_keys(BrokerConfig(settings.node.configuration()), settings.written)
    (line,) = [record.getMessage() for record in caplog.records]
    named = "KAFKA_CONFLUENT_TIER_ENABLE, KAFKA_REMOTE_LOG_STORAGE_SYSTEM_ENABLE"
    assert line == f"these configuration keys have no effect in kwire: {named}"
    caplog.clear()
    variables = {"KAFKA_ZOOKEEPER_SESSION_TIMEOUT_MS": "6000"}
    settings = container_settings({**TESTCONTAINERS, **variables})
    with caplog.at_level("WARNING", "kwire"):
        warn_about_keys(BrokerConfig(settings.node.configuration()), settings.written)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(
        "KAFKA_ZOOKEEPER_SESSION_TIMEOUT_MS; broker.session.timeout.ms acts instead of"
        " zookeeper.session.timeout.ms"
    )


def test_what_testcontainers_sets_is_not_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = container_settings({**TESTCONTAINERS, "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181"})
    with caplog.at_level("WARNING", "kwire"):
        warn_about_keys(BrokerConfig(settings.node.configuration()), settings.written)
    assert settings.unknown == {} and not caplog.records


def test_requests_that_nobody_can_ask_for_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"^KWIRE_RECENT_REQUESTS=true: .*KWIRE_CONTROL_PORT"):
        container_settings({"KWIRE_RECENT_REQUESTS": "true"})
    assert container_settings({"KWIRE_RECENT_REQUESTS": "true", "KWIRE_BROKERS": "2"}).brokers == 2
    assert not container_settings({"KWIRE_RECENT_REQUESTS": "false"}).node.recent_requests


# --- TLS


def test_tls_for_clients_of_a_container() -> None:
    values = container_settings({"KWIRE_TLS": "true"}).node.values
    assert values["listeners"] == "SSL://0.0.0.0:9092,KWIRE_INTERNAL://127.0.0.1:0"
    assert values["kwire.tls"] == "tls"
    raft = {
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
        "KWIRE_MTLS": "true",
    }
    values = container_settings(raft).node.values
    assert values["advertised.listeners"].startswith("SSL://kafka:9092,KWIRE_INTERNAL://")
    assert values["listeners"].endswith(",CONTROLLER://:9093")
    assert values["listener.name.ssl.ssl.client.auth"] == "required"
    assert unreachable_listeners(values) == []
    assert advertised_addresses(values) == ["kafka:9092"]
    with pytest.raises(SettingsError, match=r"^KWIRE_TLS=true: .*certificates of one authority"):
        more = {"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093,2@b:9093"}
        container_settings({**raft, "KWIRE_MTLS": "", "KWIRE_TLS": "true", **more})
    with pytest.raises(SettingsError, match=r"^KWIRE_TLS=maybe: expected true or false"):
        container_settings({"KWIRE_TLS": "maybe"})


@pytest.mark.parametrize("lock", ["KWIRE_TLS", "KWIRE_ACL"])
def test_locked_brokers_of_one_container_reach_each_other_inside(lock: str) -> None:
    advertised = "PLAINTEXT://localhost:9092"
    settings = container_settings(
        {lock: "true", "KWIRE_BROKERS": "3", "KAFKA_ADVERTISED_LISTENERS": advertised}
    )
    spec = ClusterSpec(node=settings.node.replace(data_dir="/d"), **settings.cluster)
    for node in spec.broker_specs():
        config = BrokerConfig(node.configuration())
        listeners = parse_listeners(config)
        assert [each.name for each in listeners][1:] == ["KWIRE_INTERNAL"]
        assert own_listener(config, listeners) == inter_broker_listener(config, listeners)
        assert own_listener(config, listeners) is listeners[1]


# --- access rules

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SEVERAL = {
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093,2@b:9093",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}


@pytest.mark.parametrize(
    ("given", "principals"),
    [
        ("admin", "User:admin"),
        ("admin, User:bob,", "User:admin;User:bob"),
        ("admin;User:CN=broker,OU=kafka", "User:admin;User:CN=broker,OU=kafka"),
        ("CN=broker,OU=kafka", "User:CN=broker,OU=kafka"),
    ],
)
def test_access_rules_in_a_container(given: str, principals: str) -> None:
    values = container_settings({"KWIRE_ACL": "true", "KWIRE_SUPER_USERS": given}).node.values
    assert values["super.users"] == principals
    assert values["authorizer.class.name"] == STANDARD
    assert values["allow.everyone.if.no.acl.found"] == "false"
    assert values["listeners"].startswith("PLAINTEXT://0.0.0.0:9092,KWIRE_INTERNAL://127.0.0.1:0")
    assert advertised_addresses(values) == ["localhost:9092"]


def test_kafkas_keys_of_access_rules_in_a_container() -> None:
    own = {"KAFKA_AUTHORIZER_CLASS_NAME": STANDARD, "KAFKA_SUPER_USERS": "User:a;User:b"}
    settings = container_settings(own)
    assert settings.unknown == {} and settings.node.values["super.users"] == "User:a;User:b"
    more = container_settings({**own, "KWIRE_SUPER_USERS": "c"}).node.values
    assert more["super.users"] == "User:a;User:b;User:c"


def test_access_rules_of_several_containers_leave_the_listeners_as_they_are() -> None:
    given = {**SEVERAL, "KWIRE_ACL": "true"}
    values = container_settings({**given, "KWIRE_SUPER_USERS": "ANONYMOUS"}).node.values
    assert values["listeners"] == SEVERAL["KAFKA_LISTENERS"]
    assert values["super.users"] == "User:ANONYMOUS"
    with pytest.raises(SettingsError, match=r"^KWIRE_ACL=true: .*name their user in KWIRE_SUPER"):
        container_settings(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"KWIRE_SUPER_USERS": "admin"}, "KWIRE_SUPER_USERS: it needs KWIRE_ACL=true"),
        ({"KWIRE_ACL": "true", "KWIRE_SUPER_USERS": "a:b"}, "KWIRE_SUPER_USERS: expected NAME or"),
        ({"KWIRE_ACL": "perhaps"}, "KWIRE_ACL=perhaps: expected true or false"),
    ],
)
def test_access_rules_that_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=f"^{said}") as caught:
        container_settings(given)
    assert "\n" not in str(caught.value) and "a:b" not in str(caught.value)
