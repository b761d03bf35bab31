"""kwire.Cluster with several controllers: one is active, another takes over, one that is back stands by."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plugin_run import run_pytest

from kwire import Cluster, aio, errors

pytestmark = pytest.mark.timeout(60)
QUICK = {"controller.quorum.fetch.timeout.ms": 500}


@pytest.fixture(params=["thread", "process"])
def three(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=3, config=QUICK, isolation=request.param, controllers=2) as cluster:
        yield cluster


def test_another_controller_takes_over_and_the_old_one_comes_back_as_standby(
    three: Cluster,
) -> None:
    assert [each.id for each in three.controllers] == [1000, 1001] and three.controller_id == 1000
    three.create_topic("t", assignment=[[1, 2, 3]])
    old = three.active_controller()
    assert old.id == 1000 and old.running
    old.kill()
    assert not three.controller(1000).running
    with pytest.raises(errors.BrokerNotAvailableError, match="none of the controllers") as found:
        three.active_controller()
    assert found.value.kafka_error == "NOT_CONTROLLER"
    assert "none of the controllers [1000, 1001] is active" in three.describe()
    three.wait_for(lambda c: c.active_controller().id == 1001)

    three.broker(1).kill()
    three.wait_for(lambda c: c.partition("t", 0).leader == 2)
    old.start()
    old.start()  # again: nothing is left to do
    three.create_topic("u", assignment=[[3]])
    assert three.active_controller().id == 1001
    text = three.describe()
    assert f"<controller 1000 {old.address} running>\n" in text
    assert "<controller 1001 " in text and " running> active\n" in text
    three.broker(1).start()
    three.wait_for(lambda c: c.partition("t", 0).isr == {1, 2, 3})


def test_one_that_stops_in_order_or_stands_still_is_followed_by_the_other(three: Cluster) -> None:
    three.controller(1000).stop()
    three.wait_for(lambda c: c.active_controller().id == 1001, 2)
    three.controller(1000).start()
    three.controller(1001).pause()
    assert three.controller(1001).paused
    three.wait_for(lambda c: c.active_controller().id == 1000)
    three.controller(1001).resume()
    three.create_topic("t", replication_factor=3)
    assert three.active_controller().id == 1000


def test_one_that_is_cut_off_lets_the_other_take_over(three: Cluster) -> None:
    with three.network.cut(1000, {1, 2, 3}):
        three.wait_for(lambda c: c.active_controller().id == 1001, 20)
        three.create_topic("t")


def test_a_reset_brings_all_controllers_back(three: Cluster) -> None:
    three.create_topic("t")
    for controller in three.controllers:
        controller.kill()
    three.broker(1).kill()
    three.reset()
    assert three.topics(internal=True) == {}
    assert all(node.running for node in (*three.controllers, *three.brokers))
    three.create_topic("t", replication_factor=3)


def test_a_single_controller_can_be_killed_too() -> None:
    with Cluster() as cluster:
        (only,) = cluster.controllers
        only.kill()
        with pytest.raises(errors.BrokerNotAvailableError, match="controller 1000 does not run"):
            cluster.partition("t", 0)
        only.start()
        cluster.create_topic("t")
        assert cluster.active_controller().id == only.id
        with pytest.raises(errors.ClusterStateError, match=r"no controller 7; .* are \[1000\]"):
            cluster.controller(7)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "expected a number from 1, not 0"),
        (True, "expected a number from 1, not True"),
        ("2", "expected a number from 1, not '2'"),
        (10, "at most 9, not 10"),
    ],
)
@pytest.mark.parametrize("isolation", ["thread", "docker"])
def test_a_wrong_number_of_them_is_refused(isolation: str, number: Any, said: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"controllers: {said}"):
        Cluster(controllers=number, isolation=isolation)


def test_a_cluster_that_runs_elsewhere_has_none_to_touch() -> None:
    with Cluster() as cluster:
        outside = Cluster.connect(cluster.bootstrap_servers)
        with pytest.raises(errors.NotSupportedError, match="controllers: not possible"):
            outside.active_controller()
        outside.stop()


def test_on_an_event_loop() -> None:
    async def main() -> None:
        async with aio.Cluster(config=QUICK, controllers=2) as cluster:
            old = await cluster.active_controller()
            assert old is cluster.controller(1000)
            await old.kill()

            async def another_is(c: aio.Cluster) -> bool:
                return (await c.active_controller()).id == 1001

            await cluster.wait_for(another_is)
            await cluster.create_topic("t")

    asyncio.run(main())


def test_the_plugins_option_ini_key_and_marker(tmp_path: Path) -> None:
    source = """
    import pytest

    def test_of_the_session(kwire):
        assert len(kwire.controllers) == %d

    @pytest.mark.kwire(controllers=3)
    def test_of_its_own(kwire):
        assert len(kwire.controllers) == 3
        assert kwire.active_controller().id == 1000
    """
    ini = "kwire_controllers = 2"
    assert run_pytest(tmp_path, source % 2, ini=ini).counts == {"passed": 2}
    assert run_pytest(tmp_path, source % 1, "--kwire-controllers=1", ini=ini).counts == {
        "passed": 2
    }
    run = run_pytest(tmp_path, source % 1, ini="kwire_controllers = two")
    assert "kwire_controllers: expected a number, not 'two'" in run.text
