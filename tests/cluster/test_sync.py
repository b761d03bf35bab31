"""`kwire.Cluster` has what `kwire.aio.Cluster` has: the same methods, arguments, defaults and
docstrings."""

from __future__ import annotations

import ast
import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest

from kwire import aio, cluster
from kwire.backends import network

TOOL = Path(__file__).parents[2] / "tools" / "sync_cluster.py"
PAIRS = [
    (aio.Cluster, cluster.Cluster),
    (aio.Broker, cluster.Broker),
    (aio.Controller, cluster.Controller),
    (network.Network, cluster.Network),
]
ASYNC_ONLY = {
    "Cluster": {"of", "inside", "node"},
    "Network": {"apply", "lift", "undo", "rules_of"},
}
# A context, not an awaitable that is one; and a predicate that is called, not awaited.
OTHER_TYPES = {"Network.cut", "Network.delay", "Cluster.wait_for"}
OTHER_DOCSTRINGS = {*OTHER_TYPES, "Network", "Cluster", "Cluster.connect", "Cluster.started"}


def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def test_what_is_generated_is_fresh() -> None:
    made = tool()
    assert made["SYNC"].read_text() == made["text"](), "run python tools/sync_cluster.py"


def test_a_method_that_is_new_or_changed_is_noticed() -> None:
    made = tool()
    (node,) = ast.parse(
        "class Cluster:\n    async def f(self, a, *, b=1) -> Broker:\n        'x'"
    ).body
    assert isinstance(node, ast.ClassDef)
    (function,) = node.body
    assert (
        made["_body"]("Cluster", function)
        == "return Broker(self, self._run(self._inner.f(a, b=b)))"
    )


def members(of: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers_static(of)
        if name[0] != "_" and (callable(member) or isinstance(member, property | classmethod))
    }


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_two_have_the_same_members(one: type, other: type) -> None:
    async_only = ASYNC_ONLY.get(other.__name__, set())
    assert members(one).keys() - members(other).keys() == async_only
    assert members(other).keys() <= members(one).keys()
    for name, theirs in members(other).items():
        ours = members(one)[name]
        full = f"{other.__name__}.{name}"
        assert type(ours) is type(theirs), full
        if full not in OTHER_DOCSTRINGS:
            assert ours.__doc__ == theirs.__doc__, full
        if callable(theirs):
            signatures = [inspect.signature(ours), inspect.signature(theirs)]
            if full in OTHER_TYPES:
                signatures = [_without_types(each) for each in signatures]
            assert signatures[0] == signatures[1], full


def _without_types(signature: inspect.Signature) -> inspect.Signature:
    bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return signature.replace(parameters=bare, return_annotation=signature.empty)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_two_are_made_alike_and_described_alike(one: type, other: type) -> None:
    if other is cluster.Cluster:
        assert inspect.signature(one) == inspect.signature(other)
        assert one.__init__.__doc__ == other.__init__.__doc__
    if other.__name__ not in OTHER_DOCSTRINGS:
        assert one.__doc__ == other.__doc__
