"""`kwire_spark`'s options, the modules that are missed, the versions that are named. Without Spark."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ConfigurationError
from kwire.spark_options import to_texts, topics_text
from kwire.spark_session import TESTED, missing_modules

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"subscribe": ["a", "b"]}, {"subscribe": "a,b"}),
        ({"assign": {"a": (0, 1)}}, {"assign": '{"a": [0, 1]}'}),
        ({"assign": {"a": range(2)}}, {"assign": '{"a": [0, 1]}'}),
        (
            {"startingOffsets": {"a": {0: 5, 1: "earliest", "2": "latest"}}},
            {"startingOffsets": '{"a": {"0": 5, "1": -2, "2": -1}}'},
        ),
        ({"startingOffsets": "latest", "endingOffsets": None}, {"startingOffsets": "latest"}),
        (
            {"startingOffsetsByTimestamp": {"a": {0: 1700000000000}}},
            {"startingOffsetsByTimestamp": '{"a": {"0": 1700000000000}}'},
        ),
        (
            {"includeHeaders": True, "minPartitions": 3},
            {"includeHeaders": "true", "minPartitions": "3"},
        ),
        ({"STARTINGOFFSETS": "earliest"}, {"STARTINGOFFSETS": "earliest"}),
        ({"kafka.max.poll.records": 5}, {"kafka.max.poll.records": "5"}),
    ],
)
def test_values_are_written_as_spark_reads_them(
    options: dict[str, Any], texts: dict[str, str]
) -> None:
    assert to_texts("read", options) == texts


@pytest.mark.parametrize(
    ("method", "name", "said"),
    [
        (
            "read",
            "startingOffset",
            "read has no option startingOffset; did you mean startingOffsets?",
        ),
        ("read", "kafka_group_id", "did you mean kafka.group.id?"),
        ("read", "maxOffsetsPerTrigger", "maxOffsetsPerTrigger; it is one of read_stream"),
        ("read_stream", "endingOffsets", "endingOffsets; it is one of read"),
        ("write", "checkpointLocation", "it is one of write_stream"),
        ("write", "topics", "did you mean topic?"),
        ("write", "kafka.transactional.id", "Spark's sink has no transactions"),
        ("read", "xyzzy", "kwire_spark.read has no option xyzzy"),
    ],
)
def test_a_name_that_spark_would_ignore_is_refused(method: str, name: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        to_texts(method, {name: "1"})
    assert said in str(refused.value)


def test_topics_are_a_name_or_several() -> None:
    assert topics_text("read", "orders") == topics_text("write", ["orders"]) == "orders"
    assert topics_text("read", ("b", "a")) == "b,a" and topics_text("read", {"b", "a"}) == "a,b"
    for method, wrong in (("read", []), ("read", ["a", 1]), ("read", 5), ("write", ["a", "b"])):
        with pytest.raises(ConfigurationError, match=rf"^kwire_spark\.{method}: "):
            topics_text(method, wrong)  # type: ignore[arg-type]


def test_modules_that_ivy_has_not_found() -> None:
    said = """\
:: problems summary ::
:::: WARNINGS
        module not found: org.apache.spark#spark-token-provider-kafka-0-10_2.13;4.2.0
    ==== central: tried
        ::          UNRESOLVED DEPENDENCIES         ::
        :: org.apache.spark#spark-token-provider-kafka-0-10_2.13;4.2.0: not found
        module not found: org.apache.spark#spark-token-provider-kafka-0-10_2.13;4.2.0
"""
    assert missing_modules(said) == ["org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0"]
    assert missing_modules("Exception in thread main") == []


def test_the_documented_install_is_of_a_version_that_is_tested() -> None:
    wanted, *_ = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["spark"]
    assert wanted.endswith(f",<={TESTED[0]}"), "pip takes the newest that is allowed"
    known = f"{TESTED[0]} and {TESTED[1]} are known to work"
    assert known in (ROOT / "spark_it" / "setup.sh").read_text()
    page = (ROOT / "docs" / "spark.md").read_text()
    assert all(version in page for version in TESTED)


def test_the_example_of_the_readme_is_the_first_of_the_page() -> None:
    first, second = (
        next(
            block
            for block in re.findall(
                r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M
            )
            if "kwire_spark" in block
        )
        for page in ("README.md", "docs/spark.md")
    )
    assert first == second and len(first.splitlines()) == 5
