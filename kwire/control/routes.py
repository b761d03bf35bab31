"""The routes of the control API: every request, and its handlers.

A new verb is a row here and a function in `cluster_api.py`, `node_api.py` or both; the recipe is in
CONTRIBUTING.md. HTTP (`http.py`), the stdin of a node process (`lines.py`) and a supervisor in the
same process (`kwire.launch.handles`) all use it. `docs/control.md` lists what users may call:
tests/server/test_routes.py compares.
"""

from __future__ import annotations

from contextlib import suppress

from kwire.control import clients_api as of_clients
from kwire.control import cluster_api as of_cluster
from kwire.control import contents_api as of_contents
from kwire.control import faults_api as of_faults
from kwire.control import node_api as of_nodes
from kwire.control import node_clients as of_nodes_clients
from kwire.control import node_files as of_nodes_files
from kwire.control import snapshots_api as of_snapshots
from kwire.control.clock import api as of_clock
from kwire.control.disks import api as of_disks
from kwire.control.errors import ControlError, error_of
from kwire.control.live import events as of_events
from kwire.control.live import node_view as of_node_views
from kwire.control.live import page as of_page
from kwire.control.live.answers import EVENT_STREAM, HTML, NO_HEADERS, Coming, accepts
from kwire.control.metrics import api as of_metrics
from kwire.control.metrics import counts as of_metrics_counts
from kwire.control.route import Route, find_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from kwire.aio import Cluster
    from kwire.control.live.answers import Headers
    from kwire.control.node_api import NodeControl

    Handler = Callable[[str, str, dict[str, Any], Headers], Awaitable[Any]]
    """Method, path with query, body and headers of a request; returns the JSON object of the answer, or one of
    `live/answers.py`.

    ControlError."""

WHOLE_API = "KWIRE_BROKERS=1 (or 3) gives a container the API of a cluster"
_VERBS = "{verb:kill|stop|start|pause|resume}"
_PARTITION = "/v1/topics/{topic}/partitions/{n:int}"
_DISK = "/v1/nodes/{id:int}/disk"
_COMPACTION = "/v1/topics/{topic}/compact"
_ELECTION = ("topic:text", "partition:int", "leader:int?", "unclean:bool?")
_EVENTS = ("since:int?", "name:event?", "topic:text?", "broker:int?")
_TOPIC = (
    *("name:text", "partitions:int?", "replication_factor:int?"),
    *("config:object?", "assignment:list?"),
)
_RECORDS = (
    *("partition:int?", "start:int?", "end:int?"),
    *("limit:int?", "max_bytes:int?", "encoding:text?"),
)
_RECORD = (
    *("value:data?", "key:data?", "partition:int?"),
    *("headers:list?", "timestamp:int?", "encoding:text?"),
)
_REQUESTS = ("api:api?", "client_id:text?", "broker:int?")
_CUT = ("a:ids", "b:ids", "one_way:bool?")
_DELAY = ("a:ids", "b:ids", "milliseconds:number", "one_way:bool?")
_ANY_PAIR = ("a:ids?", "b:ids?")


async def list_requests_of_cluster(_: Cluster) -> dict[str, Any]:
    """Every request of a cluster's control API, with the fields of its body."""
    return _listed(OF_CLUSTER)


def list_requests_of_nodes(_: NodeControl) -> dict[str, Any]:
    """Every request of the control API of these nodes, with the fields of its body."""
    return _listed(OF_NODES)


async def document_of_cluster(_: Cluster) -> dict[str, Any]:
    """The OpenAPI document of a cluster's control API."""
    from kwire.control.openapi.document import document

    return document(OF_CLUSTER, [_handler(route.cluster) for route in OF_CLUSTER])


def document_of_nodes(_: NodeControl) -> dict[str, Any]:
    """The OpenAPI document of the control API of these nodes."""
    from kwire.control.openapi.document import document

    handlers = [_handler(route.nodes or route.controller or route.broker) for route in OF_NODES]
    return document(OF_NODES, handlers)


def _handler(found: Callable[..., Any] | None) -> Callable[..., Any]:
    assert found is not None
    return found


def _listed(routes: tuple[Route, ...]) -> dict[str, Any]:
    from kwire import __version__

    return {
        "kwire": __version__,
        "requests": {
            f"{route.method} {route.path}": {
                name: f"{kind}{' (optional)' if is_optional else ''}"
                for name, kind, is_optional in route.fields
            }
            for route in routes
        },
    }


