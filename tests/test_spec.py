"""A node's and a cluster's options: each field survives every way that it is passed on."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.cli.node import node as node_command
from kwire.cli.up import up as up_command
from kwire.docker.environment import container_settings
from kwire.launch.configuration import cluster_spec, node_spec
from kwire.launch.options import (
    FLAG,
    NUMBER,
    PAIRS,
    REQUIRED,
    RULES,
    TEXT,
    VOTERS,
    Option,
    Spec,
    option,
)
from kwire.launch.spec import BROKER, CONTROLLER, DOCKER, PROCESS, ClusterSpec, NodeSpec
from kwire.server.errors import SettingsError
from kwire.server.link_rules import LinkRule

LISTENERS = {"listeners": "PLAINTEXT://127.0.0.1:9092"}
# Fields that allow some texts only, or that mean something to others.
GIVEN: dict[str, Any] = {
    "node_id": 7,
    "role": CONTROLLER,
    "data_dir": "/somewhere,/else",
    "as_version": "2.8",
}
OF_KIND: dict[str, Any] = {
    FLAG: True,
    NUMBER: 5,
    TEXT: "a text, with = and -",
    RULES: (LinkRule(2), LinkRule(3, 50)),
    VOTERS: ((1000, "127.0.0.1", 9090), (1001, "::1", 9091)),
    PAIRS: {**LISTENERS, "log.retention.ms": "1", "broker.rack": "a=b, c"},
}


def changed_value(name: str, field: Option) -> Any:
    """A value that the field does not have by itself."""
    if name in GIVEN:
        return GIVEN[name]
    if field.choices:
        return next(choice for choice in field.choices if choice != field.default)
    return OF_KIND[field.kind]


def changed_spec() -> NodeSpec:
    """No field has its default."""
    spec = NodeSpec(**{name: changed_value(name, field) for name, field in NodeSpec.fields.items()})
    assert spec.changed().keys() == NodeSpec.fields.keys()
    return spec


def from_argv(argv: list[str]) -> NodeSpec:
    """As `kwire node` reads its command line."""
    options = dict(node_command.make_context("node", list(argv)).params)
    assert options.pop("supervised") is False
    return node_spec(**options)


def test_every_field_survives_the_command_line() -> None:
    spec = changed_spec()
    assert from_argv(spec.argv()) == spec


@pytest.mark.parametrize("name", NodeSpec.fields)
def test_a_field_survives_by_itself(name: str) -> None:
    needed = {"node_id": 1, "role": CONTROLLER, "data_dir": "/d", "values": LISTENERS}
    spec = NodeSpec(**{**needed, name: changed_value(name, NodeSpec.fields[name])})
    assert from_argv(spec.argv()) == spec


def test_a_broker_survives_with_its_controllers() -> None:
    spec = changed_spec().replace(role=BROKER, standby=False)
    assert from_argv(spec.argv()) == spec


def test_fields_with_a_variable_survive_a_containers_environment() -> None:
    spec = changed_spec()
    with_variable = [name for name, field in NodeSpec.fields.items() if field.variable]
    assert {"recent_requests", "as_version"} <= set(with_variable)
    environ = {**spec.variables(), "KWIRE_CONTROL_PORT": "9099"}  # for the requests
    found = container_settings(environ).node
    for name in with_variable:
        assert getattr(found, name) == getattr(spec, name), name


def test_options_that_kwire_up_shares_survive_its_command_line() -> None:
    spec = changed_spec()
    shared = [name for name, field in NodeSpec.fields.items() if field.up_help]
    assert {"recent_requests", "as_version"} <= set(shared)
    words = [w for name in shared for w in NodeSpec.fields[name].words(getattr(spec, name))]
    words += ["--brokers", "3", "--controllers", "2", "--isolation", "process"]
    options = dict(up_command.make_context("up", words).params)
    for name in ("topics", "ready_file", "control_port", "control_host", "detach", "open_page"):
        del options[name]
    found = cluster_spec(**options)
    assert (found.brokers, found.controllers, found.isolation) == (3, 2, PROCESS)
    for name in shared:
        assert getattr(found.node, name) == getattr(spec, name), name


def test_nodes_of_a_cluster_have_what_the_first_one_has() -> None:
    """Every field but those that make a node what it is."""
    node = changed_spec().replace(values=LISTENERS, data_dir="/d")
    cluster = ClusterSpec(brokers=2, controllers=2, node=node, overrides={8: {"broker.rack": "b"}})
    own = {"node_id", "role", "values", "data_dir", "brokers"}
    for broker in cluster.broker_specs():
        assert {n for n in NodeSpec.fields if getattr(broker, n) != getattr(node, n)} <= own
    first, second = cluster.broker_specs()
    assert (first.node_id, second.node_id) == (7, 8)
    assert (first.data_dir, second.data_dir) == ("/d/broker-7", "/d/broker-8")
    assert first.values == LISTENERS and first.brokers == second.brokers == 2
    assert second.values == {"listeners": "PLAINTEXT://127.0.0.1:9093", "broker.rack": "b"}
    for number, controller in enumerate(cluster.controller_specs()):
        differs = {n for n in NodeSpec.fields if getattr(controller, n) != getattr(node, n)}
        assert differs <= own
        assert (controller.node_id, controller.role) == (1000 + number, CONTROLLER)
        assert controller.data_dir == "/d/controller" and controller.standby


def test_controllers_have_ids_above_those_of_brokers() -> None:
    def ids(first: int, brokers: int, controllers: int) -> list[int]:
        node = NodeSpec(node_id=first, values=LISTENERS, data_dir="/d")
        cluster = ClusterSpec(brokers=brokers, controllers=controllers, node=node)
        return [spec.node_id for spec in cluster.controller_specs()]

    assert ids(1, 3, 1) == [1000]
    assert ids(998, 3, 2) == [1001, 1002]
    assert ids(1001, 3, 2) == [1004, 1005]
    assert ids(1001, 3, 1) == [1000]


def test_a_spec_is_a_value() -> None:
    spec = NodeSpec(node_id=1)
    assert spec == NodeSpec(node_id=1) and spec != NodeSpec(node_id=2)
    assert spec.replace(again=True).again and not spec.again
    assert repr(spec) == "NodeSpec(node_id=1)"
    with pytest.raises(AttributeError, match="use replace"):
        spec.again = True  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"NodeSpec: unknown or missing: node_id$"):
        NodeSpec()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unknown or missing: nothing$"):
        NodeSpec(node_id=1, nothing=2)  # type: ignore[call-arg]


def test_a_new_field_is_an_option_without_further_ado() -> None:
    class Small(Spec):
        flag: bool = option("--flag", FLAG, default=False)
        number: int = option("--number", NUMBER, default=0)
        inner: str = option(default="")

    assert list(Small.fields) == ["flag", "number", "inner"]
    assert Small().changed() == {}
    assert Small.fields["number"].words(3) == ["--number", "3"]
    assert Small.fields["number"].default is not REQUIRED


def test_the_choices_of_a_command_line_do_not_bind_python() -> None:
    node = NodeSpec(node_id=1)
    assert ClusterSpec(node=node).is_standalone
    assert not ClusterSpec(controllers=2, node=node).is_standalone
    assert ClusterSpec(isolation=DOCKER, node=node).changed() == {
        "isolation": DOCKER,
        "node": node,
    }


def up_spec(*words: str) -> ClusterSpec:
    """The spec of `kwire up` with these words."""
    options = dict(up_command.make_context("up", list(words)).params)
    for name in ("topics", "ready_file", "control_port", "control_host", "detach", "open_page"):
        del options[name]
    return cluster_spec(**options)


def test_keys_of_single_brokers() -> None:
    words = ["--brokers", "2", "--rack", "a", "-c", "log.retention.ms=5"]
    first, second = up_spec(
        *words, "-c", "2:log.retention.ms=7", "-c", "2:broker.rack=b"
    ).broker_specs()
    assert (first.values["log.retention.ms"], first.values["broker.rack"]) == ("5", "a")
    assert (second.values["log.retention.ms"], second.values["broker.rack"]) == ("7", "b")
    assert up_spec("-c", "1:log.retention.ms=7").node.values["log.retention.ms"] == "7"
    for key, said in (
        ("2:log.retention.ms", "there is no broker 2, but 1 only"),
        ("1:log.dirs", "log.dirs cannot be given to a single broker"),
        ("1:", "no key cannot be given to a single broker"),
        ("1:ssl.keystore.filename", ""),
    ):
        with pytest.raises(SettingsError) as refused:
            up_spec("-c", f"{key}=5")
        assert not said or str(refused.value) == f"-c {key}: {said}"


def test_racks_of_kwire_up() -> None:
    spec = up_spec
    racks = ["--rack", "a", "--rack", "b"]
    brokers = spec("--brokers", "3", *racks).broker_specs()
    assert [broker.values["broker.rack"] for broker in brokers] == ["a", "b", "a"]
    assert spec("--rack", "a").node.values["broker.rack"] == "a"
    for words, said in (
        (racks, "--rack: 2 racks (a, b) for 1 broker(s)"),
        (["--rack", ""], "--rack: a rack has no name"),
        (["--rack", "a", "-c", "broker.rack=b"], "--rack and -c broker.rack=b: give one of them"),
    ):
        with pytest.raises(SettingsError) as refused:
            spec(*words)
        assert str(refused.value) == said
