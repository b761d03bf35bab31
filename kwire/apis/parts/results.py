"""The results of what is refused of a request, by the table of `shapes.py`.

Access rules (`apis/access`) refuse topics, faults (`kwire/faults`) any part of a request: a partition of a Produce, a
group of an OffsetFetch. The part is taken out of the request, the handler answers the rest, and the result of the part,
with its error, is merged into the response. Results are those of getErrorResponse of Kafka's requests: identity and
error are set, offsets are -1.
"""

from __future__ import annotations

from kwire.apis.parts.shapes import (
    GROUP,
    KEY,
    NAMES,
    PARTITION,
    RESOURCE,
    TOPIC,
    TRANSACTIONAL_ID,
    Part,
    Shape,
    shape_of,
)
from kwire.protocol.api import ApiKey, response_class
from kwire.replication.core.metadata import GROUP_RESOURCE, TOPIC_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from kwire.protocol.language.schema import Message

    NameOf = Callable[[bytes], str | None]
    """The name of a topic id; None: it is not known."""

_ERROR_FIELDS = ("error_code", "partition_error_code")


# --- what a request names


def parts_of(
    api_key: int, version: int, request: Any, name_of: NameOf, asked: Any = None
) -> Iterator[Part]:
    """Everything that a request names; what its own fields name, once, if its lists name nothing.

    `asked`: what stands in place of the outermost list."""
    whole = _own_part(api_key, version, request)
    shape = shape_of(api_key, version)
    if shape is None:
        yield whole
        return
    names = shape.asked.split("/")
    is_empty = True
    for part in _parts(request, shape.kinds, names, whole, name_of, asked):
        is_empty = False
        yield part
    if is_empty:
        yield whole


def names_all(api_key: int, version: int, request: Any) -> bool:
    """Whether the request is about all topics, or the like, that there are: its list is null."""
    shape = shape_of(api_key, version)
    if shape is None:
        return False
    items = getattr(request, shape.asked.partition("/")[0])
    is_old_metadata = api_key == ApiKey.METADATA and version == 0
    return items is None or (is_old_metadata and not items)


def _own_part(api_key: int, version: int, request: Any) -> Part:
    group = getattr(request, "group_id", None)
    transactional_id = getattr(request, "transactional_id", None)
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN and version < 4:
        transactional_id = request.v3_and_below_transactional_id
    elif api_key == ApiKey.FIND_COORDINATOR and version < 4:
        return _with(Part(), KEY, request.key, request)
    return Part(group=group, transactional_id=transactional_id)


def _parts(
    container: Any,
    kinds: str,
    names: list[str],
    outer: Part,
    name_of: NameOf,
    given: Any = None,
) -> Iterator[Part]:
    items = given if given is not None else getattr(container, names[0])
    for item in items or ():
        part = _with(outer, kinds[0], _named(kinds[0], item, name_of), container, item)
        if len(kinds) == 1:
            yield part
        elif names[1]:
            yield from _parts(item, kinds[1:], names[1:], part, name_of)
        else:  # topic and partition stand beside each other
            yield _with(part, kinds[1], _named(kinds[1], item, name_of), item)


def _named(kind: str, item: Any, name_of: NameOf) -> Any:
    """The name, number or id of an element of a list."""
    if isinstance(item, str | int):
        return item
    for field in NAMES[kind]:
        value = getattr(item, field, None)
        if value is not None and value != "":
            return value
    topic_id = getattr(item, "topic_id", None)
    return None if topic_id is None else name_of(topic_id)


def _with(part: Part, kind: str, value: Any, container: Any, item: Any = None) -> Part:
    if kind == TOPIC:
        return part._replace(topic=value)
    if kind == PARTITION:
        return part._replace(partition=value)
    if kind == GROUP:
        return part._replace(group=value)
    if kind == TRANSACTIONAL_ID:
        return part._replace(transactional_id=value)
    if kind == KEY:
        is_transaction = container.key_type == 1
        return (
            part._replace(transactional_id=value) if is_transaction else part._replace(group=value)
        )
    if kind == RESOURCE and item.resource_type == TOPIC_RESOURCE:
        return part._replace(topic=value)
    if kind == RESOURCE and item.resource_type == GROUP_RESOURCE:
        return part._replace(group=value)
    return part


# --- results of what is refused


def refused_result(
    shape: Shape, item: Any, code: int, message: str | None = None, level: int = 0
) -> Any:
    """The result of an element of a request's outermost list (`level` 0), with all that is in it: refused."""
    found = _identified(shape, item, level)
    if level == shape.depth - 1:
        return _failed(found, shape, code, message)
    inner, answers = shape.asked.split("/")[level + 1], shape.answered.split("/")[level + 1]
    setattr(
        found,
        answers,
        [
            refused_result(shape, each, code, message, level + 1)
            for each in getattr(item, inner) or ()
        ],
    )
    return found


