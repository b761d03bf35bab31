"""The tables of an audit: names and types that Spark takes, kinds that people can read."""

from __future__ import annotations

import re

from kwire.audit.tables import KINDS, TABLES, TOPICS, ddl

TYPES = {"string", "int", "bigint", "binary", "timestamp", "double", "array<int>"}


def test_columns_have_types_of_spark() -> None:
    for name, table in TABLES.items():
        assert set(table.values()) <= TYPES, name
        assert all(re.fullmatch("[a-z][a-z0-9_]*", column) for column in table), name


def test_every_kind_can_be_read_and_is_counted() -> None:
    assert [kind.name for kind in KINDS.values() if kind.fails] == [
        *("lost", "doubled", "reordered", "vanished", "partly_visible", "aborted_visible"),
        *("replica_differs", "damaged"),
    ]
    for kind in KINDS.values():
        assert kind.words and kind.meaning and "\n" not in kind.meaning
    assert set(KINDS) - set(TOPICS) == {"replica_differs", "damaged"}


def test_ddl_names_the_columns_in_their_order() -> None:
    assert ddl({"end": "timestamp", "isr": "array<int>"}) == "`end` timestamp, `isr` array<int>"
