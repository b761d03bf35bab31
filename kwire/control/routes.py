"""The table of the control API: every request, and the functions that answer it.

A new verb is a row here and a function in `cluster_api.py`, `node_api.py` or both; the recipe is in CONTRIBUTING.md.
HTTP (`http.py`), the stdin of a node process (`lines.py`) and a supervisor in the same process (`kwire.launch.handles`)
all come here. `docs/control.md` lists what users may call: tests/server/test_routes.py compares.
"""

from __future__ import annotations

from kwire.control import cluster_api, node_api
from kwire.control.errors import error_of
from kwire.control.route import Route, find_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from kwire.aio import Cluster
    from kwire.control.node_api import NodeControl

    Handler = Callable[[str, str, dict[str, Any]], Awaitable[Any]]
    """Method, path and body of a request; returns the JSON object of the answer. ControlError."""

_VERBS = "{verb:kill|stop|start|pause|resume}"
_PARTITION = "/v1/topics/{topic}/partitions/{n:int}"
_ELECTION = ("topic:text", "partition:int", "leader:int?", "unclean:bool?")
_DELAY = ("a:ids", "b:ids", "milliseconds:number")
_C, _N = cluster_api, node_api

ROUTES = (
    Route("GET", "/healthz", cluster=_C.health, nodes=_N.health),
    Route("GET", "/v1/cluster", cluster=_C.describe, nodes=_N.describe),
    Route("POST", f"/v1/brokers/{{id:int}}/{_VERBS}", cluster=_C.change_broker),
    Route("POST", f"/v1/controllers/{{id:int}}/{_VERBS}", cluster=_C.change_controller),
    Route("GET", "/v1/topics", cluster=_C.topics, controller=_N.topics),
    Route("GET", _PARTITION, cluster=_C.partition, controller=_N.partition),
    Route("GET", f"{_PARTITION}/replica", broker=_N.replica),
    Route("POST", "/v1/elections", *_ELECTION, cluster=_C.elect, controller=_N.elect),
    Route("PUT", "/v1/network", "rules:list?", "commands:list?", nodes=_N.set_network),
    Route("POST", "/v1/network/cuts", "a:ids", "b:ids", cluster=_C.cut, nodes=_N.cut),
    Route("POST", "/v1/network/delays", *_DELAY, cluster=_C.delay, nodes=_N.delay),
    Route("DELETE", "/v1/network/cuts", "a:ids?", "b:ids?", cluster=_C.heal, nodes=_N.heal),
    Route("DELETE", "/v1/network/delays", "a:ids?", "b:ids?", cluster=_C.heal, nodes=_N.heal),
    Route("POST", "/v1/reset", cluster=_C.reset),
    Route("GET", "/v1/requests", cluster=_C.requests, nodes=_N.requests),
    Route("DELETE", "/v1/requests", cluster=_C.forget_requests, nodes=_N.forget_requests),
    Route("GET", "/v1/status", nodes=_N.status),
    Route("GET", "/v1/failures", nodes=_N.failures),
    Route("POST", "/v1/failures", "text:text", broker=_N.fail),
    Route("GET", "/v1/brokers", controller=_N.live_brokers),
    Route("GET", "/v1/brokers/configured", controller=_N.configured_brokers),
    Route("POST", "/v1/brokers/fence", "brokers:ids", controller=_N.fence_brokers),
)
OF_CLUSTER = tuple(route for route in ROUTES if route.cluster)
OF_NODES = tuple(route for route in ROUTES if route.nodes or route.broker or route.controller)


async def ask_cluster(cluster: Cluster, method: str, path: str, body: dict[str, Any]) -> Any:
    """The answer to a request about a cluster. ControlError."""
    try:
        route, items = find_route(OF_CLUSTER, method, path)
        assert route.cluster is not None
        return await route.cluster(cluster, *route.values(items, body))
    except Exception as error:
        raise error_of(error, f"{method} {path}") from None


def ask_nodes(control: NodeControl, method: str, path: str, body: dict[str, Any]) -> Any:
    """The answer to a request about the nodes in this process. ControlError."""
    try:
        route, items = find_route(OF_NODES, method, path)
        values = route.values(items, body)
        if route.nodes is not None:
            return route.nodes(control, *values)
        of_core = route.controller or route.broker
        assert of_core is not None
        return control.perform(route.broker is None, lambda core: of_core(core, *values))
    except Exception as error:
        raise error_of(error, f"{method} {path}") from None


def cluster_handler(cluster: Cluster) -> Handler:
    """What serves the API of a cluster."""

    async def handle(method: str, path: str, body: dict[str, Any]) -> Any:
        return await ask_cluster(cluster, method, path, body)

    return handle


def node_handler(control: NodeControl) -> Handler:
    """What serves the API of the nodes in this process."""

    async def handle(method: str, path: str, body: dict[str, Any]) -> Any:
        return ask_nodes(control, method, path, body)

    return handle
