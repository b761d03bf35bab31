"""The base of simulated clients: cores of their own, stepped like brokers.

They send through the same `Peers` as brokers and know only what brokers respond. `kwire/sim/answers/`
checks the responses when a broker sends them; the clients just behave like real ones: one request in
flight per connection, retries, a metadata refresh after an error.
"""

from __future__ import annotations

from typing import Any

from kwire.core import Core
from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.replication.core.peers import Peers
from kwire.replication.core.types import TopicPartition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.protocol.language.schema import Message
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.outbox import Buffer, Outbox
    from kwire.session import Session
    from kwire.sim.answers.checker import Answers
    from kwire.sim.plan import Plan


class Setting:
    """What a client of any kind is made from. `random`: its own source; `brokers`: their ids."""

    __slots__ = ("answers", "brokers", "clock", "name", "outbox", "plan", "random")

    def __init__(
        self,
        name: str,
        clock: Clock,
        outbox: Outbox,
        random: Random,
        brokers: list[int],
        plan: Plan,
        answers: Answers,
    ) -> None:
        self.name = name
        self.clock = clock
        self.outbox = outbox
        self.random = random
        self.brokers = brokers
        self.plan = plan
        self.answers = answers


class Client(Core):
    """The base of all clients. `sent`: requests without a response yet, by correlation id."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.clock, setting.outbox)
        self.name = setting.name
        self.random = setting.random
        self.brokers = setting.brokers
        self.peers = Peers(setting.outbox, setting.name)
        self.sent: dict[int, tuple[int, int, Message]] = {}
        self.stopping = False
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._asking_metadata = False

    # --- steps

    def connection_opened(self, connection: int, listener_name: str, peer_host: str) -> Session:
        raise AssertionError("nobody connects to a client")

    def connection_closed(self, connection: int) -> None:
        raise AssertionError("nobody connects to a client")

    def receive_frame(self, connection: int, frame: Buffer) -> None:
        raise AssertionError("nobody asks a client")

    def respond(self, correlation: int, frame: Buffer | None) -> str | None:
        reason = self.peers.respond(correlation, frame)
        self.sent.pop(correlation, None)
        return reason

    def channel_lost(self, node: int, channel: str) -> None:
        """Ignored: the next request opens a new connection."""

    def address_of(self, node: int) -> tuple[str, int] | None:
        return f"broker-{node}", 9092

    def tick(self) -> None:
        self.timers.fire(self.clock.now_ms)

    # --- helpers

    def ask(
        self,
        node: int,
        channel: str,
        key: int,
        request: Message,
        on_response: Callable[[Any], None],
        version: int,
    ) -> None:
        """Send a request; `on_response` gets the response, or None if it is lost."""
        correlation = self.peers.send(node, channel, key, version, request, on_response)
        self.sent[correlation] = key, version, request

    def later(self, key: object, delay_ms: int, call: Callable[[], None]) -> None:
        self.timers.schedule(key, self.clock.now_ms + delay_ms, call)

    def refresh(self) -> None:
        """Refresh metadata from a random broker; never go back to an older leader epoch (KIP-320)."""
        if self._asking_metadata:
            return
        self._asking_metadata = True
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        self.ask(
            self.random.choice(self.brokers),
            "metadata",
            ApiKey.METADATA,
            request,
            self._on_metadata,
            12,
        )

    def _on_metadata(self, response: Any) -> None:
        self._asking_metadata = False
        if response is None:
            return
        known: dict[TopicPartition, tuple[int, int]] = {}
        for topic in response.topics:
            if topic.error_code or topic.is_internal:
                continue
            self.on_topic(topic.name, topic.topic_id)
            for partition in topic.partitions:
                key = topic.name, partition.partition_index
                epoch = partition.leader_epoch
                old = self.leaders.get(key)
                known[key] = (
                    old
                    if old is not None and epoch < old[1]
                    else (
                        partition.leader_id,
                        epoch,
                    )
                )
        self.leaders = known

    def on_topic(self, topic: str, topic_id: bytes) -> None:
        """Handle a topic in a metadata response; a new id means that it was created again."""

    @property
    def idle(self) -> bool:
        """Whether the client is stopping and has no request in flight."""
        return self.stopping and not self.sent
