"""Client quotas: whom one is for, which one holds for a client, and how far it is used up.

Answers to kafka.server.ClientQuotaManager (with its DefaultQuotaCallback) and ClientRequestQuotaManager, one `Quota`
for each. An entity is what quotas are set for: a user, a client id, both, or an ip. In the controller's journal and
on its way to the brokers it is a resource of `QUOTA_RESOURCE`, whose name is the text of `entity_text`.
"""

from __future__ import annotations

from kwire.replication.core.rates import WindowedRate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Entity = Mapping[str, str | None]
    """Type → name, None: the default of the type"""
    Client = tuple[str, str]
    """User and client id of a request"""
    Key = tuple[str, str]
    """User and client id whose requests are counted together; "": it does not matter"""

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_WHOEVER = ""
_ESCAPED = {"%": "%25", "&": "%26", "=": "%3D"}
_CLIENT_IDS, _USERS, _BOTH = 1, 2, 4
_RATES_KEPT = 1000


def entity_text(entity: Entity) -> str:
    """The text of an entity: "client-id=app&user" is the client id app of the default user."""
    return "&".join(
        kind if entity[kind] is None else f"{kind}={_escaped(entity[kind] or '')}"
        for kind in sorted(entity)
    )


def entity_of(text: str) -> dict[str, str | None]:
    """The entity of a text."""
    found: dict[str, str | None] = {}
    for part in text.split("&"):
        kind, is_named, name = part.partition("=")
        for plain, escaped in reversed(_ESCAPED.items()):
            name = name.replace(escaped, plain)
        found[kind] = name if is_named else None
    return found


def _escaped(name: str) -> str:
    for plain, escaped in _ESCAPED.items():
        name = name.replace(plain, escaped)
    return name


class Limits:
    """The values of one quota, by entity, and Kafka's precedence among them."""

    __slots__ = ("_levels", "_values")

    def __init__(self) -> None:
        self._values: dict[tuple[str | None, str | None], float] = {}  # None: the default
        self._levels = 0

    @property
    def were_set(self) -> bool:
        """Whether there ever was a value: as in Kafka, clients are counted from then on."""
        return self._levels != 0

    def set(self, entity: Entity, value: float | None) -> None:
        """Set or remove (None) the value of an entity without ip."""
        self._levels |= _BOTH if len(entity) == 2 else _USERS if USER in entity else _CLIENT_IDS
        key = entity.get(USER, _WHOEVER), entity.get(CLIENT_ID, _WHOEVER)
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def key_of(self, user: str, client_id: str) -> Key:
        """Whose requests are counted together with this one's: of the most specific value that there is."""
        if self._levels in (0, _CLIENT_IDS):
            return _WHOEVER, client_id
        if self._levels == _USERS:
            return user, _WHOEVER
        if self._levels == _BOTH:
            return user, client_id
        values = self._values
        if (user, client_id) in values or (user, None) in values:
            return user, client_id
        if (user, _WHOEVER) in values:
            return user, _WHOEVER
        if (None, client_id) in values or (None, None) in values:
            return user, client_id
        if (None, _WHOEVER) in values:
            return user, _WHOEVER
        return _WHOEVER, client_id

    def bound(self, key: Key) -> float | None:
        """The value that holds for a key of `key_of`; None: none."""
        user, client_id = key
        looked_up: tuple[tuple[str | None, str | None], ...]
        if user and client_id:
            looked_up = ((user, client_id), (user, None), (None, client_id), (None, None))
        elif user:
            looked_up = ((user, _WHOEVER), (None, _WHOEVER))
        elif client_id:
            looked_up = ((_WHOEVER, client_id), (_WHOEVER, None))
        else:
            return None
        return next((self._values[each] for each in looked_up if each in self._values), None)


class Quota:
    """A quota of rates: values and what clients have used. `most_ms`: the longest throttle time; None: no limit."""

    __slots__ = ("_most_ms", "_rates", "_samples", "_window_ms", "limits")

    def __init__(self, samples: int, window_ms: int, most_ms: int | None = None) -> None:
        self.limits = Limits()
        self._samples = samples
        self._window_ms = window_ms
        self._most_ms = most_ms
        self._rates: dict[Key, tuple[WindowedRate, list[int]]] = {}

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record an amount, and return how long the client is to be throttled, in milliseconds."""
        key = self.limits.key_of(user, client_id)
        rate = self._rate(key, now_ms)
        rate.record(amount, now_ms)
        bound = self.limits.bound(key)
        if bound is None:
            return 0
        throttle_ms = rate.throttle_ms(bound, now_ms)
        return throttle_ms if self._most_ms is None else min(throttle_ms, self._most_ms)

    def add(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """Record an amount that delays only later requests, or take one back (negative)."""
        self._rate(self.limits.key_of(user, client_id), now_ms).record(amount, now_ms)

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """The largest amount that an idle client may use without being throttled; None: no limit."""
        bound = self.limits.bound(self.limits.key_of(user, client_id))
        return None if bound is None else bound * (self._samples - 1) * self._window_ms / 1000

    def _rate(self, key: Key, now_ms: int) -> WindowedRate:
        found = self._rates.get(key)
        if found is None:
            if len(self._rates) >= _RATES_KEPT:
                # What is older than all windows is as good as new.
                old_ms = now_ms - 2 * self._samples * self._window_ms
                self._rates = {k: each for k, each in self._rates.items() if each[1][0] > old_ms}
            found = self._rates[key] = WindowedRate(self._samples, self._window_ms), [now_ms]
        found[1][0] = now_ms
        return found[0]
