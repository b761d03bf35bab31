"""What stands for `Outbox.log` in tests of single components."""

from __future__ import annotations

from kwire.replication.core.events import EventType
from kwire.replication.core.outbox import Log


class Recorder:
    """Keeps the events it is called with; each has to have exactly the fields of its definition."""

    def __init__(self) -> None:
        self.logged: list[Log] = []

    def __call__(self, event: EventType, /, **fields: object) -> None:
        self.add(Log(event, fields, 0))

    def add(self, effect: Log) -> None:
        """An event that an Outbox had."""
        assert set(effect.fields) == set(effect.event.fields), effect
        assert effect.text
        self.logged.append(effect)

    @property
    def events(self) -> list[EventType]:
        return [each.event for each in self.logged]

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.logged]

    @property
    def last(self) -> Log:
        return self.logged[-1]

    def of(self, event: EventType) -> list[dict[str, object]]:
        """The fields of all events of a kind."""
        return [each.fields for each in self.logged if each.event is event]

    def clear(self) -> None:
        self.logged.clear()
