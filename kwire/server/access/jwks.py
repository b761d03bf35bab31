"""The keys of signed tokens: read from a file once, or fetched from a URL, and again from time to time.

Answers to org.apache.kafka.common.security.oauthbearer.internals.secured.{JwksFileVerificationKeyResolver,
RefreshingHttpsJwks,Retry}. Every read is on a thread of its own, which nobody waits for but a start: without keys a
node does not start, as with Kafka; later those from before stay. A token that names an unknown key is refused, and the
keys are fetched again for those who come after it: at most once a minute for each name.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress

from kwire.security.signed_tokens import Keys, parse_keys
from kwire.server.errors import SettingsError
from kwire.server.events import NodeEvent
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.clock import Clock, Timers
    from kwire.security.oauth_settings import SignedSettings

_log = logging.getLogger(__name__)
_TIMEOUT_S = 20
_MAX_BYTES = 512 * 1024
_MISSING_MS = 60_000
_MISSING_NAMES = 16
_MAX_NAME = 1000


class Jwks(Keys):
    """The keys of one listener of a node."""

    def __init__(
        self, settings: SignedSettings, listener: str, node_id: int, timers: Timers, clock: Clock
    ) -> None:
        super().__init__()
        self._settings = settings
        self._key = "jwks", listener
        self._node_id = node_id
        self._timers = timers
        self._clock = clock
        self._is_file = settings.url.lower().startswith("file:")
        self._asked: dict[str, int] = {}
        """When an unknown key may be looked for again (ms of the clock), by its name."""
        self._fetching: threading.Thread | None = None

    async def load(self) -> None:
        """Read the keys for the first time. SettingsError."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Exception | None] = loop.create_future()

        def read() -> None:
            error = self._read()
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, done, error)

        threading.Thread(target=read, name="kwire-jwks", daemon=True).start()
        error = await done
        if error is not None:
            key, url = self._settings.url_key, _shown(self._settings.url)
            raise SettingsError(f"{key}={url}: the keys cannot be read: {_reason(error)}")
        self._refresh_later()

    def _read(self) -> Exception | None:
        try:
            self.known = parse_keys(_contents(self._settings.url, is_file=self._is_file))
        except (OSError, ValueError) as error:
            return error
        return None

    # --- again

    def _refresh_later(self) -> None:
        if not self._is_file:
            at = self._clock.now_ms + self._settings.refresh_ms
            self._timers.schedule_real(self._key, at, self._refresh)

    def _refresh(self) -> None:
        self._refresh_later()
        self._fetch()

    def _fetch(self) -> None:
        if self._fetching is None or not self._fetching.is_alive():
            self._fetching = threading.Thread(target=self._try, name="kwire-jwks", daemon=True)
            self._fetching.start()

    def _try(self) -> None:
        """Fetch the keys; where that fails, again after pauses that double, until their longest time is over."""
        settings = self._settings
        end = time.monotonic() + settings.backoff_max_ms / 1000
        pause = settings.backoff_ms / 1000
        error = self._read()
        while error is not None and (wait := min(pause, end - time.monotonic())) > 0:
            time.sleep(wait)  # on this thread alone
            pause *= 2
            error = self._read()
        if error is not None:
            url, detail = _shown(settings.url), _reason(error)
            event(
                _log,
                NodeEvent.TOKEN_KEYS_NOT_READ,
                None,
                f"broker {self._node_id}",
                url=url,
                detail=detail,
                node_id=self._node_id,
            )

    def missed(self, key_id: str | None, now_ms: int) -> None:
        if self._is_file or key_id is None or len(key_id) > _MAX_NAME:
            return
        if now_ms < self._asked.get(key_id, now_ms):
            return
        self._asked.pop(key_id, None)
        if len(self._asked) >= _MISSING_NAMES:
            del self._asked[next(iter(self._asked))]
        self._asked[key_id] = now_ms + _MISSING_MS
        self._fetch()


def _settle(done: asyncio.Future[Exception | None], error: Exception | None) -> None:
    if not done.cancelled():
        done.set_result(error)


def _contents(url: str, *, is_file: bool) -> bytes:
    """What is at a URL. OSError, ValueError."""
    from urllib.request import ProxyHandler, build_opener, url2pathname

    if is_file:
        from urllib.parse import urlsplit

        with open(url2pathname(urlsplit(url).path), "rb") as file:
            return file.read()
    from http.client import HTTPException

    opener = build_opener(ProxyHandler({}))  # as Java's, which reads no http_proxy
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as answer:
            data: bytes = answer.read(_MAX_BYTES + 1)
    except HTTPException as error:
        raise OSError(str(error) or type(error).__name__) from None
    if len(data) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES} bytes")
    return data


def _shown(url: str) -> str:
    """A URL without what may be secret in it."""
    from urllib.parse import urlsplit, urlunsplit

    scheme, place, path, _, _ = urlsplit(url)
    return urlunsplit((scheme, place.rpartition("@")[2], path, "", ""))


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
