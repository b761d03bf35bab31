"""The plugin beyond `kwire`: factories, reports on clusters of all kinds, short tracebacks, external clusters."""

import re
from pathlib import Path

import pytest
from plugin_run import run_pytest

pytestmark = pytest.mark.timeout(90)

LOOPS = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"


def parts(text: str) -> dict[str, str]:
    """What is said of each test, by its name."""
    found = re.split(r"^_+ (?:ERROR at setup of )?(test_\w+) _+$", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def titles(text: str) -> list[str]:
    """The titles of kwire's sections, with * for addresses."""
    found = re.findall(r"^-+ (kwire.*?) -+$", text, re.MULTILINE)
    return [re.sub(r"127\.0\.0\.1:\d+", "*", title) for title in found]


def test_factories_start_clusters_and_stop_them(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
    import socket
    import pytest
    from kwire import Cluster

    made = []

    @pytest.fixture(scope="module")
    def shop(kwire_session_factory):
        with kwire_session_factory(brokers=2, topics=["orders:1:2"]) as cluster:
            yield cluster

    def test_two(kwire_factory, kwire: Cluster, shop: Cluster):
        first, second = kwire_factory(), kwire_factory(brokers=3, config={"num.partitions": 5})
        assert [len(each.brokers) for each in (kwire, first, second, shop)] == [1, 1, 3, 2]
        for each in (first, second):
            each.create_topic("t")
        assert (first.topics(), second.topics()) == ({"t": 4}, {"t": 5})
        assert len({each.bootstrap_servers for each in (kwire, first, second, shop)}) == 4
        made.extend([first, second, shop])

    def test_stopped(shop):
        assert not made[0].started and not made[1].started and shop.started
        assert shop.topics() == {"orders": 1}

    def test_in_a_block(kwire_factory):
        with kwire_factory() as cluster:
            pass
        assert not cluster.started

    def test_option(kwire_factory):
        kwire_factory(broker=3)

    def test_value(kwire_factory):
        kwire_factory(brokers=0)
    """,
        ini="kwire_config = num.partitions=4\n",
    )
    assert run.counts == {"passed": 3, "failed": 2}, run.text
    expected = "acl, brokers, config, controllers, fast, mode, mtls, racks, sasl, super_users, tls, topics, users"
    assert f"kwire factory: expected {expected}, not 'broker'" in run.text
    assert "ConfigurationError: brokers: expected a number from 1, not 0" in run.text


def test_an_internal_error_in_one_of_several_is_told_and_all_are_stopped(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
    made = []

    def test_it(kwire_factory):
        made.extend(kwire_factory() for _ in range(3))
        made[1]._run(made[1]._inner.node(1).ask("POST", "/v1/failures", {"text": "on purpose"}))

    def test_stopped():
        assert [each.started for each in made] == [False] * 3
    """,
    )
    assert run.counts == {"passed": 2, "error": 1} and "RuntimeError: on purpose" in run.text


def test_the_clusters_of_a_failed_test_are_in_its_report_and_no_others(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
    import pytest
    import pytest_asyncio
    from kwire import Cluster, aio

    @pytest.fixture(scope="module")
    def mine():
        with Cluster(topics=["mine"]) as cluster:
            yield cluster

    @pytest.fixture
    def app(mine):
        return object()

    @pytest_asyncio.fixture
    async def on_loop():
        async with aio.Cluster(topics=["looped"]) as cluster:
            yield cluster

    def test_own_fixture(mine):
        assert False

    def test_behind_another_fixture(app):
        assert False

    def test_only_the_fixture(kwire, kwire_cluster):
        assert False

    def test_factory(kwire, kwire_factory):
        kwire_factory(2)
        assert False

    def test_block():
        with Cluster(2, topics=["orders"]):
            assert False

    def test_block_that_is_left_well():
        with pytest.raises(ZeroDivisionError):
            with Cluster(topics=["orders"]):
                1 / 0

    async def test_block_on_a_loop():
        async with aio.Cluster(topics=["orders"]):
            assert False

    async def test_fixture_on_a_loop(on_loop):
        assert False

    @pytest.fixture
    def broken(kwire):
        kwire.create_topic("made")
        assert False

    def test_setup(broken):
        pass

    def test_without_any():
        assert False
    """,
        ini=LOOPS,
    )
    assert run.counts == {"failed": 8, "error": 1, "passed": 1}, run.text
    one, two = "<Cluster 1 broker, isolation 'thread', *>", "<Cluster 2 brokers, isolation 'thread'"
    assert {name: titles(text) for name, text in parts(run.text).items()} == {
        "test_own_fixture": ["kwire: mine"],
        "test_behind_another_fixture": ["kwire: mine"],
        "test_only_the_fixture": ["kwire", "kwire: kwire_cluster"],
        "test_factory": ["kwire", f"kwire: {two}, *,*>"],
        "test_block": [f"kwire: {two}, *,*>, when its block ended"],
        "test_block_on_a_loop": [f"kwire: {one}, when its block ended"],
        "test_fixture_on_a_loop": ["kwire: on_loop"],
        "test_setup": ["kwire"],
        "test_without_any": [],
    }
    for name, topic in (
        ("test_own_fixture", "mine"),
        ("test_block", "orders"),
        ("test_block_on_a_loop", "orders"),
        ("test_fixture_on_a_loop", "looped"),
        ("test_setup", "made"),
    ):
        assert f"{topic}-0: leader " in parts(run.text)[name], name


def test_groups_stand_before_internal_topics(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
    from confluent_kafka import Consumer, Producer

    def test_it(kwire):
        producer = Producer({"bootstrap.servers": kwire.bootstrap_servers})
        producer.produce("orders", b"tea")
        assert producer.flush(10) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": kwire.bootstrap_servers,
                "group.id": "shop",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        assert consumer.poll(10).value() == b"coffee"
    """,
    )
    assert run.counts == {"failed": 1}, run.text
    _, _, section = run.text.partition(" kwire ---")
    assert 0 < section.find("orders-0: leader") < section.find("shop")


def test_errors_of_kwires_are_shown_where_the_test_calls(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
    import pytest
    from kwire import Cluster, aio

    def test_twice(kwire):
        kwire.create_topic("x")
        kwire.create_topic("x")

    async def test_twice_on_a_loop():
        async with aio.Cluster() as cluster:
            await cluster.create_topic("x")
            await cluster.create_topic("x")

    def test_timeout(kwire):
        kwire.wait_for(lambda c: c.topics(), timeout=0.01)

    def test_predicate(kwire):
        kwire.wait_for(lambda c: c.topics()["none"])

    def test_option():
        Cluster(brokers="x")

    def test_no_coroutine():
        with Cluster() as cluster:
            cluster.wait_for(aio.Cluster.topics)

    async def test_coroutine_as_result():
        async with aio.Cluster(topics=["x"]) as cluster:
            await cluster.wait_for(lambda c: c.partition("x", 0).leader == 1)

    async def test_coroutine_as_dictionary():
        async with aio.Cluster(topics=["x"]) as cluster:
            await cluster.wait_for(lambda c: c.topics()["x"])
    """,
        ini=LOOPS,
    )
    assert run.counts == {"failed": 8}, run.text
    for name, text in parts(run.text).items():
        assert "/kwire/" not in text and "asyncio/" not in text, (name, text)
        assert len(re.findall(r"^>", text, re.MULTILINE)) == (2 if name == "test_predicate" else 1)
    assert "Topic 'x' already exists. (TOPIC_ALREADY_EXISTS)" in run.text
    said = "wait_for: the function uses a coroutine as its result"
    assert run.text.count(f"ConfigurationError: {said}") >= 2
    assert "'coroutine' object has no attribute 'leader'" in run.text
    assert "coroutine 'Cluster.partition' was never awaited" not in run.text

    full = run_pytest(tmp_path, "def test_it(kwire):\n    kwire.broker(9)\n", "--full-trace")
    assert "/kwire/aio.py" in full.text


@pytest.mark.parametrize("options", [(), ("--kwire-external-reset",)])
def test_a_cluster_on_another_machine_is_not_emptied_unless_that_is_said(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    where = ("--kwire-mode=external", "--kwire-bootstrap=127.0.0.1:1,kafka.invalid:9092")
    run = run_pytest(tmp_path, "def test_it(kwire):\n    pass\n", *where, *options)
    assert run.counts == {"error": 1}, run.text
    refused = "deletes ALL topics and groups at 127.0.0.1:1,kafka.invalid:9092"
    assert (refused in run.text) == (not options)
    assert ("kafka.invalid is not this machine" in run.text) == (not options)
    assert ("BrokerNotAvailableError" in run.text) == bool(options)
