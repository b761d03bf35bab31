"""kafka-acls of the image, against a cluster with access rules."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.cluster import Cluster
from kwire.docker import tools

pytestmark = pytest.mark.timeout(60)
ORDERS = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
GROUP = "ResourcePattern(resourceType=GROUP, name=g, patternType=LITERAL)"


class Tool:
    """Runs kafka-acls as the super user: its status, and what it wrote to stdout and stderr."""

    def __init__(self, cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        values = cluster.client_config("java", "admin")
        self._servers = values.pop("bootstrap.servers")
        self._file = folder / "client.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        at = ("--bootstrap-server", self._servers, "--command-config", str(self._file))
        status = tools.main(["kafka-acls", *at, *words])
        said = self._capsys.readouterr()
        return status, said.out, said.err

    def lines(self, *words: str) -> list[str]:
        """What it says, without blanks."""
        status, out, err = self(*words)
        assert (status, err) == (0, "")
        return [line.strip() for line in out.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    users = {"admin": "secret", "alice": "hush"}
    with Cluster(sasl="plain", users=users, acl=True, super_users=["admin"]) as running:
        yield running


@pytest.fixture
def tool(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    made = Tool(cluster, tmp_path, capsys)
    yield made
    for kind in ("--topic", "--group", "--transactional-id"):
        made("--remove", "--force", kind, "*", "--resource-pattern-type", "any")
        made("--remove", "--force", kind, "orders", "--resource-pattern-type", "match")
    made("--remove", "--force", "--group", "g")
    made("--remove", "--force", "--cluster")


def entry(user: str, operation: str, permission: str = "ALLOW", host: str = "*") -> str:
    return (
        f"(principal=User:{user}, host={host}, operation={operation}, permissionType={permission})"
    )


def test_rules_are_added_listed_and_removed(tool: Tool) -> None:
    alice = ("--allow-principal", "User:alice")
    read = ("--operation", "Read", "--operation", "describe-configs".replace("-", "_"))
    status, out, err = tool("--add", *alice, *read, "--topic", "orders")
    assert (status, err) == (0, "")
    lines = f"\t{entry('alice', 'READ')}\n\t{entry('alice', 'DESCRIBE_CONFIGS')}"
    assert out == f"Adding ACLs for resource `{ORDERS}`: \n {lines} \n\n"
    tool("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--topic", "orders")
    denied = entry("bob", "ALL", "DENY", "10.0.0.1")
    assert tool.lines("--list") == [
        f"Current ACLs for resource `{ORDERS}`:",
        entry("alice", "READ"),
        entry("alice", "DESCRIBE_CONFIGS"),
        denied,
    ]
    assert tool.lines("--list", "--principal", "User:bob", "--topic", "orders") == [
        "ACLs for principal `User:bob`",
        f"Current ACLs for resource `{ORDERS}`:",
        denied,
    ]
    assert tool.lines("--list", "--group", "orders") == []
    assert tool.lines("--remove", "--force", *alice, *read, "--topic", "orders") == []
    assert tool.lines("--list")[1:] == [denied]
    assert tool.lines("--remove", "--force", "--topic", "orders") == []
    assert tool.lines("--list") == []


def test_rules_of_producers_and_consumers(tool: Tool) -> None:
    who = ("--allow-principal", "User:alice", "--topic", "orders", "--group", "g")
    tool("--add", *who, "--producer", "--idempotent", "--consumer", "--transactional-id", "orders")
    assert tool.lines("--list") == [
        f"Current ACLs for resource `{ORDERS}`:",
        *(entry("alice", name) for name in ("READ", "WRITE", "CREATE", "DESCRIBE")),
        f"Current ACLs for resource `{GROUP}`:",
        entry("alice", "READ"),
        "Current ACLs for resource `ResourcePattern(resourceType=CLUSTER, name=kafka-cluster,"
        " patternType=LITERAL)`:",
        entry("alice", "IDEMPOTENT_WRITE"),
        "Current ACLs for resource `ResourcePattern(resourceType=TRANSACTIONAL_ID, name=orders,"
        " patternType=LITERAL)`:",
        entry("alice", "WRITE"),
        entry("alice", "DESCRIBE"),
    ]


def test_patterns(tool: Tool) -> None:
    alice = ("--allow-principal", "User:alice")
    tool("--add", *alice, "--topic", "ord", "--resource-pattern-type", "prefixed")
    prefixed = "ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)"
    shown = [f"Current ACLs for resource `{prefixed}`:", entry("alice", "ALL")]
    assert tool.lines("--list", "--topic", "orders") == []
    match = ("--topic", "orders", "--resource-pattern-type", "match")
    assert tool.lines("--list", *match) == shown
    status, _, said = tool("--add", *alice, *match)
    assert status == 1 and "'MATCH' is not valid when adding acls" in said
    assert tool.lines("--remove", "--force", *match) == []
    assert tool.lines("--list") == []


@pytest.mark.parametrize(("answer", "left"), [("n", 1), ("y", 0)])
def test_a_removal_is_asked_for(
    tool: Tool, answer: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = ("--allow-principal", "User:alice", "--topic", "orders")
    for words in (rule, rule[2:]):
        tool("--add", *rule)
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))
        asked = tool.lines("--remove", *words)
        assert asked[0].startswith("Are you sure you want to ")
        assert f"resource filter `{ORDERS}`? (y/n)" in asked[-1]
        assert len(tool.lines("--list")) == 2 * left


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--list --add", "Command must include exactly one action: --list, --add, --remove."),
        ("--add --allow-principal User:a", "You must provide at least one resource"),
        ("--add --topic t", "You must specify one of: --allow-principal, --deny-principal"),
        ("--add --topic t --principal User:a", "only available if --list is set"),
        ("--add --producer --group g", "With --producer you must specify a --topic"),
        ("--add --idempotent --topic t", "only available if --producer is set"),
        ("--add --consumer --topic t", "With --consumer you must specify a --topic and a --group"),
        ("--list --allow-host 1", 'Option "[allow-host]" can\'t be used with option "[list]"'),
        ("--add --producer --operation Read --topic t", "can't be used with option"),
        ("--add --topic t --allow-principal a", "principalType:principalName"),
        ("--add --topic t --allow-principal User:a --operation Fly", "expected one of All, Read"),
        ("--list --topic t --resource-pattern-type odd", "Unknown resource-pattern-type: odd"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tool: Tool, words: str, said: str) -> None:
    status, out, err = tool(*words.split())
    assert (status, out) == (1, "") and said in err and err.count("\n") == 1, err


def test_who_may_not_is_told_so(tool: Tool, cluster: Cluster) -> None:
    text = tool._file.read_text()
    tool._file.write_text(text.replace('"admin"', '"alice"').replace("secret", "hush"))
    assert tool("--list") == (
        1,
        "",
        "kafka-acls: CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed.\n",
    )
    tool._file.write_text(text)
