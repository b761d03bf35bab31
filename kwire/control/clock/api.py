"""Handlers of the control API about the clock: of a cluster, and of the nodes in one process.

A clock is `now_ms`, Unix milliseconds, `offset_ms`, how far it is ahead of the real one, and `frozen`.
"""

from __future__ import annotations

from functools import partial

from kwire.control.errors import ControlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster
    from kwire.control.node_api import ControlledNode, NodeControl
    from kwire.server.clock.advanced import AdvancedNode

FIELDS = (
    "days:number?",
    "hours:number?",
    "minutes:number?",
    "seconds:number?",
    "milliseconds:number?",
)
"""Of a route, in the order of `kwire.advance.amounts.total_ms`."""
_ROUNDS = 100_000
"""Of events of one process in one advance; a fuse."""

# --- of a cluster


async def show(cluster: Cluster) -> dict[str, Any]:
    """What time it is in the cluster."""
    return cluster.clock.to_json()


async def advance(cluster: Cluster, *amounts: float | None) -> dict[str, Any]:
    """Let time pass for all nodes at once; return the new time."""
    await cluster.clock.advance_by(_total_ms(amounts))
    return cluster.clock.to_json()


async def freeze(cluster: Cluster) -> dict[str, Any]:
    """Let time stand still at all nodes."""
    await cluster.clock.freeze()
    return cluster.clock.to_json()


async def resume(cluster: Cluster) -> dict[str, Any]:
    """Let time go on after a freeze."""
    await cluster.clock.resume()
    return cluster.clock.to_json()


def _total_ms(amounts: tuple[float | None, ...]) -> int:
    from kwire.advance.amounts import total_ms

    if all(each is None for each in amounts):
        raise ControlError(400, "how far? expected days, hours, minutes, seconds or milliseconds")
    try:
        return total_ms(*(each or 0 for each in amounts))
    except ValueError as error:
        raise ControlError(400, str(error)) from None


# --- of nodes


def show_nodes(control: NodeControl) -> dict[str, Any]:
    """What time it is at these nodes."""
    import time

    offset_ms, frozen = 0, False
    for each in control.nodes():
        each.node.perform(lambda: None)  # a step sets the clock
        offset_ms = each.node.clock.offset_ms
        frozen = getattr(each.node, "frozen", False)
    now_ms = time.time_ns() // 1_000_000 + offset_ms
    return {"now_ms": now_ms, "offset_ms": offset_ms, "frozen": frozen}


def advance_nodes(control: NodeControl, *amounts: float | None) -> dict[str, Any]:
    """Let time pass for the nodes in this process at once; return the new time."""
    advance_here(control, _total_ms(amounts))
    return show_nodes(control)


def advance_here(control: NodeControl, total_ms: int) -> None:
    """Advance the nodes in this process by themselves, up to each next event of one of them."""
    change_nodes(control, "begin", None)
    for _ in range(_ROUNDS):
        dues = [each for each in (_next_ms(node) for node in control.nodes()) if each is not None]
        delay_ms = min(total_ms, max(1, min(dues, default=total_ms)))
        change_nodes(control, "run", delay_ms)
        total_ms -= delay_ms
        if not total_ms:
            return
    change_nodes(control, "run", total_ms)


def change_nodes(control: NodeControl, verb: str, milliseconds: int | None) -> dict[str, Any]:
    """A part of what is done to a cluster's clock: "begin" an advance, "show" that brokers are alive, "run" so many
    milliseconds of it, "look", "set" the offset without letting time pass, "freeze", "resume" at this offset.

    Returns in how many milliseconds the next event is due (None: in no advance), who has not shown that it is alive,
    what is under way between nodes, and the offset."""
    if verb not in _VERBS:
        raise ControlError(400, f"verb: expected one of {', '.join(_VERBS)}, not {verb[:100]!r}")
    from kwire.server.clock.advanced import advanced

    found: dict[str, Any] = {"next_ms": None, "awaited": [], "under_way": [], "offset_ms": 0}
    for each in control.nodes():
        node = advanced(each.node)
        node.perform(partial(_VERBS[verb], node, each, milliseconds or 0))
        next_ms = _next_ms(each)
        if next_ms is not None:
            found["next_ms"] = min(next_ms, found["next_ms"] or next_ms)
        if node.advance is not None:
            found["awaited"] += node.advance.life.awaited()
            found["under_way"] += node.advance.life.under_way()
        found["offset_ms"] = node.clock.offset_ms
    return found


def _begin(node: AdvancedNode, each: ControlledNode, _: int) -> None:
    from kwire.advance.advance import Advance

    node.advance = Advance(each.core)


def _show(node: AdvancedNode, each: ControlledNode, _: int) -> None:
    if node.advance is not None:
        node.advance.life.show()


def _run(node: AdvancedNode, each: ControlledNode, milliseconds: int) -> None:
    if node.advance is None:
        _begin(node, each, 0)
    assert node.advance is not None
    node.advance.run(milliseconds)


def _look(node: AdvancedNode, each: ControlledNode, _: int) -> None:
    pass


def _set(node: AdvancedNode, each: ControlledNode, milliseconds: int) -> None:
    from kwire.advance.advance import set_offset

    set_offset(each.core, milliseconds)


def _freeze(node: AdvancedNode, each: ControlledNode, _: int) -> None:
    node.frozen = True


def _resume(node: AdvancedNode, each: ControlledNode, milliseconds: int) -> None:
    if node.frozen:
        node.frozen = False
        _set(node, each, milliseconds)


def _next_ms(each: ControlledNode) -> int | None:
    advance = getattr(each.node, "advance", None)
    return None if advance is None else advance.next_ms()


_VERBS = {
    "begin": _begin,
    "show": _show,
    "run": _run,
    "look": _look,
    "set": _set,
    "freeze": _freeze,
    "resume": _resume,
}
