"""The OpenAPI 3.1 document of a table of routes.

A path, its parameters and bodies come from its row, the summary from the docstring of its handler, the answer from
`answers.py`. Operations are named by method and path: `GET /v1/topics/{topic}/partitions/{n}` is getTopicPartition.
"""

from __future__ import annotations

import inspect
from http import HTTPStatus

from kwire import __version__
from kwire.control.live.answers import EVENT_STREAM, HTML, LAST_EVENT_ID
from kwire.control.openapi.answers import ANSWERS, TEXTS
from kwire.control.openapi.inputs import field_schema, path_schema, query_parameter
from kwire.control.openapi.schemas import SCHEMAS
from kwire.control.openapi.shapes import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from kwire.control.route import Route

    Json = dict[str, Any]

_JSON = "application/json"
_ERRORS = {
    400: "The request makes no sense.",
    401: "It does not show the token.",
    403: "A web page of another site asks, or may.",
    404: "There is no such thing.",
    409: "Refused.",
    413: "The body is too large.",
    500: "An error of kwire's own.",
    503: "The node that would have to answer does not.",
    504: "Timed out.",
}
_ALWAYS = (400, 401, 403, 500)
_OF_NODES = (409, 503, 504)
"""Of requests that nodes answer."""
_WITHOUT_NODES = ("/", "/v1", "/v1/openapi.json", "/healthz")
_THINGS = {"topic", "name", "a", "b", "partition", "id"}
"""Fields that name what there may be none of."""


def document(routes: Sequence[Route], handlers: Sequence[Callable[..., Any]]) -> Json:
    """The document of these routes. `handlers`: the function of each that answers."""
    paths: Json = {}
    used: set[str] = set()
    for route, handler in zip(routes, handlers, strict=True):
        operation = _operation(route, handler)
        paths.setdefault(_path(route), {})[route.method.lower()] = operation
        used |= set(_references(operation))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kwire control API",
            "version": __version__,
            "description": "Everything that kwire's Cluster does in Python. Fields of a request come in the body,"
            " a JSON object, or as text in the query.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}, {"password": []}],
        "paths": paths,
        "components": {
            "schemas": _used_schemas(used | {"Error"}),
            "responses": {_title(status): _error(status) for status in _ERRORS},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _operation(route: Route, handler: Callable[..., Any]) -> Json:
    found: Json = {"operationId": operation_name(route), "summary": _summary(handler)}
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": path_schema(kind)}
        for name, kind in route.parameters()
    ]
    if route.method in ("GET", "DELETE"):
        parameters += [query_parameter(*field) for field in route.fields]
    elif route.fields:
        found["requestBody"] = _body(route)
    if parameters:
        found["parameters"] = parameters
    answer = _answer(handler)
    if route.page is not None:
        answer["content"][HTML] = {"schema": {"type": "string"}}
    if route.stream is not None:
        answer["content"][EVENT_STREAM] = {"schema": {"type": "string"}}
    if route.stream is not None and route.fields:
        parameters.append({"name": LAST_EVENT_ID, "in": "header", "schema": {"type": "string"}})
        found["parameters"] = parameters
    found["responses"] = {"200": answer} | {
        str(status): {"$ref": f"#/components/responses/{_title(status)}"}
        for status in sorted(_statuses(route))
    }
    return found


def _body(route: Route) -> Json:
    schema: Json = {
        "type": "object",
        "properties": {name: field_schema(name, kind) for name, kind, _ in route.fields},
        "additionalProperties": False,
    }
    required = [name for name, _, is_optional in route.fields if not is_optional]
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {_JSON: {"schema": schema}}}


def _answer(handler: Callable[..., Any]) -> Json:
    media = TEXTS.get(handler)
    if media is not None:
        return {"description": "Done.", "content": {media: {"schema": {"type": "string"}}}}
    return {"description": "Done.", "content": {_JSON: {"schema": ref(ANSWERS[handler])}}}


def _statuses(route: Route) -> set[int]:
    """The statuses of errors."""
    found = set(_ALWAYS)
    names = {name for name, kind in route.parameters() if "|" not in kind}
    if names or _THINGS & {name for name, _, _ in route.fields}:
        found.add(404)
    if route.fields and route.method not in ("GET", "DELETE"):
        found.add(413)
    if route.path not in _WITHOUT_NODES:
        found.update(_OF_NODES)
    return found


def _error(status: int) -> Json:
    found: Json = {
        "description": _ERRORS[status],
        "content": {_JSON: {"schema": ref("Error")}},
    }
    if status == HTTPStatus.UNAUTHORIZED:
        found["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return found


def _title(status: int) -> str:
    """The name of a response: NotFound."""
    return HTTPStatus(status).phrase.title().replace(" ", "")


def operation_name(route: Route) -> str:
    """The name of an operation: a method, and the items of the path; singular before a parameter."""
    words: list[str] = []
    for item in route.path.removeprefix("/v1").replace(".", "/").split("/"):
        if not item.startswith("{"):
            words.append(item)
        elif "|" in item:
            words.append(item[1:].partition(":")[0])
        else:
            words[-1] = words[-1].removesuffix("s")
    name = "".join(word.capitalize() for word in words)
    return route.method.lower() + (name or ("Root" if route.path == "/" else "Index"))


def _path(route: Route) -> str:
    """The path with the names of its parameters, without their kinds."""
    items = route.path.split("/")
    return "/".join(item.partition(":")[0] + "}" * (":" in item) for item in items)


def _summary(handler: Callable[..., Any]) -> str:
    """The first sentence of its docstring."""
    text = " ".join((inspect.getdoc(handler) or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".").replace("`", "")


def _references(value: Any) -> Iterator[str]:
    """The names of the schemas that a part of a document refers to."""
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str) and target.startswith("#/components/schemas/"):
            yield target.rpartition("/")[2]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _used_schemas(names: set[str]) -> Json:
    """These schemas and those that they refer to, in the order of their table."""
    found: set[str] = set()
    while names:
        found |= names
        names = {name for each in names for name in _references(SCHEMAS[each])} - found
    return {name: shape for name, shape in SCHEMAS.items() if name in found}
