"""Definitions against the tables taken from Kafka's jars: nothing differs, in either direction.

A release knows fewer versions than a definition has, so ranges are compared over the versions that the release knows.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kwire.protocol import api
from kwire.protocol.catalog import all_messages, classes_by_name
from kwire.protocol.errors import ErrorCode
from kwire.protocol.json_form import json_name, uuid_text
from kwire.protocol.language.primitives import ArrayKind, Kind, covers, parse_versions
from kwire.protocol.language.schema import Field, Message, StructType

DATA = Path(__file__).parents[1] / "data"
RELEASES = ("3.9", "4.4")

UNSTABLE_IN_3_9 = {
    "ReadShareGroupStateSummaryResponse": "UnstableReadShareGroupStateSummaryResponse",
    "coordinator/group/ShareGroupMetadataValue": "coordinator/group/UnstableShareGroupMetadataValue",
}


@cache
def facts(release: str) -> dict[str, Any]:
    with gzip.open(DATA / f"kafka-{release}.json.gz") as file:
        table: dict[str, Any] = json.load(file)
        return table


def messages(release: str) -> dict[str, dict[str, Any]]:
    found = {}
    for one in facts(release)["apis"]:
        for side in ("request", "response"):
            if one.get(side):
                found[one["name"] + side.capitalize()] = {"versions": one["versions"], **one[side]}
    found.update(facts(release)["messages"])
    for group, table in facts(release)["coordinator"].items():
        for name, message in table["records"].items():
            found[f"coordinator/{group}/{name}"] = message
    return found


def definition(name: str, release: str) -> type[Message]:
    candidates = classes_by_name()[name]
    if release == "3.9" and name in UNSTABLE_IN_3_9:
        return candidates[1]
    return candidates[0]


def versions_of(text: str | None) -> set[int]:
    bounds = parse_versions(text)
    return set() if bounds is None else set(range(bounds[0], bounds[1] + 1))


def within(text: str | None, known: set[int]) -> set[int]:
    """The versions of a definition's range that the release knows; None is all of them."""
    return known if text is None else {one for one in known if covers(parse_versions(text), one)}


def wire_type(field: Field, version: int, flexible: bool) -> str:
    compact = "compact_" if flexible and field.compact else ""
    nullable = "nullable_" if covers(parse_versions(field.nullable), version) else ""
    kind = field.kind
    if isinstance(kind, ArrayKind):
        element = kind.element
        inner = "struct"
        if isinstance(element, Kind):
            inner = element.name if element.format else compact + element.name
        return f"{compact}{nullable}array<{inner}>"
    if not isinstance(kind, Kind):
        return f"{nullable}struct"
    return kind.name if kind.format else compact + nullable + kind.name


def default_in_table(field: Field) -> Any:
    default = field.default
    if isinstance(field.kind, StructType):
        return None if default is None else {}
    if isinstance(field.kind, Kind) and field.kind.name == "uuid":
        return uuid_text(default)
    return "" if default == b"" else default


def wires_in_table(fact: dict[str, Any]) -> dict[int, str]:
    wires = fact["wire"]
    if isinstance(wires, str):
        wires = {fact["versions"]: wires}
    return {version: wire for text, wire in wires.items() for version in versions_of(text)}


def compare(
    cls: StructType,
    rows: list[dict[str, Any]],
    known: set[int],
    flexible: set[int],
    path: str,
    release: str,
) -> list[str]:
    """The differences between a structure and the table's rows for it."""
    problems = []
    names = {row["name"] for row in rows}
    fields = [
        field
        for field in cls.fields.values()
        if within(field.versions, known)
        # A later release may add a tagged field without a new version; the table of 4.4 must have it.
        and not (release == "3.9" and field.tag is not None and field.name not in names)
    ]
    ordered = [f.former if f.former in names else f.name for f in fields]
    if ordered != [row["name"] for row in rows]:
        return [f"{path}: fields {ordered}, in Kafka {[row['name'] for row in rows]}"]
    for field, row in zip(fields, rows, strict=True):
        here = f"{path}.{field.name}"
        present = within(field.versions, known)
        wires = {version: wire_type(field, version, version in flexible) for version in present}
        expected = {
            "versions": versions_of(row["versions"]),
            "wire": wires_in_table(row),
            "default": row["default"],
            "tag": row.get("tag"),
            "tagged": versions_of(row.get("tagged")),
            "json": row["json"],
            "struct": row.get("struct"),
        }
        name = field.former if field.former in names else field.name
        found = {
            "versions": present,
            "wire": wires,
            "default": default_in_table(field),
            "tag": field.tag,
            "tagged": present if field.tag is not None else set(),
            "json": json_name(name or ""),
            "struct": field.struct.kafka_name if field.struct else None,
        }
        if "ignorable" in row:
            expected["ignorable"], found["ignorable"] = row["ignorable"], field.ignorable
        if field.former == name:
            expected.pop("struct"), found.pop("struct")  # 4.x renamed structures along with fields
        problems += [
            f"{here} {key}: {found[key]}, in Kafka {expected[key]}"
            for key in expected
            if found[key] != expected[key]
        ]
        if field.struct:
            problems += compare(field.struct, row["fields"], present, flexible, here, release)
    return problems


