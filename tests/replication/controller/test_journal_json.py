"""The journal writes JSON as the module json does, also where it does without it."""

from __future__ import annotations

import json

import pytest

from kwire.replication.controller.journal import to_json


@pytest.mark.parametrize(
    "value",
    [
        {"controller_epoch": 1, "broker_epoch": 0},
        {"epoch": -1},
        {},
        {"a": True},
        {"a": None, "b": 2.5},
        {1: 2},
        {'a"b': 1},
        {"é": 1},
        {"": 1},
        {"id": "x", "partitions": [[[1], [1], 1, 0, 0, False]]},
        [1, 2],
        "text",
        7,
    ],
)
def test_it_is_compact_json(value: object) -> None:
    assert to_json(value) == json.dumps(value, separators=(",", ":"))
