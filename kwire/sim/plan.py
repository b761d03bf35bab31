"""The meaning of a seed: the cluster's shape, configuration, network behaviour and faults.

Swarm testing: a seed draws not only when faults happen but also which kinds and how often, so that
a thousand seeds are a thousand different kinds of bad days.
"""

from __future__ import annotations

from random import Random

from kwire.sim.compaction import PREFIX
from kwire.sim.network import Weather
from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FAULTS = (
    "kill",
    "power_cut",
    "clean_stop",
    "pause",
    "cut",
    "one_way",
    "isolate",
    "slow",
    "reset",
    "controller",
    "controller_pause",
    "controller_power_cut",
    "disk",
    "controller_disk",
    "replay",
    "reassign",
    "elect",
    "delete_records",
    "create_topic",
    "delete_topic",
    "configure",
)
"""Closed: a seed's draws depend on the order. Append a new kind to `LATER_FAULTS`."""
LATER_FAULTS: tuple[str, ...] = (
    "create_partitions",
    "unclean_flag",
    "clock_jump",
    "log_dir_move",
    "bit_rot",
    "stranger",
)
"""Each kind draws from its own source, so that older seeds keep their meaning."""
LEADER_CHANGES = ("kill", "power_cut", "clean_stop", "pause", "isolate", "disk", "reassign")

WITHOUT_LAG = ("elect", "replay", "delete_records", "create_topic", "configure", "stranger")
"""Faults after which no replica is behind for long."""


