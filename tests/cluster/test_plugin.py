"""The pytest plugin, seen from a user's tests: each case is a run of pytest on a folder of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_run import run_pytest

from kwire import Cluster

pytestmark = pytest.mark.timeout(90)

CLIENT = """
    import pytest
    from confluent_kafka import Producer

    def produce(servers, topic, value="x"):
        failed = []
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        producer.produce(topic, value, callback=lambda error, message: failed.append(error))
        assert producer.flush(10) == 0 and failed == [None], failed
"""


OPTIONS = "acl, brokers, config, controllers, fast, mode, mtls, racks, sasl, super_users, tls, topics, users"


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_each_test_has_a_new_cluster_at_another_port(tmp_path: Path, mode: str) -> None:
    run = run_pytest(
        tmp_path,
        CLIENT
        + """
    seen = set()

    @pytest.mark.parametrize("number", range(3))
    def test_empty(kwire, number):
        assert kwire.topics(internal=True) == {}
        produce(kwire.bootstrap_servers, "made-on-demand")
        kwire.create_topic("t", 2)
        assert sorted(kwire.topics()) == ["made-on-demand", "t"]
        assert kwire.bootstrap_servers not in seen
        seen.add(kwire.bootstrap_servers)
        kwire.broker(1).kill()

    def test_not_the_sessions(kwire_cluster, kwire):
        assert kwire is not kwire_cluster and kwire.bootstrap_servers not in seen
        kwire_cluster.create_topic("t")
        assert kwire.topics() == {} and kwire.broker(1).running

    def test_left_as_it_was(kwire_cluster):
        assert kwire_cluster.topics() == {"t": 1}
    """,
        f"--kwire-mode={mode}",
    )
    assert run.counts == {"passed": 5}, run.text


@pytest.mark.parametrize(
    ("options", "ini"),
    [
        ((), "kwire_config = log.dirs=data\n"),
        (("--kwire-mode=process",), "kwire_config = log.dirs=data\n"),
        ((), "kwire_config = listeners=PLAINTEXT://127.0.0.1:0\n"),
    ],
    ids=["directory", "process", "listeners"],
)
def test_where_clusters_are_unique_tests_share_the_sessions(
    tmp_path: Path, options: tuple[str, ...], ini: str
) -> None:
    run = run_pytest(
        tmp_path,
        CLIENT
        + """
    @pytest.mark.parametrize("number", range(3))
    def test_empty(kwire, number, kwire_cluster):
        assert kwire is kwire_cluster
        assert kwire.topics() == {}
        produce(kwire.bootstrap_servers, "made-on-demand")
        kwire.create_topic("t", 2)
        assert sorted(kwire.topics()) == ["made-on-demand", "t"]
        kwire.broker(1).kill()

    def test_one_cluster(kwire_cluster, kwire):
        assert kwire is kwire_cluster and kwire.broker(1).running

    def test_left_as_it_was(kwire_cluster):
        kwire_cluster.create_topic("t")
        assert kwire_cluster.topics() == {"t": 1}

    def test_left_as_it_was_indeed(kwire_cluster):
        assert kwire_cluster.topics() == {"t": 1}
    """,
        *options,
        ini=ini,
    )
    assert run.counts == {"passed": 6}, run.text


def test_the_marker_gives_a_cluster_of_its_own(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
    import pytest

    @pytest.mark.kwire(brokers=3, config={"num.partitions": 5}, topics=["given:1:3"])
    def test_three(kwire, kwire_cluster):
        kwire.create_topic("t")
        assert kwire.topics() == {"given": 1, "t": 5}
        assert len(kwire.brokers) == 3 and kwire.bootstrap_servers != kwire_cluster.bootstrap_servers

    @pytest.mark.kwire(mode="process")
    def test_process(kwire):
        kwire.broker(1).kill()

    @pytest.mark.kwire
    def test_of_its_own_even_without_options(kwire, kwire_cluster):
        assert kwire is not kwire_cluster
    """,
        "--strict-markers",
    )
    assert run.counts == {"passed": 3}, run.text


