"""One Spark session and one `kwire up --brokers 3` for all tests; topics are each test's own."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from spark_it import support  # noqa: E402

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    os.environ.update(support.spark_environment())
    import pyspark
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("kwire tests")
    folder = tmp_path_factory.mktemp("spark")
    for key, value in support.spark_options(pyspark.__version__, folder).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session", params=os.environ.get("SPARK_ISOLATION", "thread").split(","))
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Three brokers; SPARK_ISOLATION=thread,process runs all tests on both kinds."""
    up = support.KwireUp(tmp_path_factory.mktemp("kwire"), isolation=request.param)
    yield up
    assert up.process.poll() is None, f"kwire died\n{up.said()[-4000:]}"
    status = up.stop()
    assert "Traceback" not in up.said() and "internal error" not in up.said(), up.said()[-4000:]
    assert status == 0, up.said()[-4000:]


@pytest.fixture
def client(brokers: support.KwireUp) -> support.StockClient:
    return support.StockClient(brokers.bootstrap)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Names no other test uses: `fresh("topic")`."""
    return lambda word="topic": f"{word}-{next(_numbers)}"


@pytest.fixture
def read(spark: Any, brokers: support.KwireUp) -> Callable[..., Any]:
    """`read(subscribe="t", startingOffsets="earliest")`: a batch DataFrame; dots in options by a dict."""

    def frame(more: dict[str, str] | None = None, **options: str) -> Any:
        everything = {"kafka.bootstrap.servers": brokers.bootstrap, **options, **(more or {})}
        return spark.read.format("kafka").options(**everything).load()

    return frame


@pytest.fixture
def stream(spark: Any, brokers: support.KwireUp) -> Callable[..., Any]:
    """`stream(subscribe="t")`: a streaming DataFrame, from the earliest records unless told otherwise."""

    def frame(more: dict[str, str] | None = None, **options: str) -> Any:
        start = {"kafka.bootstrap.servers": brokers.bootstrap, "startingOffsets": "earliest"}
        return (
            spark.readStream.format("kafka").options(**{**start, **options, **(more or {})}).load()
        )

    return frame


class Sink:
    """An idempotent sink: a batch that comes a second time replaces what it left the first time."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, frame: Any, batch_id: int) -> None:
        self.batches[batch_id] = frame.collect()

    @property
    def rows(self) -> list[Any]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def values(self) -> list[str]:
        return [bytes(row.value).decode() for row in self.rows]

    @property
    def sizes(self) -> list[int]:
        return [len(rows) for _, rows in sorted(self.batches.items()) if rows]


@pytest.fixture
def sink(spark: Any) -> Iterator[Sink]:
    """Where a streaming test collects; its queries end with it."""
    yield Sink()
    for query in spark.streams.active:
        query.stop()
