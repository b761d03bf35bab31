"""Throttles of reassignments, as kafka-reassign-partitions sets them and removes them in the end (KIP-73)."""

from __future__ import annotations

from typing import Final

from kwire.protocol.api import ApiKey
from kwire.replication.core.metadata import BROKER_RESOURCE, TOPIC_RESOURCE
from kwire.replication.core.types import (
    FOLLOWER_THROTTLE_KEY,
    FOLLOWER_THROTTLED_KEY,
    LEADER_THROTTLE_KEY,
    LEADER_THROTTLED_KEY,
)
from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.faults.nemesis import Nemesis

_KEYS: Final = {
    TOPIC_RESOURCE: (LEADER_THROTTLED_KEY, FOLLOWER_THROTTLED_KEY),
    BROKER_RESOURCE: (LEADER_THROTTLE_KEY, FOLLOWER_THROTTLE_KEY),
}
_AGAIN_MS: Final = 300


def throttle(nemesis: Nemesis, topic: str) -> None:
    """Throttle a topic's replication, or only that of some of its replicas, at all brokers; for a while."""
    random = nemesis.random
    rate = str(random.choice((0, 100, 1000, 10_000)))
    brokers = nemesis.simulation.broker_ids
    some = ",".join(f"{random.randrange(3)}:{random.choice(brokers)}" for _ in range(4))
    replicas = random.choice(("*", some))
    nemesis.is_throttling = True
    nemesis.simulation.report_fault(f"{topic}: replicas {replicas} are throttled to {rate} bytes/s")
    _alter(nemesis, TOPIC_RESOURCE, topic, replicas)
    _alter(nemesis, BROKER_RESOURCE, "", rate)
    nemesis.simulation.schedule.after(nemesis.outage_us(), lift, nemesis)


def lift(nemesis: Nemesis) -> None:
    """Remove all throttles that the controller has; after the last fault as long as some may arrive."""
    controller = nemesis.simulation.controller
    if controller is not None:
        for (kind, name), values in controller.controller.state.configs.items():
            if not values.keys().isdisjoint(_KEYS.get(kind, ())):
                _alter(nemesis, kind, name, None)
    if not nemesis.active:
        nemesis.simulation.schedule.after(_AGAIN_MS * MS, lift, nemesis)


def _alter(nemesis: Nemesis, kind: int, name: str, value: str | None) -> None:
    from kwire.protocol.schemas.configs import (
        IncrementalAlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResource,
    )

    configs = [
        IncrementalAlterableConfig(name=key, config_operation=int(value is None), value=value)
        for key in _KEYS[kind]
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    nemesis.simulation.administrate(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