ROUTES = (
    Route(
        "GET",
        "/",
        cluster=list_requests_of_cluster,
        page=of_page.page,
        nodes=list_requests_of_nodes,
    ),
    Route("GET", "/v1", cluster=list_requests_of_cluster, nodes=list_requests_of_nodes),
    Route("GET", "/v1/openapi.json", cluster=document_of_cluster, nodes=document_of_nodes),
    Route("GET", "/healthz", cluster=of_cluster.health, nodes=of_nodes.health),
    Route("GET", "/metrics", cluster=of_metrics.of_cluster, nodes=of_metrics.of_nodes),
    Route("GET", "/v1/counts", "start:int?", nodes=of_metrics_counts.page),
    Route("GET", "/v1/cluster", cluster=of_cluster.describe, nodes=of_nodes.describe),
    Route("POST", f"/v1/brokers/{{id:int}}/{_VERBS}", cluster=of_cluster.change_broker),
    Route("POST", f"/v1/controllers/{{id:int}}/{_VERBS}", cluster=of_cluster.change_controller),
    Route("GET", "/v1/nodes/{id:int}/status", cluster=of_cluster.status),
    Route(
        "GET",
        "/v1/topics",
        "internal:bool?",
        cluster=of_contents.topics,
        controller=of_nodes.topics,
    ),
    Route("POST", "/v1/topics", *_TOPIC, cluster=of_contents.create_topic),
    Route("GET", "/v1/topics/{topic}", cluster=of_contents.topic),
    Route("DELETE", "/v1/topics/{topic}", cluster=of_contents.delete_topic),
    Route("GET", "/v1/topics/{topic}/partitions", cluster=of_contents.partitions),
    Route("GET", _PARTITION, cluster=of_cluster.partition, controller=of_nodes.partition),
    Route("GET", f"{_PARTITION}/replica", broker=of_nodes.replica),
    Route("GET", "/v1/topics/{topic}/records", *_RECORDS, cluster=of_contents.records),
    Route("POST", "/v1/topics/{topic}/records", *_RECORD, cluster=of_contents.produce),
    Route("POST", _COMPACTION, cluster=of_cluster.compact, broker=of_nodes.compact),
    Route("GET", _COMPACTION, broker=of_nodes.compaction),
    Route(
        "POST",
        "/v1/retention",
        "topic:text?",
        cluster=of_cluster.apply_retention,
        broker=of_nodes.apply_retention,
    ),
    Route("POST", "/v1/elections", *_ELECTION, cluster=of_cluster.elect, controller=of_nodes.elect),
    Route("GET", "/v1/groups", cluster=of_contents.groups),
    Route("GET", "/v1/groups/{group}", cluster=of_contents.group),
    Route("GET", "/v1/transactions", cluster=of_contents.transactions),
    Route("GET", "/v1/transactions/{transaction}", cluster=of_contents.transaction),
    Route("POST", "/v1/transactions/{transaction}/fence", cluster=of_contents.fence),
    Route("GET", "/v1/network", cluster=of_cluster.network, nodes=of_nodes.network),
    Route("PUT", "/v1/network", "rules:list?", "commands:list?", nodes=of_nodes.set_network),
    Route("POST", "/v1/network/cuts", *_CUT, cluster=of_cluster.cut, nodes=of_nodes.cut),
    Route("POST", "/v1/network/delays", *_DELAY, cluster=of_cluster.delay, nodes=of_nodes.delay),
    Route("DELETE", "/v1/network/cuts", *_ANY_PAIR, cluster=of_cluster.heal, nodes=of_nodes.heal),
    Route("DELETE", "/v1/network/delays", *_ANY_PAIR, cluster=of_cluster.heal, nodes=of_nodes.heal),
    Route(
        "POST", "/v1/faults", *of_faults.FIELDS, cluster=of_faults.add, nodes=of_faults.add_at_nodes
    ),
    Route("GET", "/v1/faults", cluster=of_faults.listed, nodes=of_faults.listed_at_nodes),
    Route("PUT", "/v1/faults/{id}", *of_faults.FIELDS, nodes=of_faults.put_at_nodes),
    Route("GET", "/v1/faults/{id}", cluster=of_faults.one, nodes=of_faults.one_at_nodes),
    Route("DELETE", "/v1/faults/{id}", cluster=of_faults.remove, nodes=of_faults.remove_at_nodes),
    Route("DELETE", "/v1/faults", cluster=of_faults.clear, nodes=of_faults.clear_at_nodes),
    Route("POST", f"{_DISK}/{{act:fail|full|slow}}", *of_disks.FIELDS, cluster=of_disks.add),
    Route("DELETE", "/v1/disks/{id}", cluster=of_disks.remove),
    Route("DELETE", _DISK, cluster=of_disks.heal),
    Route("PUT", "/v1/disks", "faults:object", nodes=of_disks.set_at_nodes),
    Route("GET", "/v1/disks", cluster=of_disks.listed, nodes=of_disks.show_at_nodes),
    Route("DELETE", "/v1/disks", cluster=of_disks.heal_all),
    Route("POST", "/v1/snapshots", "name:text?", cluster=of_snapshots.save),
    Route("GET", "/v1/snapshots", cluster=of_snapshots.listed),
    Route("GET", "/v1/snapshots/{name}", cluster=of_snapshots.one),
    Route("POST", "/v1/snapshots/{name}/restore", cluster=of_snapshots.restore),
    Route("DELETE", "/v1/snapshots/{name}", cluster=of_snapshots.remove),
    Route("POST", "/v1/files/hold", nodes=of_nodes_files.hold),
    Route("POST", "/v1/files/release", "resume:bool", nodes=of_nodes_files.release),
    Route("GET", "/v1/clock", cluster=of_clock.show, nodes=of_clock.show_nodes),
    Route(
        "POST",
        "/v1/clock",
        *of_clock.FIELDS,
        cluster=of_clock.advance,
        nodes=of_clock.advance_nodes,
    ),
    Route("PUT", "/v1/clock", "verb:text", "milliseconds:int?", nodes=of_clock.change_nodes),
    Route("POST", "/v1/clock/freeze", cluster=of_clock.freeze),
    Route("POST", "/v1/clock/resume", cluster=of_clock.resume),
    Route("POST", "/v1/reset", "keep_clients:bool?", cluster=of_cluster.reset),
    Route("GET", "/v1/clients", cluster=of_contents.clients, nodes=of_nodes_clients.clients),
    Route(
        "GET",
        "/v1/requests",
        *_REQUESTS,
        cluster=of_contents.requests,
        nodes=of_nodes_clients.requests,
    ),
    Route("DELETE", "/v1/requests", cluster=of_contents.forget, nodes=of_nodes_clients.forget),
    Route("GET", "/v1/report", cluster=of_cluster.report),
    Route(
        "GET",
        "/v1/events",
        *_EVENTS,
        cluster=of_events.events,
        stream=of_events.stream,
        nodes=of_nodes.events,
    ),
    Route("GET", "/v1/live", cluster=of_page.live, stream=of_page.stream),
    Route(
        "GET",
        "/v1/changes",
        *("since:int?", "events:int?", "more:bool?"),
        nodes=of_node_views.changes,
    ),
    Route("GET", "/v1/leftovers", nodes=of_clients.leftovers),
    Route("POST", "/v1/leftovers", broker=of_clients.set_clients_aside),
    Route("GET", "/v1/status", nodes=of_nodes.status),
    Route("GET", "/v1/failures", cluster=of_cluster.failures, nodes=of_nodes.failures),
    Route("POST", "/v1/failures", "text:text", broker=of_nodes.fail),
    Route("GET", "/v1/brokers", controller=of_nodes.live_brokers),
    Route("GET", "/v1/brokers/configured", controller=of_nodes.configured_brokers),
    Route("POST", "/v1/brokers/fence", "brokers:ids", controller=of_nodes.fence_brokers),
)
OF_CLUSTER = tuple(route for route in ROUTES if route.cluster)
OF_NODES = tuple(route for route in ROUTES if route.nodes or route.broker or route.controller)


