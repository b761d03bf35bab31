"""Rules of faults: which requests one is about, what it does to them, how often. No I/O and no clock.

A rule is given as keys and values, alike in Python, in JSON and on the command line (`FIELDS`), and checked as a whole:
one that could never hit a request is refused with the reason. The same rule with the same seed hits the same requests
of a sequence. Rules are counted at each node by itself.
"""

from __future__ import annotations

from collections import deque
from random import Random

from kwire.apis.parts.shapes import has_results, kinds_of
from kwire.faults import codes
from kwire.names import did_you_mean
from kwire.protocol.api import ApiKey, request_class, response_class
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kwire.apis.parts.shapes import Part

SELECTORS = (
    *("api", "version", "broker", "client_id", "topic", "partition", "group", "transactional_id"),
    *("listener", "user"),
)
"""What a request has to have; what is not given is any."""
ACTS = ("error", "delay", "drop", "throttle", "corrupt", "close")
"""What is done to it: one of these."""
FIELDS = (*SELECTORS, *ACTS, "times", "probability", "seed", "force")
_IN_REQUESTS = ("topic", "partition", "group", "transactional_id")
_NUMBERS = ("version", "broker", "partition")
_TEXTS = ("client_id", "topic", "group", "transactional_id", "listener", "user")
_KEPT = 100
"""Requests that were hit, of which each node keeps what they were."""
_MAX_MS = 24 * 60 * 60 * 1000


class Hit:
    """A request that was hit. `what`: in words."""

    __slots__ = ("at_ms", "client_id", "key", "version", "what")

    def __init__(self, at_ms: int, client_id: str, key: int, version: int, what: str) -> None:
        self.at_ms = at_ms
        self.client_id = client_id
        self.key = key
        self.version = version
        self.what = what


class Rule:
    """A fault that was set at one node, with what it has hit there."""

    __slots__ = (
        *("_random", "act", "code", "given", "hits", "id", "is_of_parts", "key", "kept", "value"),
        *SELECTORS,
        *("probability", "times"),
    )

    api: str | None
    version: int | None
    broker: int | None
    client_id: str | None
    topic: str | None
    partition: int | None
    group: str | None
    transactional_id: str | None
    listener: str | None
    user: str | None
    spares_nodes = True
    """Whether what nodes and kwire's own administration ask is only hit if that is named."""

    def __init__(self, rule_id: str, given: Mapping[str, Any]) -> None:
        """ValueError, in one line, if it is none or would never hit."""
        self.id = rule_id
        self.given = checked(given)
        for name in SELECTORS:
            setattr(self, name, self.given.get(name))
        self.key = None if self.api is None else _key_of(self.api)
        self.act = next(act for act in ACTS if act in self.given)
        self.value: Any = self.given[self.act]
        self.code = _code_of(self.value) if self.act == "error" else ErrorCode.NONE
        self.is_of_parts = self._is_of_parts()
        self.times: int | None = self.given.get("times")
        self.probability: float = self.given.get("probability", 1)
        self._random = Random(self.given.get("seed", 0))
        self.hits = 0
        self.kept: deque[Hit] = deque(maxlen=_KEPT)

    def _is_of_parts(self) -> bool:
        """Whether an error is one of parts of the answer, not of the answer itself."""
        if self.key is None or not has_results(self.key):
            return self.key == ApiKey.ALTER_REPLICA_LOG_DIRS
        return self.code.name in codes.of_parts(self.key) or (
            self.code.name not in codes.of_whole(self.key)
        )

    @property
    def selects_parts(self) -> bool:
        """Whether it is about some of what a request names, not the whole of it."""
        return any(getattr(self, name) is not None for name in _IN_REQUESTS)

    def allows(self, part: Part) -> bool:
        """Whether it is about this part of a request."""
        return (
            self.topic in (None, part.topic)
            and self.partition in (None, part.partition)
            and self.group in (None, part.group)
            and self.transactional_id in (None, part.transactional_id)
        )

    def happens(self) -> bool:
        """Whether it hits one more of the requests that it is about; each has its own draw."""
        if self.times is not None and self.hits >= self.times:
            return False
        if self.probability < 1 and self._random.random() >= self.probability:
            return False
        self.hits += 1
        return True

    @property
    def text(self) -> str:
        """What it does, for people."""
        return act_text(self.act, self.value)