def test_the_nearest_marker_decides_argument_by_argument(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
    import pytest

    pytestmark = pytest.mark.kwire(
        brokers=3, topics=["module"], config={"num.partitions": 5, "min.insync.replicas": 2}
    )

    @pytest.mark.kwire(topics=["made"])
    def test_a_function_and_its_module(kwire):
        assert (len(kwire.brokers), kwire.topics()) == (3, {"made": 5})

    @pytest.mark.kwire(topics=["class"], config={"num.partitions": 4})
    class TestClass:
        def test_a_class_and_its_module(self, kwire):
            assert (len(kwire.brokers), kwire.topics()) == (3, {"class": 4})

        @pytest.mark.kwire(brokers=2, config={"default.replication.factor": 2})
        def test_all_three(self, kwire):
            assert (len(kwire.brokers), kwire.topics()) == (2, {"class": 4})
            assert len(kwire.partition("class", 0).replicas) == 2

    @pytest.mark.kwire(brokers=1, config={"num.partitions": 7})
    @pytest.mark.kwire(brokers=2)
    def test_two_decorators(kwire):
        assert (len(kwire.brokers), kwire.topics()) == (2, {"module": 7})

    @pytest.mark.kwire(brokers=2)
    @pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.kwire(brokers=4))])
    def test_of_a_parameter(kwire, count):
        assert (len(kwire.brokers), kwire.topics()) == (count, {"module": 5})

    @pytest.mark.kwire(brokers=None, config=None)
    def test_back_to_the_session(kwire):
        assert (len(kwire.brokers), kwire.topics()) == (1, {"module": 5})
    """,
        "--strict-markers",
    )
    assert run.counts == {"passed": 7}, run.text


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (
            "kwire(broker=3)",
            f"marker kwire: expected {OPTIONS}, not 'broker'",
        ),
        (
            "kwire(3)",
            f"marker kwire: expected {OPTIONS}, not 3, which has no",
        ),
        ("kwire(brokers='x')", "brokers: expected a number from 1, not 'x'"),
        ("kwire(mode='vm')", "kwire mode: expected one of thread, process, docker, external"),
        ("kwire(config={'num.partitions': 'x'})", "num.partitions"),
        ("kwire(config='fast')", "marker kwire: config: expected keys and values, not 'fast'"),
    ],
)
def test_a_wrong_marker_is_told(tmp_path: Path, marker: str, said: str) -> None:
    run = run_pytest(
        tmp_path, f"import pytest\n@pytest.mark.{marker}\ndef test(kwire):\n    pass\n"
    )
    assert run.counts == {"error": 1} and said in run.text, run.text


def test_a_marker_without_the_fixture_is_a_warning(tmp_path: Path) -> None:
    source = """
    import pytest

    @pytest.mark.kwire(brokers=3)
    def test_it():
        pass
    """
    run = run_pytest(tmp_path, source)
    assert run.counts["passed"] == 1
    assert "test_it: the marker kwire does nothing without the fixture `kwire`" in run.text


def test_who_asks_for_a_broker_too_many_is_told_of_the_marker(tmp_path: Path) -> None:
    source = """
    def test_it(kwire):
        kwire.broker(2)
    """
    run = run_pytest(tmp_path, source)
    assert run.counts == {"failed": 1} and "@pytest.mark.kwire(brokers=3)" in run.text


def test_a_configuration_that_is_refused_is_told_once(tmp_path: Path) -> None:
    source = """
    import pytest

    @pytest.mark.kwire(config={"num.partitions": "many"})
    def test_it(kwire):
        pass
    """
    run = run_pytest(tmp_path, source, "-rN")
    assert run.counts == {"error": 1}
    assert run.text.count("ConfigurationError") == 1 and "During handling" not in run.text


def test_options_of_ini_file_and_command_line(tmp_path: Path) -> None:
    source = """
    def test_options(kwire):
        import os
        kwire.create_topic("t")
        assert kwire.topics() == {"t": 3}
        assert len(kwire.brokers) == 2
        assert (kwire._inner.node(1).pid == os.getpid()) == %s
    """
    ini = """
    kwire_brokers = 2
    kwire_mode = process
    kwire_config =
        num.partitions=3
        default.replication.factor=2
    """
    assert run_pytest(tmp_path, source % False, ini=ini).counts == {"passed": 1}
    assert run_pytest(tmp_path, source % True, "--kwire-mode=thread", ini=ini).counts == {
        "passed": 1
    }


def test_a_cluster_that_runs_elsewhere_is_emptied_and_not_stopped(tmp_path: Path) -> None:
    source = """
    import pytest
    from kwire.errors import NotSupportedError

    def test_outside(kwire):
        assert kwire.topics(internal=True) == {}
        kwire.create_topic("t")
        with pytest.raises(NotSupportedError):
            kwire.broker(1)

    @pytest.mark.kwire(brokers=3)
    def test_needs_its_own(kwire):
        pass
    """
    with Cluster(topics=["old"]) as cluster:
        where = f"--kwire-bootstrap={cluster.bootstrap_servers}"
        run = run_pytest(tmp_path, source, "--kwire-mode=external", where)
        assert run.counts == {"passed": 1, "skipped": 1}, run.text
        assert cluster.topics() == {"t": 1}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--kwire-mode=external", "--kwire-mode=external needs --kwire-bootstrap=HOST:PORT"),
        ("--kwire-brokers=0", "brokers: expected a number from 1, not 0"),
    ],
)
def test_a_mode_that_cannot_be_is_told(tmp_path: Path, option: str, said: str) -> None:
    run = run_pytest(tmp_path, "def test(kwire):\n    pass\n", option)
    assert run.counts == {"error": 1} and said in run.text, run.text


def test_xdist_workers_have_a_cluster_each(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
    import pytest

    @pytest.mark.parametrize("number", range(8))
    def test_worker(kwire, number):
        kwire.create_topic("t")
        assert kwire.topics() == {"t": 1}
    """,
        "-n2",
    )
    assert run.counts == {"passed": 8}, run.text


