"""Checks of answers against an OpenAPI document, for tests: no key that it does not name, none missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator


def closed(shape: Any) -> Any:
    """A schema whose objects have no other keys than those that are named."""
    if isinstance(shape, list):
        return [closed(each) for each in shape]
    if not isinstance(shape, dict):
        return shape
    found = {name: closed(each) for name, each in shape.items()}
    if "properties" in shape and "additionalProperties" not in shape:
        found["additionalProperties"] = False
    return found


class Checker:
    """Checks answers, and keeps which parts of the schemas they have shown."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.schemas = closed(document["components"]["schemas"])
        self.operations: set[str] = set()
        self.shown: set[str] = set()
        self._components = {"components": {"schemas": self.schemas}}

    def operation(self, method: str, path: str) -> dict[str, Any]:
        """The operation of a path of the table, "/v1/topics/{topic}/partitions/{n:int}"."""
        items = [each.partition(":")[0] + "}" * (":" in each) for each in path.split("/")]
        found: dict[str, Any] = self.document["paths"]["/".join(items)][method.lower()]
        return found

    def check_answer(self, method: str, path: str, status: int, answer: Any) -> None:
        operation = self.operation(method, path)
        self.operations.add(operation["operationId"])
        response = operation["responses"][str(status)]
        if "$ref" in response:
            response = self.document["components"]["responses"][response["$ref"].split("/")[-1]]
        if isinstance(answer, str):
            (media_type,) = response["content"]
            assert media_type == "text/plain"
            return
        self.check(answer, response["content"]["application/json"]["schema"])

    def check_body(self, method: str, path: str, body: Any) -> None:
        content = self.operation(method, path)["requestBody"]["content"]
        self.check(body, content["application/json"]["schema"])

    def check(self, value: Any, schema: dict[str, Any]) -> None:
        problems = list(self._validator(closed(schema)).iter_errors(value))
        assert not problems, "\n".join(f"{each.json_path}: {each.message}" for each in problems)
        self.shown |= set(self._shown(value, closed(schema)))

    def _validator(self, schema: dict[str, Any]) -> Draft202012Validator:
        return Draft202012Validator({**schema, **self._components})

    def _shown(self, value: Any, schema: dict[str, Any], name: str = "") -> Iterator[str]:
        """The properties that a value has, "Group.members", where they are neither null nor empty."""
        if "$ref" in schema:
            name = schema["$ref"].split("/")[-1]
            yield name
            schema = self.schemas[name]
        for each in schema.get("oneOf", ()):
            if self._validator(each).is_valid(value):
                yield from self._shown(value, each, name)
        if isinstance(value, list):
            for each in value:
                yield from self._shown(each, schema.get("items", {}), f"{name}[]")
        if isinstance(value, dict):
            for key, each in value.items():
                part = schema.get("properties", {}).get(key)
                if part is not None and each not in (None, [], {}):
                    yield f"{name}.{key}"
                    yield from self._shown(each, part, f"{name}.{key}")

    def parts(self) -> set[str]:
        """The properties of all schemas, as `shown` has them."""
        return {part for name, shape in self.schemas.items() for part in self._parts(shape, name)}

    def _parts(self, shape: dict[str, Any], name: str) -> Iterator[str]:
        if not name.endswith("[]"):
            yield name
        for each in shape.get("oneOf", ()):
            if "$ref" not in each and each.get("type") != "null":
                yield from self._parts(each, name)
        if "items" in shape and "$ref" not in shape["items"]:
            yield from self._parts(shape["items"], f"{name}[]")
        for key, each in shape.get("properties", {}).items():
            if "$ref" in each:
                yield f"{name}.{key}"
            else:
                yield from self._parts(each, f"{name}.{key}")
