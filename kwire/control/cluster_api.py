"""The HTTP control API of `kwire up`: what `kwire.aio.Cluster` can do with a running cluster, as JSON.

One object a request and an answer; `docs/control.md` lists the paths. Errors are `{"error": KAFKA'S NAME or null,
"message": …}`. Not here: faults, the clock, snapshots, events, metrics, the page; of the requests those that brokers
keep (`--recent-requests`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kwire import aio, errors
from kwire.control.http import HttpError, checked_body
from kwire.recent import as_objects

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.control.http import Handler
    from kwire.launch.supervisor import Supervisor

VERBS = ("kill", "stop", "start", "pause", "resume")
_STATUS: dict[type[Exception], int] = {
    errors.ConfigurationError: 400,
    errors.UnknownTopicOrPartitionError: 404,
    errors.ClusterStateError: 409,
    errors.RequestError: 409,
    errors.NotSupportedError: 409,
    errors.BrokerNotAvailableError: 503,
    errors.WaitTimeoutError: 504,
}


def control_of(
    supervisor: Supervisor, *, recent_requests: bool
) -> tuple[Handler, Callable[[Exception], HttpError]]:
    """Who answers requests about a supervisor's cluster."""
    return Control(aio.Cluster.of(supervisor, recent_requests=recent_requests)).handle, judged


def judged(error: Exception) -> HttpError:
    """An exception as an answer."""
    name = getattr(error, "kafka_error", None)
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return HttpError(status, str(error), name)
    if isinstance(error, errors.KwireError):
        return HttpError(500, str(error), name)
    return HttpError(500, f"internal error; please report it: {type(error).__name__}: {error}")


class Control:
    """The API of one cluster."""

    def __init__(self, cluster: aio.Cluster) -> None:
        self._cluster = cluster

    async def handle(self, method: str, path: list[str], body: dict[str, Any]) -> Any:
        """The answer to a request. HttpError, KwireError."""
        match method, path:
            case "GET", ["healthz"]:
                return {"status": "ok"}
            case "GET", ["v1", "cluster"]:
                return await self._describe()
            case "POST", ["v1", "brokers" | "controllers" as kind, number, verb] if verb in VERBS:
                return await self._turn(kind, number, verb, body)
            case "GET", ["v1", "topics"]:
                return {"topics": await self._cluster.topics()}
            case "GET", ["v1", "topics", topic, "partitions", number]:
                return await self._partition(topic, _number(number))
            case "POST", ["v1", "elections"]:
                return await self._elect(body)
            case "POST" | "DELETE", ["v1", "network", "cuts" | "delays" as what]:
                return await self._network(method, what, body)
            case "POST", ["v1", "reset"]:
                checked_body(body)
                await self._cluster.reset()
                return {}
            case "GET", ["v1", "requests"]:
                return as_objects(await self._cluster.inside.requests.by_broker())
            case "DELETE", ["v1", "requests"]:
                await self._cluster.inside.requests.forget()
                return {}
        raise HttpError(
            404, f"there is no {method} /{'/'.join(path)}: docs/control.md lists what there is"
        )

    async def _describe(self) -> dict[str, Any]:
        cluster = self._cluster
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

    async def _turn(self, kind: str, number: str, verb: str, body: dict[str, Any]) -> Any:
        checked_body(body)
        cluster, node_id = self._cluster, _number(number)
        try:
            node = cluster.broker(node_id) if kind == "brokers" else cluster.controller(node_id)
        except errors.ClusterStateError as error:
            raise HttpError(404, str(error)) from None
        await getattr(node, verb)()
        return _state(node)

    async def _partition(self, topic: str, index: int) -> dict[str, Any]:
        found = await self._cluster.partition(topic, index)
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

    async def _elect(self, body: dict[str, Any]) -> Any:
        topic, index, leader, unclean = checked_body(
            body, "topic", "partition", optional=("leader", "unclean")
        )
        if not isinstance(unclean, bool | None):
            raise HttpError(400, f"unclean: expected true or false, not {unclean!r}")
        await self._cluster.elect(topic, index, leader, unclean=bool(unclean))
        return await self._partition(topic, index)

    async def _network(self, method: str, what: str, body: dict[str, Any]) -> Any:
        network = self._cluster.network
        if method == "DELETE":
            a, b = checked_body(body, optional=("a", "b"))
            await network.heal(a, b)
        elif what == "cuts":
            await network.cut(*checked_body(body, "a", "b"))
        else:
            await network.delay(*checked_body(body, "a", "b", "milliseconds"))
        return {}


def _state(node: aio.Broker | aio.Controller) -> dict[str, Any]:
    return {
        "id": node.id,
        "address": node.address,
        "running": node.running,
        "paused": node.paused,
    }


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise HttpError(400, f"expected a number, not {text[:20]!r}")
    return int(text)