@pytest.mark.parametrize("options", [(), ("-n2",)], ids=["alone", "xdist"])
def test_coroutines_as_tests(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = run_pytest(
        tmp_path,
        """
    from aiokafka import AIOKafkaProducer

    from kwire.aio import Cluster

    async def test_sync_cluster_in_a_coroutine(kwire):
        kwire.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=kwire.bootstrap_servers, acks="all") as producer:
            sent = await producer.send_and_wait("t", b"x")
        assert sent.offset == 0
        kwire.wait_for(lambda c: c.partition("t", 0).high_watermark == 1)

    async def test_async_cluster_on_the_tests_own_loop():
        async with Cluster(brokers=3) as cluster:
            await cluster.create_topic("t", 1, 3)

            async def led(c):
                return (await c.partition("t", 0)).leader > 0

            assert await cluster.wait_for(led)

    async def test_sync_in_the_second_worker(kwire):
        assert kwire.topics(internal=True) == {}
    """,
        *options,
        ini="asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n",
    )
    assert run.counts == {"passed": 3}, run.text


def test_a_failing_test_shows_leaders_isr_offsets_and_the_last_requests(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        CLIENT
        + """
    @pytest.mark.kwire(brokers=2)
    def test_fails(kwire):
        kwire.create_topic("orders", assignment=[[2, 1]])
        produce(kwire.bootstrap_servers, "orders")
        kwire.wait_for(lambda c: c.partition("orders", 0).high_watermark == 1)
        kwire.broker(1).kill()
        kwire.wait_for(lambda c: c.partition("orders", 0).isr == {2})
        assert False

    def test_passes(kwire):
        pass

    def test_fails_with_a_cluster_that_is_stopped(kwire):
        kwire.stop()
        assert False

    def test_goes_on(kwire):
        assert kwire.topics(internal=True) == {}
    """,
    )
    assert run.counts == {"failed": 2, "passed": 2}, run.text
    _, _, section = run.text.partition(" kwire ---")
    lines = [line.strip() for line in section.splitlines()[1:7]]
    assert lines[0].startswith("<broker 1 127.0.0.1:") and lines[0].endswith(" down>")
    assert lines[2:5] == [
        "orders-0: leader 2, leader epoch 1, ISR [2], high watermark 1",
        "replica 2: offsets 0..1, epochs 0@0 1@1",
        "replica 1: broker 1 does not run",
    ]
    _, _, requests = section.partition("last requests of clients:\n")
    produced = r"^ +-\d+\.\d{3} s  broker 2  rdkafka  Produce v\d+  orders-0: ok$"
    assert re.search(produced, requests, re.MULTILINE), requests
    assert run.text.count(" kwire ---") == 2 and "the cluster does not run" in run.text


def test_an_internal_error_of_a_broker_fails_the_test_that_met_it(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
    import pytest

    def fail(kwire):
        kwire._run(kwire._inner.node(1).ask("POST", "/v1/failures", {"text": "on purpose"}))

    def test_in_the_sessions(kwire):
        fail(kwire)

    def test_after_it(kwire):
        pass

    @pytest.mark.kwire
    def test_in_its_own(kwire):
        fail(kwire)
    """,
    )
    assert run.counts == {"passed": 3, "error": 2}, run.text
    assert "ERROR at teardown of test_in_the_sessions" in run.text
    assert "ERROR at teardown of test_in_its_own" in run.text
    assert "RuntimeError: on purpose" in run.text and "To reproduce: the same calls" in run.text


def test_without_the_plugin(tmp_path: Path) -> None:
    source = """
    from kwire import Cluster

    def test_without():
        with Cluster(topics=["t"]) as cluster:
            assert cluster.topics() == {"t": 1}

    def test_no_fixture(kwire):
        pass
    """
    run = run_pytest(tmp_path, source, "-p", "no:kwire")
    assert run.counts == {"passed": 1, "error": 1} and "fixture 'kwire' not found" in run.text


def test_who_does_not_use_it_pays_next_to_nothing(tmp_path: Path) -> None:
    """The plugin's own modules, measured in a fresh interpreter with pytest loaded: under 5 ms, nothing of the rest."""
    code = """
import sys, time
import pytest
before = set(sys.modules)
begin = time.perf_counter()
import kwire.pytest_plugin
print(time.perf_counter() - begin)
print(sorted(set(sys.modules) - before))
"""
    seconds = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        spent, loaded = done.stdout.splitlines()
        seconds.append(float(spent))
        assert loaded == "['kwire', 'kwire.pytest_plugin']"
    slack = float(os.environ.get("KWIRE_SPEED_SLACK", "1"))  # see test_speed.py
    assert min(seconds) < 0.005 * slack, seconds
