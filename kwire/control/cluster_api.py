"""Handlers of a cluster's control API (`kwire up`), one per route, on top of `kwire.aio.Cluster`.

Each handler takes the cluster and the values of its route (`routes.py`), and returns a JSON object.
`contents_api.py` has those about topics, records, groups, transactions and clients, `live/` those whose
answers are no JSON objects.
"""

from __future__ import annotations

from contextlib import suppress

from kwire import errors
from kwire.control.errors import ControlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Broker, Cluster, Controller

    Ids = int | list[int]


async def health(_: Cluster) -> dict[str, Any]:
    """Whether the control API answers."""
    return {"status": "ok"}


async def describe(cluster: Cluster) -> dict[str, Any]:
    """The cluster's nodes, and which controller is active."""
    active = None
    with suppress(errors.BrokerNotAvailableError):
        active = await cluster.active_controller()
    return {
        "bootstrap": cluster.bootstrap_servers,
        "brokers": [_state(broker) for broker in cluster.brokers],
        "controllers": [
            {**_state(controller), "active": controller is active}
            for controller in cluster.controllers
        ],
    }


async def change_broker(cluster: Cluster, broker_id: int, verb: str) -> dict[str, Any]:
    """Kill, stop, start, pause or resume a broker."""
    with _unknown_node():
        broker = cluster.broker(broker_id)
    return await _change(broker, verb)


async def change_controller(cluster: Cluster, controller_id: int, verb: str) -> dict[str, Any]:
    """Kill, stop, start, pause or resume a controller."""
    with _unknown_node():
        controller = cluster.controller(controller_id)
    return await _change(controller, verb)


async def status(cluster: Cluster, node_id: int) -> dict[str, Any]:
    """The state of a broker or controller, as SIGUSR1 logs it."""
    with _unknown_node():
        return await cluster.status(node_id)


async def partition(cluster: Cluster, topic: str, index: int) -> dict[str, Any]:
    """The state of a partition at the controller and at its replicas."""
    found = await cluster.partition(topic, index)
    high_watermark = None
    with suppress(errors.BrokerNotAvailableError):
        high_watermark = found.high_watermark
    return {
        "topic": topic,
        "partition": index,
        "leader": found.leader,
        "leader_epoch": found.leader_epoch,
        "isr": sorted(found.isr),
        "high_watermark": high_watermark,
        "replicas": [
            {
                "broker": each.broker,
                "log_start_offset": each.log_start_offset,
                "log_end_offset": each.log_end_offset,
                "high_watermark": each.high_watermark,
                "epochs": [list(entry) for entry in each.epochs],
            }
            if (each := found.found.get(broker)) is not None
            else {"broker": broker, "message": found.missing.get(broker)}
            for broker in found.replicas
        ],
    }


async def elect(
    cluster: Cluster, topic: str, index: int, leader: int | None, unclean: bool | None
) -> dict[str, Any]:
    """Elect a leader; return the partition once the winner leads it."""
    await cluster.elect(topic, index, leader, unclean=bool(unclean))
    return await partition(cluster, topic, index)


async def compact(cluster: Cluster, topic: str) -> dict[str, Any]:
    """Compact a topic on all replicas that run."""
    await cluster.compact(topic)
    return {}


async def apply_retention(cluster: Cluster, topic: str | None) -> dict[str, Any]:
    """Apply retention to a topic, or to all, on all replicas that run."""
    await cluster.apply_retention(topic)
    return {}


async def network(cluster: Cluster) -> dict[str, Any]:
    """The cuts and delays in force."""
    links = cluster.network
    one_way = {"one_way": True}
    return {
        "cuts": [
            *({"a": a, "b": b} for a, b in links.cuts()),
            *({"a": a, "b": b, **one_way} for a, b in links.cuts(one_way=True)),
        ],
        "delays": [
            *({"a": a, "b": b, "milliseconds": ms} for a, b, ms in links.delays()),
            *(
                {"a": a, "b": b, "milliseconds": ms, **one_way}
                for a, b, ms in links.delays(one_way=True)
            ),
        ],
    }


async def cut(cluster: Cluster, a: Ids, b: Ids, one_way: bool | None) -> dict[str, Any]:
    """Cut the links between these nodes; clients still reach all of them. `one_way`: from `a` to `b` only."""
    with _unknown_node():
        await cluster.network.cut(a, b, one_way=bool(one_way))
    return {}


async def delay(
    cluster: Cluster, a: Ids, b: Ids, milliseconds: float, one_way: bool | None
) -> dict[str, Any]:
    """Delay each request and each answer between these nodes. `one_way`: of what `a` asks of `b`."""
    with _unknown_node():
        await cluster.network.delay(a, b, milliseconds, one_way=bool(one_way))
    return {}


async def heal(cluster: Cluster, a: Ids | None, b: Ids | None) -> dict[str, Any]:
    """Remove cuts and delays: all, all of `a` or of `b`, or those between `a` and `b`; return them."""
    before = await network(cluster)
    with _unknown_node():
        await cluster.network.heal(a, b)
    after = await network(cluster)
    return {kind: [each for each in before[kind] if each not in after[kind]] for kind in before}


async def failures(cluster: Cluster) -> dict[str, Any]:
    """Tracebacks of kwire's internal errors."""
    return {"failures": await cluster.failures()}


async def report(cluster: Cluster) -> dict[str, Any]:
    """The model of the report's page: events as marks of a timeline, replicas, groups, requests."""
    from kwire.report import model

    return model.report([await model.describe(cluster)])


async def reset(cluster: Cluster, keep_clients: bool | None) -> dict[str, Any]:
    """Go back to a new cluster: all nodes up, no topics, no groups."""
    await cluster.reset(keep_clients=bool(keep_clients))
    return {}


class _unknown_node:
    """A context manager that answers 404 for a node id that the cluster does not have."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, errors.ClusterStateError):
            raise ControlError(404, str(error)) from None


async def _change(node: Broker | Controller, verb: str) -> dict[str, Any]:
    await {
        "kill": node.kill,
        "stop": node.stop,
        "start": node.start,
        "pause": node.pause,
        "resume": node.resume,
    }[verb]()
    return _state(node)


def _state(node: Broker | Controller) -> dict[str, Any]:
    return {
        "id": node.id,
        "address": node.address,
        "running": node.running,
        "paused": node.paused,
        "rack": node.rack,
    }
