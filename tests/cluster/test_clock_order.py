"""A day on the clock of a live cluster, and the same day step by step as the simulator lets it pass: the same events in
the same order."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from kwire.protocol import api

sys.path.append(str(Path(__file__).resolve().parents[1] / "advance"))
from advance_rig import HOUR_MS, SETTINGS, Rig

pytestmark = pytest.mark.timeout(120)


class LiveRig(Rig):
    """The rig's requests, to a broker that runs."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._file = self._socket.makefile("rb")

    @property
    def clock(self) -> Any:  # type: ignore[override]
        import time

        class Now:
            wall_ms = time.time_ns() // 1_000_000

        return Now

    def ask(self, version: int, request: Any) -> Any:
        key = api.key_of(request)
        parts = api.encode_request(key, version, 1, "client", request)
        while True:
            self._socket.sendall(b"".join(bytes(part) for part in parts))
            size = int.from_bytes(self._file.read(4), "big")
            found = api.parse_response(key, version, self._file.read(size))[1]
            if getattr(found, "error_code", 0) not in (14, 15, 16, 51):
                return found

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_live_cluster_has_the_simulators_order(isolation: str) -> None:
    rig = Rig().busy()
    began_ms = rig.clock.wall_ms
    ready = len(rig.events)
    rig.pass_step_by_step(24 * HOUR_MS)
    wanted = [(name, at_ms - began_ms) for name, at_ms in rig.events[ready:]]

    config = {name: value for name, value in SETTINGS.items() if name != "node.id"}
    with Cluster(1, config, isolation=isolation) as cluster:
        live = LiveRig(cluster.broker(1).address)
        live.busy()
        last = max(each.number for each in cluster.events())
        began = cluster.clock.now().timestamp() * 1000
        cluster.clock.advance(hours=24)
        names = {name for name, _ in wanted}
        found = [
            (each.name, each.time_ms - began)
            for each in cluster.events(since=last)
            if each.name in names
        ]
        live.close()
    assert [name for name, _ in found] == [name for name, _ in wanted]
    assert len(wanted) >= 3
    for (name, at_ms), (_, wanted_ms) in zip(found, wanted, strict=True):
        # What is looked for from time to time: at most one look later, or earlier.
        assert abs(at_ms - wanted_ms) < HOUR_MS, name
