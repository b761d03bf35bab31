"""Reserved ports: not used twice, and kept from others while they are reserved."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kwire import Cluster
from kwire.server import ports
from kwire.server.ports import ReservedPorts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports are reserved on Linux only")


@pytest.fixture(autouse=True)
def no_ports_kept() -> Iterator[None]:
    before, ports._kept = ports._kept, None
    yield
    ports.release_all()
    ports._kept = before


def port_of(cluster: Cluster) -> int:
    return int(cluster.bootstrap_servers.rpartition(":")[2])


def listen(port: int) -> None:
    """Bind as another server would: OSError if the port is taken."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_server_can_listen_at_a_reserved_port_and_nobody_else() -> None:
    reserved = ReservedPorts(2)
    first, second = reserved.numbers
    assert 0 < first != second > 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first))
    for _ in range(2):  # as a broker that is restarted, with a client's connection open
        with socket.create_server(("127.0.0.1", first)) as server:
            client = socket.create_connection(("127.0.0.1", first))
            accepted, _ = server.accept()
        with pytest.raises(OSError):
            listen(first)
        accepted.close()
        client.close()
    reserved.release()


def test_a_port_is_not_used_twice_in_a_process() -> None:
    seen: set[int] = set()
    for _ in range(1000):
        reserved = ReservedPorts(3)
        assert seen.isdisjoint(reserved.numbers)
        seen.update(reserved.numbers)
        reserved.release()
    assert len(ports._used) <= ports._USED_AT_MOST


def test_the_oldest_ports_can_be_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_used", {})
    monkeypatch.setattr(ports, "_USED_AT_MOST", 3)
    numbers = []
    for _ in range(5):
        reserved = ReservedPorts(1)
        numbers += reserved.numbers
        reserved.release()
    assert list(ports._used) == numbers[-3:]


def test_released_ports_are_free_unless_they_are_to_be_kept() -> None:
    with Cluster() as cluster:
        port = port_of(cluster)
    listen(port)
    before = descriptors()

    ports.keep_reserved()
    with Cluster() as cluster:
        port = port_of(cluster)
    with pytest.raises(OSError):
        listen(port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    ports.release_all()
    listen(port)
    assert descriptors() == before


def test_only_so_many_ports_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "KEPT_AT_MOST", 2)
    ports.keep_reserved()
    before = descriptors()
    numbers = []
    for _ in range(4):
        reserved = ReservedPorts(1)
        numbers += reserved.numbers
        reserved.release()
    assert descriptors() == before + 2
    listen(numbers[0])
    with pytest.raises(OSError):
        listen(numbers[-1])


def test_a_killed_brokers_port_is_nobody_elses() -> None:
    with Cluster(2) as cluster:
        port = int(cluster.bootstrap_servers.split(",")[1].rpartition(":")[2])
        cluster.broker(2).kill()
        with pytest.raises(OSError):
            listen(port)
        cluster.broker(2).start()


def test_ports_that_are_given_are_not_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_used", {})
    with Cluster(config={"listeners": "PLAINTEXT://127.0.0.1:0"}) as cluster:
        assert port_of(cluster) and not ports._used


def test_without_descriptors_the_kernel_chooses() -> None:
    code = """
import resource, os
from kwire.server.ports import ReservedPorts
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), 100))
print(ReservedPorts(1000).numbers == [0] * 1000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_elsewhere_the_kernel_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_CAN_SHARE_PORTS", False)
    assert ReservedPorts(2).numbers == [0, 0]
    with Cluster(2) as cluster:
        assert cluster.bootstrap_servers
