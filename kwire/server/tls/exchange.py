"""Key stores and trust stores that are exchanged while a broker runs: new connections use the new ones, others go on.

Answers to kafka.server.DynamicBrokerConfig and to reconfiguration in org.apache.kafka.common.security.ssl.SslFactory:
stores are read before a change of their keys is taken; the certificate keeps its subject and its names, and brokers can
still connect to each other; a file that has changed is read again when any key of the broker's own is set.
"""

from __future__ import annotations

import logging
import os
from ssl import MemoryBIO, SSLError, SSLWantReadError

from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.core.types import STORE_KEYS
from kwire.security.settings import listener_key
from kwire.security.tls_stream import TlsError, TlsStream, reason_of
from kwire.server.events import NodeEvent
from kwire.server.logs import event
from kwire.server.tls.context import ServerContext, client_context, server_context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from ssl import SSLContext

    from kwire.server.listeners import Listener

_log = logging.getLogger(__name__)
_TRUST = ("ssl.truststore.location", "ssl.truststore.certificates")
_FILES = ("ssl.keystore.location", "ssl.truststore.location")
_Texts = tuple[str | None, ...]
_Stamps = tuple[tuple[int, int, int] | None, ...]


class StoresInUse:
    """The stores of a node's listeners with TLS."""

    def __init__(
        self,
        config: BrokerConfig,
        listeners: Iterable[Listener],
        between: str,
        on_exchange: Callable[[str], None],
    ) -> None:
        """`between`: the name of the listener for other brokers. `on_exchange`: called with a listener's name."""
        self._config = config
        self._listeners = [each for each in listeners if each.asks_tls]
        self._between = between
        self._on_exchange = on_exchange
        self._texts = {each.name: _texts(config, each.name) for each in self._listeners}
        self._stamps = {each.name: _stamps(config, each.name) for each in self._listeners}
        self._client = self._client_of(config)
        config.listeners_of_change.append(self._changed)

    def check(self, changed: BrokerConfig) -> None:
        """ConfigError when the stores that a changed configuration names cannot be used in place of these."""
        for listener in self._listeners:
            if _texts(changed, listener.name) != self._texts[listener.name]:
                self._made(changed, listener)

    def reread(self) -> None:
        """Use the files that have changed under their names."""
        for listener in self._listeners:
            name = listener.name
            same = _texts(self._config, name) == self._texts[name]
            if same and _stamps(self._config, name) != self._stamps[name]:
                self._use(listener)

    def _changed(self, _keys: set[str]) -> None:
        for listener in self._listeners:
            if _texts(self._config, listener.name) != self._texts[listener.name]:
                self._use(listener)

    def _use(self, listener: Listener) -> None:
        name = listener.name
        stamps = _stamps(self._config, name)
        try:
            context = self._made(self._config, listener)
        except ConfigError as error:
            node_id = self._config.node_id
            event(_log, NodeEvent.STORES_KEPT, node_id=node_id, listener=name, detail=str(error))
            return
        listener.tls = context
        self._texts[name], self._stamps[name] = _texts(self._config, name), stamps
        if name == self._between:
            self._client = self._client_of(self._config)
        self._on_exchange(name)
        event(_log, NodeEvent.STORES_EXCHANGED, node_id=self._config.node_id, listener=name)

    def _made(self, config: BrokerConfig, listener: Listener) -> ServerContext:
        """The context of a listener by this configuration. ConfigError."""
        name, old = listener.name, listener.tls
        assert isinstance(old, ServerContext)
        new = server_context(config, name, listener.security_protocol)
        key = f"listener.name.{name.lower()}.ssl.keystore.location"

        def allows(what: str) -> bool:
            text = config.text(listener_key(config, name, None, f"ssl.allow.{what}.changes"))
            return (text or "").strip().lower() == "true"

        if new.subject.casefold() != old.subject.casefold() and not allows("dn"):
            reason = f"Keystore DistinguishedName does not match: existing={old.subject}, new={new.subject}"
            raise ConfigError(key, config.text(key), reason)
        if not old.names <= new.names and not allows("san"):
            lost = ", ".join(sorted(old.names - new.names))
            raise ConfigError(
                key,
                config.text(key),
                f"Keystore SubjectAltNames do not match: the new one is without {lost}",
            )
        if _has_trust(config, name) and not any(
            self._texts[name][STORE_KEYS.index(each)] for each in _TRUST
        ):
            key = f"listener.name.{name.lower()}.ssl.truststore.location"
            reason = "Cannot add SSL truststore to an existing listener for which no truststore was configured."
            raise ConfigError(key, config.text(key), reason)
        if name == self._between:
            self._check_between(config, old, new)
        return new

    def _client_of(self, config: BrokerConfig) -> SSLContext | None:
        """The context by which brokers connect to each other; None: they do so in plaintext, or trust whom the system
        does."""
        is_guarded = self._between in (each.name for each in self._listeners)
        if not (is_guarded and _has_trust(config, self._between)):
            return None
        return client_context(config, self._between, is_own=True)

    def _check_between(self, config: BrokerConfig, old: ServerContext, new: ServerContext) -> None:
        """ConfigError when brokers with the new stores and those with the earlier ones cannot connect to each other."""
        client = self._client_of(config)
        if client is None or self._client is None:
            return
        try:
            _shake(old, client)
            _shake(new, self._client)
        except TlsError as error:
            key = f"listener.name.{self._between.lower()}.ssl.keystore.location"
            reason = f"brokers with these stores and those with the earlier ones would not trust each other: {error}"
            raise ConfigError(key, config.text(key), reason) from None


def _has_trust(config: BrokerConfig, name: str) -> bool:
    return any(config.text(listener_key(config, name, None, each)) for each in _TRUST)


def _texts(config: BrokerConfig, name: str) -> _Texts:
    """The values of a listener's store keys, in the order of STORE_KEYS."""
    return tuple(config.text(listener_key(config, name, None, each)) for each in STORE_KEYS)


def _stamps(config: BrokerConfig, name: str) -> _Stamps:
    """What tells that a store's file has changed; None: no such file."""
    stamps = []
    for each in _FILES:
        path = config.text(listener_key(config, name, None, each))
        try:
            found = None if path is None else os.stat(path)
        except OSError:
            found = None
        stamps.append(None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(stamps)


def _shake(server: SSLContext, client: SSLContext) -> None:
    """A handshake of both in memory. TlsError."""
    stream = TlsStream(client, "localhost")
    incoming, outgoing = MemoryBIO(), MemoryBIO()
    other = server.wrap_bio(incoming, outgoing, server_side=True)
    is_done = False
    while not (is_done and stream.is_open):
        stream.shake()
        incoming.write(stream.outgoing())
        try:
            other.do_handshake()
            is_done = True
        except SSLWantReadError:
            pass
        except SSLError as error:
            raise TlsError(f"TLS handshake failed: {reason_of(error)}") from None
        stream.take(outgoing.read())