@pytest.mark.parametrize("release", RELEASES)
def test_no_definition_differs_from_kafkas(release: str) -> None:
    problems = []
    for name, table in messages(release).items():
        cls = definition(name, release)
        known = versions_of(table["versions"])
        if name.endswith("Key"):
            known = {0}  # record types in 3.9's table
            table = json.loads(json.dumps(table).replace(f'"{table["versions"]}"', '"0"'))
        if not known <= set(range(cls.versions[0], cls.versions[1] + 1)):
            problems.append(f"{name}: versions {cls.versions}, in Kafka {table['versions']}")
        flexible = versions_of(table["flexible"])
        if {one for one in known if covers(cls.flexible, one)} != flexible:
            problems.append(f"{name}: flexible {cls.flexible}, in Kafka {table['flexible']}")
        problems += compare(cls, table["fields"], known, flexible, name, release)
    assert problems == []


def test_no_definition_is_without_a_counterpart_in_kafka() -> None:
    known: dict[str, set[int]] = {}
    for release in RELEASES:
        for name, table in messages(release).items():
            cls = definition(name, release)
            versions = {0} if name.endswith("Key") else versions_of(table["versions"])
            known.setdefault(cls.__name__, set()).update(versions)
    defined = {
        cls.__name__: set(range(cls.versions[0], cls.versions[1] + 1)) for _, cls in all_messages()
    }
    assert defined == known


def test_record_types_are_kafkas() -> None:
    for group, table in facts("4.4")["coordinator"].items():
        for name, number in table["types"].items():
            stem = "".join(word.capitalize() for word in name.split("_"))
            for half in ("Key", "Value"):
                (cls,) = classes_by_name()[f"coordinator/{group}/{stem}{half}"][:1]
                assert cls.record_type == number
    for name, table in facts("3.9")["coordinator"]["group"]["records"].items():
        if name.endswith("Key"):
            record_type = classes_by_name()[f"coordinator/group/{name}"][0].record_type
            assert record_type in versions_of(table["versions"])


@pytest.mark.parametrize("release", RELEASES)
def test_api_keys_and_header_versions_are_kafkas(release: str) -> None:
    for one in facts(release)["apis"]:
        key = api.ApiKey(one["key"])
        if one["name"] != "ListClientMetricsResources":
            assert (key.name, key.api_name) == (one["enum"], one["name"])
        for side, version_of in (
            ("request_header", api.request_header_version),
            ("response_header", api.response_header_version),
        ):
            for version in versions_of(one["versions"]):
                expected = one[side]
                if isinstance(expected, dict):
                    (expected,) = [
                        n for text, n in expected.items() if version in versions_of(text)
                    ]
                assert version_of(key, version) == expected, (key, side, version)


@pytest.mark.parametrize("release", RELEASES)
def test_error_codes_are_kafkas(release: str) -> None:
    for code, name, retriable, refresh in facts(release)["errors"]:
        error = ErrorCode(code)
        assert error.name == name
        if release == "4.4":
            assert (error.retriable, error.refreshes_metadata) == (retriable, refresh)


def test_no_error_code_is_without_a_counterpart_in_kafka() -> None:
    known = {ErrorCode(row[0]) for release in RELEASES for row in facts(release)["errors"]}
    unknown = [error.name for error in ErrorCode if error not in known]
    assert not unknown, f"Kafka has no error {unknown}"


def test_all_api_keys_of_4_4_are_there() -> None:
    assert {one["key"] for one in facts("4.4")["apis"]} == set(api.ApiKey)