def act_text(act: str, value: object) -> str:
    """What a fault does, for people: "NOT_ENOUGH_REPLICAS", "delayed by 20 ms"."""
    return {
        "error": str(value),
        "delay": f"delayed by {value} ms",
        "drop": "never handled" if value == "before" else "handled, never answered",
        "throttle": f"throttled for {value} ms",
        "corrupt": "corrupt records",
        "close": "connection closed",
    }[act]


def text_of(given: Mapping[str, Any]) -> str:
    """A rule in one line, for people: "Produce topic=orders: NOT_ENOUGH_REPLICAS, 3 times"."""
    about = [f"{name}={given[name]}" for name in SELECTORS[1:] if name in given]
    act = next(act for act in ACTS if act in given)
    limits = []
    if "times" in given:
        limits.append(f"{given['times']} time{'s' * (given['times'] != 1)}")
    if "probability" in given:
        limits.append(f"probability {given['probability']:g}")
    name = " ".join([given.get("api", "any API"), *about])
    return ", ".join([f"{name}: {act_text(act, given[act])}", *limits])


# --- checks


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys and values of a rule, names as Kafka writes them. ValueError."""
    for name in given:
        if name not in FIELDS:
            raise ValueError(f"there is no {name!r} in a fault{did_you_mean(str(name), FIELDS)}")
    found = {name: given[name] for name in FIELDS if given.get(name) is not None}
    for flag in ("corrupt", "close", "force"):
        if flag in found and not isinstance(found[flag], bool):
            raise ValueError(f"{flag}: expected True, not {found[flag]!r}")
        if found.get(flag) is False:
            del found[flag]
    _check_selectors(found)
    _check_act(found)
    _check_limits(found)
    return found


def _key_of(api: object) -> ApiKey:
    known = [key.api_name for key in ApiKey]
    if isinstance(api, str):
        for key in ApiKey:
            if key.api_name.lower() == api.lower():
                return key
    raise ValueError(f"api: there is no API {str(api)[:100]}{did_you_mean(str(api), known)}")


def _check_selectors(found: dict[str, Any]) -> None:
    for name in _NUMBERS:
        if name in found and (not _is_int(found[name]) or found[name] < 0):
            raise ValueError(f"{name}: expected a number of 0 or more, not {found[name]!r}")
    for name in _TEXTS:
        if name in found and not isinstance(found[name], str):
            raise ValueError(f"{name}: expected a text, not {found[name]!r}")
    if "api" not in found:
        if "version" in found:
            raise ValueError("version: of which API? give api, too")
        return
    key = _key_of(found["api"])
    found["api"] = key.api_name
    kinds = kinds_of(key)
    for name in _IN_REQUESTS:
        if name in found and name not in kinds:
            raise ValueError(
                f"{name}: a {key.api_name} request names no {name}: it would never hit"
            )
    if "version" in found:
        _check_version(key, found["version"])


def _check_version(key: ApiKey, version: int) -> None:
    from kwire.apis import BY_KEY
    from kwire.apis.controller_plane import BY_KEY as OF_CONTROLLERS

    rows = [table[key] for table in (BY_KEY, OF_CONTROLLERS) if key in table]
    if rows and not any(row.min_version <= version <= row.max_version for row in rows):
        lowest = min(row.min_version for row in rows)
        highest = max(row.max_version for row in rows)
        raise ValueError(
            f"version: {key.api_name} is served from {lowest} to {highest}:"
            f" {version} would never hit"
        )


def _check_act(found: dict[str, Any]) -> None:
    acts = [act for act in ACTS if act in found]
    if len(acts) != 1:
        given = " and ".join(acts) or "none"
        raise ValueError(f"expected one of {', '.join(ACTS)}, not {given}")
    act = acts[0]
    value = found[act]
    key = _key_of(found["api"]) if "api" in found else None
    if act == "error":
        _check_error(found, key)
    elif act == "drop" and value not in ("before", "after"):
        raise ValueError(f"drop: expected 'before' or 'after', not {value!r}")
    elif act in ("delay", "throttle"):
        if not _is_number(value) or not 0 < value <= _MAX_MS:
            raise ValueError(f"{act}: expected milliseconds, up to {_MAX_MS}, not {value!r}")
        found[act] = max(1, round(value))
        has_time = key is None or "throttle_time_ms" in response_class(key).fields
        if act == "throttle" and key is not None and not has_time:
            raise ValueError(f"throttle: a {key.api_name} answer has no throttle time")
    elif act == "corrupt" and key is not ApiKey.FETCH:
        raise ValueError("corrupt: only the answers of Fetch have records: give api='Fetch'")
    if "force" in found and act != "error":
        raise ValueError("force: only errors can be forced")


def _check_error(found: dict[str, Any], key: ApiKey | None) -> None:
    if key is None:
        raise ValueError("error: of which API? give api, too")
    code = _code_of(found["error"])
    found["error"] = code.name
    selects = [name for name in _IN_REQUESTS if name in found and name not in _of_whole(key)]
    if selects and not has_results(key):
        raise ValueError(
            f"error: a {key.api_name} answer has one error for all: leave {selects[0]} out"
        )
    if found.get("force"):
        return
    whole, parts = codes.of_whole(key), codes.of_parts(key)
    allowed = parts if selects else [*parts, *whole]
    if code.name in allowed:
        return
    if selects and code.name in whole:
        raise ValueError(
            f"error: {code.name} is of a whole {key.api_name} answer: leave {selects[0]} out"
        )
    if not allowed:
        raise ValueError(
            f"error: kwire does not know the errors of {key.api_name}: force it (force=True)"
        )
    likely = did_you_mean(code.name, allowed, 0.7)
    raise ValueError(
        f"error: Kafka answers no {key.api_name} with {code.name}{likely or ''}: it gives"
        f" {', '.join(allowed)}; force=True gives any"
    )


def _of_whole(key: ApiKey) -> frozenset[str]:
    """Selectors that a request has one value of, so that it is hit as a whole."""
    fields = request_class(key).fields
    found = {"group"} if "group_id" in fields else set()
    if "transactional_id" in fields:
        found.add("transactional_id")
    return frozenset(found)


def _code_of(value: object) -> ErrorCode:
    try:
        if _is_int(value):
            code = ErrorCode(int(str(value)))
        elif isinstance(value, str):
            text = value.strip().upper()
            code = ErrorCode(int(text)) if text.lstrip("-").isdigit() else ErrorCode[text]
        else:
            raise ValueError
    except (ValueError, KeyError):
        meant = did_you_mean(str(value), [each.name for each in ErrorCode])
        raise ValueError(f"error: Kafka has no error {str(value)[:100]}{meant}") from None
    if code is ErrorCode.NONE:
        raise ValueError("error: NONE is no error")
    return code


def _check_limits(found: dict[str, Any]) -> None:
    if "times" in found and (not _is_int(found["times"]) or found["times"] < 1):
        raise ValueError(f"times: expected 1 or more, not {found['times']!r}: it would never hit")
    if "probability" in found:
        value = found["probability"]
        if not _is_number(value) or not 0 < value <= 1:
            raise ValueError(f"probability: expected more than 0, up to 1, not {value!r}")
    if "seed" in found:
        if not _is_int(found["seed"]):
            raise ValueError(f"seed: expected a whole number, not {found['seed']!r}")
        if "probability" not in found:
            raise ValueError("seed: without probability nothing is left to chance")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_int(value) or isinstance(value, float)
