"""One Spark session and one cluster of three for all tests; topics are each test's own. With REAL=1 it is Kafka's.

The session is that of the plugin (`kwire_spark_session`), as a user's tests have it."""

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

from kwire import Cluster  # noqa: E402
from spark_it import support  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kwire_only: of what kwire alone has, not run with REAL=1")
    support.use_fetched_jars()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("CI"):  # as in compat_tests/conftest.py
        for item in items:
            item.add_marker(pytest.mark.flaky(reruns=1))
    if support.IS_REAL:
        reason = pytest.mark.skip(reason="of what kwire alone has")
        for item in items:
            if item.get_closest_marker("kwire_only"):
                item.add_marker(reason)


_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark(kwire_spark_session: Any) -> Any:
    kwire_spark_session.sparkContext.setLogLevel("ERROR")
    return kwire_spark_session


_ISOLATIONS = "none" if support.IS_REAL else os.environ.get("SPARK_ISOLATION", "thread")


@pytest.fixture(scope="session", params=_ISOLATIONS.split(","))
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Three brokers; SPARK_ISOLATION=thread,process runs all tests on both kinds."""
    if support.IS_REAL:
        from spark_it import real

        with real.three_brokers(tmp_path_factory.mktemp("kafka")) as kafka:
            yield kafka
        return
    with support.three_brokers(request.param) as cluster:
        yield cluster


@pytest.fixture
def client(brokers: Cluster) -> support.StockClient:
    return support.StockClient(brokers.bootstrap_servers)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Names no other test uses: `fresh("topic")`."""
    return lambda word="topic": f"{word}-{next(_numbers)}"


@pytest.fixture
def read(spark: Any, brokers: Cluster) -> Callable[..., Any]:
    """`read(subscribe="t", startingOffsets="earliest")`: a batch DataFrame; dots in options by a dict."""

    def frame(more: dict[str, str] | None = None, **options: str) -> Any:
        everything = {
            "kafka.bootstrap.servers": brokers.bootstrap_servers,
            **options,
            **(more or {}),
        }
        return spark.read.format("kafka").options(**everything).load()

    return frame


@pytest.fixture
def stream(spark: Any, brokers: Cluster) -> Callable[..., Any]:
    """`stream(subscribe="t")`: a streaming DataFrame, from the earliest records unless told otherwise."""

    def frame(more: dict[str, str] | None = None, **options: str) -> Any:
        start = {
            "kafka.bootstrap.servers": brokers.bootstrap_servers,
            "startingOffsets": "earliest",
        }
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