async def ask_cluster(
    cluster: Cluster, method: str, path: str, body: dict[str, Any], headers: Headers = NO_HEADERS
) -> Any:
    """Answer a request about a cluster. ControlError."""
    try:
        path, _, query = path.partition("?")
        route, items = find_route(OF_CLUSTER, method, path)
        values = route.values(items, body, query)
        if route.stream is not None and accepts(headers, EVENT_STREAM):
            return await route.stream(cluster, headers, *values)
        if route.page is not None and accepts(headers, HTML):
            return route.page()
        assert route.cluster is not None
        return await route.cluster(cluster, *values)
    except Exception as error:
        raise error_of(error, f"{method} {path}") from None


def ask_nodes(control: NodeControl, method: str, path: str, body: dict[str, Any]) -> Any:
    """Answer a request about the nodes in this process. ControlError."""
    try:
        path, _, query = path.partition("?")
        route, items = find_route(OF_NODES, method, path)
        values = route.values(items, body, query)
        if route.nodes is not None:
            return route.nodes(control, *values)
        of_core = route.controller or route.broker
        assert of_core is not None
        return control.perform(route.broker is None, lambda core: of_core(core, *values))
    except Exception as error:
        raise error_of(error, f"{method} {path}") from None


def cluster_handler(cluster: Cluster) -> Handler:
    """The handler of a cluster's control API."""

    async def handle(method: str, path: str, body: dict[str, Any], headers: Headers) -> Any:
        return await ask_cluster(cluster, method, path, body, headers)

    return handle


def node_handler(control: NodeControl) -> Handler:
    """The handler of the control API of the nodes in this process."""

    async def handle(method: str, path: str, body: dict[str, Any], _: Headers) -> Any:
        try:
            found = ask_nodes(control, method, path, body)
            return await found.make() if isinstance(found, Coming) else found
        except ControlError as error:
            raise _with_hint(error, method, path, control) from None

    return handle


def _with_hint(error: ControlError, method: str, path: str, control: NodeControl) -> ControlError:
    """The error of a container's API; of a request that only a cluster's API has, with a way to that."""
    if error.status in (404, 405) and error.kafka_error is None:
        with suppress(ControlError):
            find_route(OF_CLUSTER, method, path.partition("?")[0])
            request = f"{method} {path.partition('?')[0]}"
            text = f"there is no {request} at a single node's control API"
            return ControlError(404, f"{text}: {WHOLE_API}")
    if error.kafka_error == "NOT_CONTROLLER" and control.is_standalone:
        return ControlError(404, f"a single node has no controller beside it to ask: {WHOLE_API}")
    return error