def _identified(shape: Shape, item: Any, level: int) -> Any:
    """A result of an element of a request or response, with nothing but what says which one it is."""
    kind = _result_class(shape, level)
    found: Any = kind()
    names = NAMES[shape.kinds[level]]
    value = item if isinstance(item, str | int) else None
    for field in names:
        value = getattr(item, field, None) if value is None else value
    for field in names:
        if field in kind.fields:
            setattr(found, field, value)
    for field in ("topic_id", "resource_type"):
        if field in kind.fields and not isinstance(item, str | int) and field in type(item).fields:
            setattr(found, field, getattr(item, field))
    return found


def _failed(found: Any, shape: Shape, code: int, message: str | None) -> Any:
    """Set the error of a result."""
    fields = type(found).fields
    for field in _ERROR_FIELDS:
        if field in fields:
            setattr(found, field, code)
    if message is not None and "error_message" in fields:
        found.error_message = message
    for field, value in shape.fill.items():
        if field in fields:
            setattr(found, field, [] if value == [] else value)
    return found


def _result_class(shape: Shape, level: int) -> Any:
    kind: Any = response_class(shape.key)
    for name in shape.answered.split("/")[: level + 1]:
        kind = kind.fields[name].kind.element
    return kind


# --- parts of a request


def take_out(
    shape: Shape,
    request: Any,
    is_refused: Callable[[Part], bool],
    name_of: NameOf,
    code: int,
    message: str | None = None,
) -> list[Any]:
    """Take what is refused out of a request; returns its results, for `merge`."""
    outer = _own_part(shape.key, shape.versions[0], request)
    return _take_out(shape, request, outer, is_refused, name_of, (code, message), 0)


def _take_out(
    shape: Shape,
    container: Any,
    outer: Part,
    is_refused: Callable[[Part], bool],
    name_of: NameOf,
    error: tuple[int, str | None],
    level: int,
) -> list[Any]:
    asked = shape.asked.split("/")[level]
    kept, results = [], []
    for item in getattr(container, asked) or ():
        kind = shape.kinds[level]
        part = _with(outer, kind, _named(kind, item, name_of), container, item)
        if level == shape.depth - 1:
            if is_refused(part):
                results.append(refused_result(shape, item, *error, level))
            else:
                kept.append(item)
            continue
        inner = _take_out(shape, item, part, is_refused, name_of, error, level + 1)
        if inner:
            result = _identified(shape, item, level)
            setattr(result, shape.answered.split("/")[level + 1], inner)
            results.append(result)
        if not inner or getattr(item, shape.asked.split("/")[level + 1]):
            kept.append(item)
    if results:
        setattr(container, asked, kept)
    return results


def is_empty(shape: Shape, request: Any) -> bool:
    """Whether nothing is left of a request."""
    return not getattr(request, shape.asked.partition("/")[0])


def merge(shape: Shape, response: Any, results: list[Any], level: int = 0) -> Any:
    """Put results into a response: beside others of the same topic, else as the last."""
    names = shape.answered.split("/")
    there = getattr(response, names[level])
    if level < shape.depth - 1:
        known = {_identity(shape, each, level): each for each in there}
        for result in results:
            same = known.get(_identity(shape, result, level))
            if same is None:
                there.append(result)
            else:
                merge(shape, same, getattr(result, names[level + 1]), level + 1)
    else:
        there.extend(results)
    return response


def _identity(shape: Shape, item: Any, level: int) -> object:
    for field in NAMES[shape.kinds[level]]:
        value = getattr(item, field, None)
        if value is not None and value != "":
            return value
    return getattr(item, "topic_id", None)


def fail_results(
    shape: Shape,
    response: Message,
    request: Any,
    is_refused: Callable[[Part], bool],
    name_of: NameOf,
    code: int,
    message: str | None = None,
) -> Any:
    """Change results of a response into refused ones; they may be shared with other answers, so copies are."""
    outer = _own_part(shape.key, shape.versions[0], request)
    _fail_results(shape, response, request, outer, is_refused, name_of, (code, message), 0)
    return response


def _copied(item: Any) -> Any:
    found = type(item)()
    for field in type(item).fields:
        setattr(found, field, getattr(item, field))
    return found


def _fail_results(
    shape: Shape,
    container: Any,
    request: Any,
    outer: Part,
    is_refused: Callable[[Part], bool],
    name_of: NameOf,
    error: tuple[int, str | None],
    level: int,
) -> None:
    name = shape.answered.split("/")[level]
    found = []
    for item in getattr(container, name):
        kind = shape.kinds[level]
        part = _with(outer, kind, _named(kind, item, name_of), request, item)
        if level < shape.depth - 1:
            _fail_results(shape, item, request, part, is_refused, name_of, error, level + 1)
        elif is_refused(part):
            item = _failed(_copied(item), shape, *error)
        found.append(item)
    setattr(container, name, found)