class TopicPlan:
    """A topic to create."""

    __slots__ = ("configs", "name", "partitions", "replication_factor")

    def __init__(
        self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        self.name = name
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.configs = configs

    def __repr__(self) -> str:
        what = self.name, self.partitions, self.replication_factor, self.configs
        return f"TopicPlan{what!r}"


class ClientPlan:
    """A client: its kind in `clients/kinds.py`, and the options of that."""

    __slots__ = ("kind", "options")

    def __init__(self, kind: str, **options: int | str) -> None:
        self.kind = kind
        self.options = options

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"ClientPlan({self.kind!r}{options})"


class Plan:
    """A run's parameters, drawn from its seed. `weights`: relative frequency per fault; 0: never."""

    def __init__(
        self,
        seed: int,
        *,
        without: frozenset[str] = frozenset(),
        config: Mapping[str, str] | None = None,
    ) -> None:
        """`without`: kinds of faults to leave out. `config`: keys of every node, over the seed's."""
        random = Random(f"{seed}/plan")
        self.seed = seed
        self.brokers = random.choice((2, 3, 3, 4, 4))
        self.controllers = random.choice((1, 1, 2))
        self.log_dirs = random.choice((1, 1, 2))
        self.unclean = random.random() < 0.2
        self.topics = [
            self.topic(random, f"topic-{number}") for number in range(random.choice((1, 1, 2)))
        ]
        cleaner = Random(f"{seed}/cleaner")  # its own, so that older seeds keep their meaning
        if cleaner.random() < 0.3:
            self.topics[-1] = self._compacted(cleaner)
        self.weather = _weather(random)
        self.weights = self._weights(random, without)
        self.fault_pause_ms = random.choice((50, 150, 500))
        self.outage_ms = random.choice((50, 300, 1500))
        self.clients = [
            ClientPlan(
                "producer",
                acks=random.choice((-1, -1, -1, 1)),
                idempotent=random.random() < 0.7,
            )
            for _ in range(random.choice((1, 2)))
        ]
        self.work_pause_ms = random.choice((5, 20, 60))
        self.skew_ms = random.choice((0, 0, 5, 400))
        self.config = {**_config(random), **_switches(seed), **(config or {})}
        self.racks = 0
        self._add_clients(Random(f"{seed}/kinds of clients"))
        self._add_retention(Random(f"{seed}/retention"))
        self._add_transactions(seed)
        self.skipped_faults: set[int] = set()  # by their number in the run; see shrink.py

    def _weights(self, random: Random, without: frozenset[str]) -> dict[str, int]:
        weights = {
            fault: (random.choice((1, 3, 10)) if random.random() < 0.5 else 0) for fault in FAULTS
        }
        for fault in LATER_FAULTS:
            own = Random(f"{self.seed}/{fault}")
            weights[fault] = own.choice((1, 3, 10)) if own.random() < 0.5 else 0
        weights["reassign"] *= 3  # many of them change nothing but an order
        for fault in without:
            weights[fault] = 0
        return weights

    def _add_clients(self, random: Random) -> None:
        """Which producers are wide, which consumers use sessions, and what other clients there are."""
        for client in self.clients:
            if random.random() < 0.3:
                client.options["wide"] = True
        if random.random() < 0.4:
            self.racks = 2
            selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
            self.config["replica.selector.class"] = selector
        for level in (0, 1):
            if random.random() < (0.8 if self.racks else 0.4):
                self.clients.append(self._session_consumer(random, level))
            else:
                self.clients.append(ClientPlan("consumer", isolation_level=level))
        if random.random() < 0.4:
            self.clients.append(ClientPlan("lookups"))
        if random.random() < 0.3:
            self.clients.append(ClientPlan("liar"))
        if random.random() < 0.3:
            self._add_group(random)

    def _add_group(self, random: Random) -> None:
        """A group of two or three, whose offsets are kept on small segments of several replicas."""
        session_ms = random.choice((300, 1000))
        own = Random(f"{self.seed}/members")
        for _ in range(random.choice((2, 2, 3))):
            stable = random.randrange(2)
            member = ClientPlan("member", session_ms=session_ms, stable=stable)
            member.options["static"] = int(own.random() < 0.4)
            member.options["patience"] = own.choice((1, 1, 3))
            self.clients.append(member)
        self._keep_groups(random)

    def _keep_groups(self, random: Random) -> None:
        self.config |= {
            "group.min.session.timeout.ms": "100",
            "offsets.topic.replication.factor": str(min(3, self.brokers)),
            "offsets.topic.segment.bytes": str(random.choice((1000, 10_000))),
        }

    def _add_transactions(self, seed: int) -> None:
        """Clients with transactions, in compacted topics, too, or in a cluster without an epoch for each."""
        self.as_version: str | None = None
        self._add_transactional(Random(f"{seed}/transactional"))
        self._add_transformers(Random(f"{seed}/transformers"))
        random = Random(f"{seed}/transactions")
        clients = [client for client in self.clients if "bumping" in client.options]
        if clients and random.random() < 0.3:
            self.as_version = "3.9"
            for client in clients:
                client.options["bumping"] = 0
        if self.topics[-1].name.startswith(PREFIX) and random.random() < 0.7:
            writers = [client for client in clients if client.kind == "transactional"]
            for client in writers:
                client.options["compacted"] = 1
            if writers and random.random() < 0.4:
                self.remove_markers()

    def remove_markers(self) -> None:
        """Let markers and tombstones of the compacted topic go soon, without faults that leave a replica
        behind for longer: that would never learn of them, in Kafka as here."""
        self.topics[-1].configs["delete.retention.ms"] = "300"
        for fault in self.weights:
            if fault not in WITHOUT_LAG:
                self.weights[fault] = 0
        self.weather.slow_chance = self.weather.reset_chance = 0.0

    def _add_transactional(self, random: Random) -> None:
        """Transactional producers: two with one id, which fence each other, or one, or both."""
        if random.random() >= 0.2:
            return
        options = {"timeout_ms": random.choice((300, 1000, 3000)), "bumping": random.randrange(2)}
        for transactional_id in random.choice((["a"], ["a", "a"], ["a", "b"], ["a", "a", "b"])):
            client = ClientPlan("transactional", transactional_id=transactional_id, **options)
            self.clients.append(client)
        self._keep_transactions(random)

    def _keep_transactions(self, random: Random) -> None:
        self.config |= {
            "transaction.state.log.num.partitions": str(random.choice((1, 2))),
            "transaction.state.log.replication.factor": str(min(3, self.brokers)),
            "transaction.state.log.min.isr": str(random.choice((1, 2))),
            "transaction.state.log.segment.bytes": str(random.choice((1000, 10_000))),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        }

    def _add_transformers(self, random: Random) -> None:
        """Transactions with offsets: of members of a group, or of two that share a transactional id."""
        if random.random() >= 0.15:
            return
        grouped, bumping = random.randrange(2), random.randrange(2)
        timeout_ms = random.choice((300, 1000, 3000))
        for number in range(random.choice((1, 2, 3)) if grouped else 2):
            self.clients.append(
                ClientPlan(
                    "transformer",
                    transactional_id=f"transformer-{number if grouped else 0}",
                    group="transformers",
                    grouped=grouped,
                    session_ms=random.choice((300, 1000)),
                    timeout_ms=timeout_ms,
                    bumping=bumping,
                )
            )
        self._keep_transactions(random)
        self._keep_groups(random)

    def _session_consumer(self, random: Random, isolation_level: int) -> ClientPlan:
        rack = f"rack-{random.randrange(self.racks)}" if self.racks else ""
        return ClientPlan(
            "session_consumer",
            isolation_level=isolation_level,
            min_bytes=random.choice((1, 1, 300)),
            max_bytes=random.choice((100, 1000, 1 << 20)),
            partition_max_bytes=random.choice((50, 300, 1 << 16)),
            rack=rack,
        )

    def _add_retention(self, random: Random) -> None:
        """Retention by size, by time or both, of topics that are not compacted."""
        if random.random() >= 0.35:
            return
        self.config["log.retention.check.interval.ms"] = str(random.choice((100, 500)))
        for topic in self.topics:
            if topic.name.startswith(PREFIX):
                continue
            topic.configs["segment.bytes"] = str(random.choice((200, 600)))
            if random.random() < 0.6:
                topic.configs["retention.bytes"] = str(random.choice((0, 400, 2000)))
            if random.random() < 0.6:
                topic.configs["retention.ms"] = str(random.choice((100, 500, 2000)))

    def rack_of(self, broker_id: int) -> str:
        """The rack of a broker; empty without racks."""
        return f"rack-{broker_id % self.racks}" if self.racks else ""

    def topic(self, random: Random, name: str) -> TopicPlan:
        """Draw a topic that fits this cluster."""
        factor = min(random.choice((2, 2, 3)), self.brokers)
        configs = {"min.insync.replicas": str(random.randint(1, min(2, factor)))}
        if self.unclean:
            configs["unclean.leader.election.enable"] = "true"
        return TopicPlan(name, random.choice((1, 1, 2, 3)), factor, configs)

    def _compacted(self, random: Random) -> TopicPlan:
        plan = self.topic(random, f"{PREFIX}-0")
        plan.configs |= {
            "cleanup.policy": "compact",
            "segment.bytes": str(random.choice((200, 600))),
            "min.cleanable.dirty.ratio": random.choice(("0.01", "0.5")),
        }
        return plan

    def bound_ms(self) -> int:
        """The time after the last fault within which the cluster must converge (I30)."""
        config = self.config
        return (
            3 * int(config["replica.lag.time.max.ms"]) // 2
            + 3 * int(config["replica.fetch.backoff.ms"])
            + 2 * int(config["replica.fetch.wait.max.ms"])
            + 2 * int(config["broker.session.timeout.ms"])
            + 2 * int(config["controller.quorum.fetch.timeout.ms"])
            + 10_000
        )


def _weather(random: Random) -> Weather:
    weather = Weather()
    weather.delay_us = random.choice((50, 200, 1000))
    weather.jitter_us = random.choice((50, 500, 5000))
    weather.slow_chance = random.choice((0.0, 0.0, 0.01, 0.1))
    weather.slow_us = random.choice((10, 50, 300)) * MS
    weather.reset_chance = random.choice((0.0, 0.0, 0.0005, 0.005))
    weather.refused_us = random.choice((1, 20)) * MS
    return weather


def _switches(seed: int) -> dict[str, str]:
    """Eligible leader replicas (KIP-966) in some seeds."""
    if Random(f"{seed}/eligible").random() < 0.15:
        return {"eligible.leader.replicas.enable": "true"}
    return {}


def _config(random: Random) -> dict[str, str]:
    session_ms = random.choice((600, 2000))
    return {
        "replica.lag.time.max.ms": str(random.choice((300, 1000, 3000))),
        "replica.fetch.wait.max.ms": str(random.choice((100, 250))),
        "replica.fetch.backoff.ms": str(random.choice((50, 250))),
        "replica.fetch.max.bytes": str(random.choice((150, 600, 1 << 20))),
        "replica.socket.timeout.ms": str(random.choice((1000, 4000))),
        "replica.high.watermark.checkpoint.interval.ms": str(random.choice((50, 500, 5000))),
        "log.flush.offset.checkpoint.interval.ms": str(random.choice((100, 60_000))),
        "log.cleaner.backoff.ms": "50",
        "log.initial.task.delay.ms": "100",
        "num.replica.fetchers": str(random.choice((1, 1, 2))),
        "broker.heartbeat.interval.ms": str(session_ms // 4),
        "controller.quorum.fetch.timeout.ms": str(random.choice((200, 1000))),
        "broker.session.timeout.ms": str(session_ms),
        "log.segment.bytes": str(random.choice((400, 2000, 1 << 20))),
        "log.flush.interval.messages": str(random.choice((1, 7, 1 << 40))),
        "log.segment.delete.delay.ms": str(random.choice((0, 1000))),
        "file.delete.delay.ms": "1000",
        "controlled.shutdown.retry.backoff.ms": "200",
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
    }
