"""Every fault that is asked for is one event, whichever way it was asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kwire
from kwire import aio
from kwire.control.client import call
from kwire.control.socket import ControlSocket, serve_nodes
from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import NodeSpec
from kwire.server.events import NodeEvent


@pytest.fixture(scope="module")
def three() -> Iterator[kwire.Cluster]:
    with kwire.Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", assignment=[[3, 1, 2]])
        yield cluster


def requested(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("control: ")]


def cut_for_a_moment(cluster: kwire.Cluster) -> None:
    with cluster.network.cut({1}, {2, 3}):
        pass


def delayed_and_cut(cluster: kwire.Cluster) -> None:
    """The delay is there again when the cut is over."""
    cluster.network.delay(1, 2, 50)
    with cluster.network.cut(1, 2):
        assert cluster.network.cuts() == [(1, 2)] and cluster.network.delays() == [(1, 2, 50)]
        assert repr(cluster.network) == "<Network: 1 | 2 cut, 1 | 2 delayed by 50 ms>"
    assert cluster.network.cuts() == [] and cluster.network.delays() == [(1, 2, 50)]
    cluster.network.heal()
    assert cluster.network.delays() == []


def paused_for_a_moment(cluster: kwire.Cluster) -> None:
    cluster.broker(2).pause()
    cluster.broker(2).resume()
    cluster.broker(2).resume()  # it runs: nothing is done


FAULTS: dict[str, tuple[Callable[[kwire.Cluster], None], list[str]]] = {
    "cut": (cut_for_a_moment, ["cut 1 | 2,3", "heal 1 | 2,3"]),
    "delay": (
        lambda c: (c.network.delay(1, 2, 50), c.network.heal(1))[1],
        ["delay 1 | 2 by 50 ms", "heal 1"],
    ),
    "cut of a delayed link": (
        delayed_and_cut,
        ["delay 1 | 2 by 50 ms", "cut 1 | 2", "heal 1 | 2, cuts only", "heal"],
    ),
    "heal all": (lambda c: c.network.heal(), ["heal"]),
    "pause": (paused_for_a_moment, ["pause broker 2", "resume broker 2"]),
    "kill": (
        lambda c: (c.broker(2).kill(), c.broker(2).start())[1],
        ["kill broker 2", "start broker 2"],
    ),
    "stop": (
        lambda c: (c.broker(1).stop(), c.broker(1).start())[1],
        ["stop broker 1", "start broker 1"],
    ),
    "controller": (
        lambda c: (c.controller(1000).kill(), c.controller(1000).start())[1],
        ["kill controller 1000", "start controller 1000"],
    ),
    "elect": (lambda c: c.elect("orders", 0), ["elect orders-0"]),
    "appoint": (
        lambda c: c.elect("orders", 0, leader=3, unclean=True),
        ["elect 3 for orders-0, unclean"],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_line(
    three: kwire.Cluster, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    three.wait_for(lambda c: c.partition("orders", 0).isr == {1, 2, 3}, timeout=20)
    act, lines = FAULTS[name]
    with caplog.at_level(logging.INFO, "kwire"):
        act(three)
    assert requested(caplog) == [f"control: {line}" for line in lines]


def test_a_refused_fault_is_no_line(three: kwire.Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kwire"):
        for refused in (
            lambda: three.network.cut(1, 1),
            lambda: three.elect("orders", 0, leader="3"),  # type: ignore[arg-type]
        ):
            with pytest.raises(kwire.errors.KwireError):
                refused()
    assert requested(caplog) == []


def test_the_event_has_its_fields_and_its_node(
    three: kwire.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "kwire"):
        three.broker(2).pause()
        three.broker(2).resume()
        three.network.delay({1, 2}, 3, 20)
        three.network.heal()
    source = Path(__file__).read_text().splitlines()
    found = {r.event: r for r in caplog.records if getattr(r, "event", None)}  # type: ignore[attr-defined]
    pause, delay = found["PAUSE_REQUESTED"], found["DELAY_REQUESTED"]
    assert pause.fields == {"role": "broker", "node_id": 2}
    assert delay.fields == {"nodes": [1, 2], "others": [3], "one_way": False, "delay_ms": 20}
    assert pause.name == "kwire.aio"
    for record in (pause, delay, found["HEAL_REQUESTED"]):
        assert record.filename == Path(__file__).name  # whoever reads the log wants the test's line
        assert record.funcName == "test_the_event_has_its_fields_and_its_node"
        assert source[record.lineno - 1].strip().startswith("three.")


def test_a_fault_of_a_test_with_a_loop_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with kwire.aio.Cluster(2) as cluster, cluster.network.cut(1, 2):
            pass

    with caplog.at_level(logging.INFO, "kwire"):
        asyncio.run(main())
    cut = next(r for r in caplog.records if getattr(r, "event", "") == "CUT_REQUESTED")
    assert (cut.filename, cut.funcName) == (Path(__file__).name, "main")


def test_a_reset_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with kwire.Cluster(brokers=2) as cluster:
        cluster.network.cut(1, 2)
        caplog.clear()  # whatever the level of this run is
        with caplog.at_level(logging.INFO, "kwire"):
            cluster.reset()
    assert requested(caplog) == ["control: reset"]


@pytest.mark.asyncio
async def test_a_fault_by_http_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    from kwire.control.routes import cluster_handler

    async with aio.Cluster(brokers=2) as cluster:
        socket = ControlSocket(lambda: cluster_handler(cluster))
        await socket.open("127.0.0.1", 0)
        with caplog.at_level(logging.INFO, "kwire"):
            await post(f"{socket.url}/v1/network/cuts", {"a": 1, "b": [2]})
            await post(f"{socket.url}/v1/brokers/2/kill", {})
        await socket.close()
    assert requested(caplog) == ["control: cut 1 | 2", "control: kill broker 2"]


@pytest.mark.asyncio
async def test_a_fault_by_http_in_a_container_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    from kwire.control.node_api import NodeControl

    runner = NodeRunner(NodeSpec(node_id=1))
    socket = await serve_nodes(0, NodeControl(lambda: [runner], []))
    url = socket.url.replace("0.0.0.0", "127.0.0.1")
    with caplog.at_level(logging.INFO, "kwire"):
        await post(f"{url}/v1/network/cuts", {"a": 1, "b": 2})
        await post(f"{url}/v1/network/delays", {"a": 1, "b": 2, "milliseconds": 7})
        await post(f"{url}/v1/network/cuts", {}, "DELETE")
    await socket.close()
    assert requested(caplog) == [
        "control: cut 1 | 2",
        "control: delay 1 | 2 by 7 ms",
        "control: heal",
    ]


async def post(url: str, body: dict[str, object], method: str = "POST") -> None:
    import asyncio

    base, path = url.partition("/v1")[::2]
    await asyncio.to_thread(call, base, method, f"/v1{path}", body)


def test_every_fault_that_is_logged_is_tried_here() -> None:
    verbs = {name.rpartition("_")[0] for name in vars(NodeEvent) if name.endswith("_REQUESTED")}
    tried = "KILL STOP START PAUSE RESUME CUT DELAY HEAL ELECTION RESET"
    assert verbs == set(tried.split())
