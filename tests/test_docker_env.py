"""A container's environment as settings: Kafka's rule for names, listeners as others write them, roles, refusals."""

from __future__ import annotations

import pytest

from kwire.docker.cluster_node import broker_spec, controller_spec
from kwire.docker.container import health_address, ready_lines
from kwire.docker.environment import (
    DATA_DIR,
    configuration,
    container_settings,
    parse_topics,
    parse_voters,
    property_name,
    tidy_listeners,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.types import CONTROLLER_IDS_FROM
from kwire.server.errors import SettingsError
from kwire.server.listeners import parse_listeners

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
    ("listeners", "controllers", "address"),
    [
        ("PLAINTEXT://0.0.0.0:9092", "", "127.0.0.1 9092"),
        ("CONTROLLER://:9094,PLAINTEXT://:9092", "CONTROLLER", "127.0.0.1 9092"),
        ("CONTROLLER://:9094", "CONTROLLER", "127.0.0.1 9094"),
        ("PLAINTEXT://[::]:9092", "", "127.0.0.1 9092"),
        ("PLAINTEXT://kafka:19092", "", "kafka 19092"),
    ],
)
def test_where_a_health_check_asks(listeners: str, controllers: str, address: str) -> None:
    assert health_address(listeners, controllers) == address


def test_the_settings_of_testcontainers_are_all_accepted() -> None:
    BrokerConfig(configuration(TESTCONTAINERS))
