"""The effects of a step, in order: appended by any component, drained by the driver afterwards.

This is the only way out: nothing below the purity line calls the driver. Parts of a reply are buffers written one after
the other (length prefix included); a part may be a view of log data, so the driver writes or copies it before the next
step.
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire.replication.core.clock import Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.events import EventType

Buffer = bytes | bytearray | memoryview


class Reply:
    """Bytes for a connection, whole frames."""

    __slots__ = ("connection", "parts")

    def __init__(self, connection: int, parts: Sequence[Buffer]) -> None:
        self.connection = connection
        self.parts = parts


class Send:
    """A request frame to another node; what comes of it comes back by its `correlation`, once.

    Requests of one (node, channel) share a connection and are answered in order; a request that may be held back by
    its answerer (a follower's fetch) needs a channel of its own.
    """

    __slots__ = ("channel", "correlation", "node", "parts")

    def __init__(self, node: int, channel: str, correlation: int, parts: Sequence[Buffer]) -> None:
        self.node = node
        self.channel = channel
        self.correlation = correlation
        self.parts = parts


class HangUp:
    """Ends the connection to another node's channel, if there is one; what it owed is answered with "lost"."""

    __slots__ = ("channel", "node")

    def __init__(self, node: int, channel: str) -> None:
        self.node = node
        self.channel = channel


class Close:
    """End a connection after what was replied to it before; `reason` goes to the log."""

    __slots__ = ("connection", "reason")

    def __init__(self, connection: int, reason: str) -> None:
        self.connection = connection
        self.reason = reason


class Ready:
    """A request has ended without a response (Produce with acks=0): the connection's next frame may run."""

    __slots__ = ("connection",)

    def __init__(self, connection: int) -> None:
        self.connection = connection


class Log:
    """An event for the log. `time_ms`: Clock.wall_ms when it happened; `fields`: all that the event has."""

    __slots__ = ("event", "fields", "time_ms")

    def __init__(self, event: EventType, fields: dict[str, object], time_ms: int) -> None:
        self.event = event
        self.fields = fields
        self.time_ms = time_ms

    def __repr__(self) -> str:
        return f"Log({self.event}, {self.fields})"

    @property
    def text(self) -> str:
        """The event in a sentence."""
        return self.event.text(self.fields)


Effect = Reply | Send | HangUp | Close | Ready | Log


class Outbox:
    """The effects of one step, in order."""

    __slots__ = ("_clock", "effects")

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock`: stamps events; they have the time 0 without."""
        self.effects: list[Effect] = []
        self._clock = clock or Clock()

    def reply(self, connection: int, parts: Sequence[Buffer]) -> None:
        self.effects.append(Reply(connection, parts))

    def ready(self, connection: int) -> None:
        self.effects.append(Ready(connection))

    def send(self, node: int, channel: str, correlation: int, parts: Sequence[Buffer]) -> None:
        self.effects.append(Send(node, channel, correlation, parts))

    def unsend(self, node: int, channel: str) -> None:
        """Takes back what this step was to send there."""
        self.effects = [
            effect
            for effect in self.effects
            if not (type(effect) is Send and effect.node == node and effect.channel == channel)
        ]

    def hang_up(self, node: int, channel: str) -> None:
        self.effects.append(HangUp(node, channel))

    def close(self, connection: int, reason: str) -> None:
        self.effects.append(Close(connection, reason))

    def log(self, event: EventType, /, **fields: object) -> None:
        """Something has happened that people or programs may want to know (`LogEvent`)."""
        self.effects.append(Log(event, fields, self._clock.wall_ms))

    def drain(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects


class Hold:
    """A place in a `HoldingOutbox`: what stands behind it waits for `HoldingOutbox.release`."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


_DRAINED = 100
"""Effects that leave at once: one flush may end the waiting of a hundred steps, with thousands."""


class HoldingOutbox(Outbox):
    """An outbox of a controller: effects wait until what they follow from is on the disk.

    Effects keep their order, so those of later steps wait behind a hold, too: they may follow from
    the same records."""

    __slots__ = ("_left",)

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._left = 0  # how many effects the last `drain` has left: this step's follow

    def _entries(self) -> list[Effect | Hold]:
        return self.effects  # type: ignore[return-value]  # holds never leave `drain`

    def hold(self) -> Hold:
        """Hold all effects of this step, and later ones."""
        hold = Hold()
        self._entries().insert(self._left, hold)
        return hold

    def release(self, hold: Hold) -> None:
        """Let the effects behind a hold leave, up to the next one that is not over."""
        hold.is_over = True

    def release_all(self) -> None:
        for each in self._entries():
            if type(each) is Hold:
                self.release(each)

    def drop_replies(self) -> list[int]:
        """Drop the replies that are held, and return their connections: they cannot be kept."""
        dropped = [effect for effect in self.effects if type(effect) is Reply]
        self.effects = [e for e in self._entries() if not isinstance(e, Reply | Hold)]
        self._left = 0
        return [reply.connection for reply in dropped]

    def unsend(self, node: int, channel: str) -> None:
        before = self.effects[: self._left]
        super().unsend(node, channel)
        kept = set(map(id, self.effects))
        self._left = sum(id(effect) in kept for effect in before)

    @property
    def has_more(self) -> bool:
        """Whether the next `drain` has effects that the last one could have had."""
        first = self._entries()[0] if self.effects else None
        return isinstance(first, Hold) and first.is_over

    def drain(self) -> list[Effect]:
        """The effects that may leave; those of some steps only, if there are many (`has_more`)."""
        free: list[Effect] = []
        taken = 0
        for each in self._entries():
            if isinstance(each, Hold):
                if not each.is_over or len(free) >= _DRAINED:
                    break
            else:
                free.append(each)
            taken += 1
        self.effects = self.effects[taken:]
        self._left = len(self.effects)
        return free
