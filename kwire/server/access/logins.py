"""The log-ins and TLS of a node: of its own listeners' clients, and its own at other nodes' listeners.

Answers to what kafka.server.{KafkaConfig,SharedServer} and ChannelBuilders say of `security.inter.broker.protocol`,
`inter.broker.listener.name`, `controller.listener.names` and the two `sasl.mechanism.….protocol`. Imported where some
listener is not plaintext.
"""

from __future__ import annotations

from kwire.replication.config.broker_config import ConfigError
from kwire.replication.core.types import SASL_PLAINTEXT, SECURITY_PROTOCOLS
from kwire.security.client import Access
from kwire.server.listeners import (
    controller_names,
    inter_broker_listener,
    own_listener,
    protocol_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from kwire.controller_node import ControllerNode
    from kwire.core import Core
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.security.settings import ListenerSettings
    from kwire.server.listeners import Listener
    from kwire.server.node import Node

PLAINTEXT, SSL, _, SASL_SSL = SECURITY_PROTOCOLS


class Logins:
    """The log-ins and TLS of a node. `own`: what kwire itself needs to come in at `own_address`; None: nothing."""

    def __init__(
        self, config: BrokerConfig, listeners: list[Listener], *, is_controller: bool, alone: bool
    ) -> None:
        """`alone`: there is one broker, which has the controller in it. ConfigError."""
        self._config = config
        self._settings: dict[str, ListenerSettings] = {}
        self._accesses: dict[tuple[str, str, bool], Access | None] = {}
        self._is_controller = is_controller
        self._controllers: tuple[str, str] | None = None
        self._brokers = ("", PLAINTEXT)
        for each in listeners:
            if each.asks_tls:
                from kwire.server.tls.context import guard

                guard(config, each)
            if each.asks_login:
                from kwire.security.settings import listener_settings

                self._settings[each.name] = listener_settings(config, each.name)
        own = own_listener(config, listeners)
        self.own: Access | None = None
        self._own_name = own.name
        if not own.is_plaintext:
            self.own = self._new_access(
                own.name, own.security_protocol, of_controllers=is_controller, is_own=True
            )
        if is_controller:
            self._controllers = own.name, own.security_protocol
            self._access(*self._controllers, True)
        elif not alone:
            brokers = inter_broker_listener(config, listeners)
            self._brokers = brokers.name, brokers.security_protocol
            names = controller_names(config)
            own_key = (names[0], protocol_of(config, names[0])) if names else None
            self._controllers = own_key or self._brokers
            for target, of_controllers in ((self._brokers, False), (self._controllers, True)):
                self._access(*target, of_controllers)
        elif own.name in self._settings and self.own is not None:
            self._settings[own.name].own = self.own.credentials
        self._let_own_in()

    def _let_own_in(self) -> None:
        """Let users of SCRAM in that nodes themselves log in as."""
        for (name, _, _), access in self._accesses.items():
            if access is not None and name in self._settings:
                self._settings[name].own = access.credentials

    def _access(self, name: str, protocol: str, of_controllers: bool) -> Access | None:
        """What is needed at a listener; None: nothing. ConfigError."""
        key = name, protocol, of_controllers
        if protocol != PLAINTEXT and key not in self._accesses:
            self._accesses[key] = self._new_access(name, protocol, of_controllers=of_controllers)
        return self._accesses.get(key)

    def _new_access(
        self, name: str, protocol: str, *, of_controllers: bool, is_own: bool = False
    ) -> Access:
        context = credentials = None
        if protocol in (SSL, SASL_SSL):
            from kwire.server.tls.context import client_context

            context = client_context(self._config, name, is_own=is_own)
        if protocol in (SASL_PLAINTEXT, SASL_SSL):
            from kwire.security.settings import controller_login, inter_broker_login

            has_own_key = of_controllers and bool(controller_names(self._config))
            login = controller_login if has_own_key else inter_broker_login
            credentials = login(self._config, name)
        return Access(credentials, context)

    @property
    def at_controllers(self) -> Access | None:
        """What a broker needs at a controller's listener."""
        return None if self._controllers is None else self._access(*self._controllers, True)

    # --- of a node that serves

    async def open(
        self, node: Node, core: Core, controllers: Iterable[tuple[int, str, int]]
    ) -> None:
        """Let clients log in, and this node at others. Before a log-in requests are small. `controllers`: ids and
        addresses. SettingsError: there are no keys for signed tokens."""
        self._guard_peers(node, core, {each[0] for each in controllers})
        if not self._is_controller and any(each.asks_tls for each in node.listeners):
            from kwire.server.tls.exchange import StoresInUse

            between = inter_broker_listener(self._config, node.listeners).name
            self._config.stores = StoresInUse(self._config, node.listeners, between, self._renew)
        if not self._settings:
            return
        await self._load_keys(core)
        from kwire.security.gate import open_gate

        for listener in node.listeners:
            if listener.asks_login:
                listener.login_bytes = self._settings[listener.name].max_receive_bytes

        def admitted(connection_id: int) -> None:
            connection = node.connections.get(connection_id)
            if connection is not None:
                connection.reader.max_frame_bytes = node.max_frame_bytes

        open_gate(core.sessions, self._settings, admitted)

    async def _load_keys(self, core: Core) -> None:
        for name, settings in self._settings.items():
            tokens = settings.tokens
            if tokens is not None and tokens.is_signed:
                from kwire.server.access.jwks import Jwks

                keys = Jwks(tokens.settings, name, self._config.node_id, core.timers, core.clock)
                await keys.load()
                tokens.keys = keys

    def _renew(self, name: str) -> None:
        """Connect by the changed stores of a listener from now on."""
        from kwire.server.tls.context import client_context

        for (listener, _, _), access in self._accesses.items():
            if listener == name and access is not None and access.context is not None:
                access.context = client_context(self._config, name)
        if name == self._own_name and self.own is not None and self.own.context is not None:
            self.own.context = client_context(self._config, name, is_own=True)

    def _guard_peers(self, node: Node, core: Core, controllers: Container[int]) -> None:
        if self._controllers is None:
            return
        from kwire.server.access.peer import PeerGuard

        def access_of(peer: int) -> Access | None:
            if self._is_controller:
                return self._of_registered(core, peer)  # type: ignore[arg-type]  # a controller's core
            if peer in controllers:
                return self.at_controllers
            return self._access(*self._brokers, False)

        node.peer_connections().guard = PeerGuard(access_of)

    def _of_registered(self, core: ControllerNode, broker: int) -> Access | None:
        """What a controller needs at a broker, which has registered the listener for that first."""
        found = core.controller.brokers.get(broker)
        if found is None or not found.endpoints:
            return None
        first = found.endpoints[0]
        protocol = SECURITY_PROTOCOLS[first.security_protocol]
        try:
            return self._access(first.listener, protocol, False)
        except ConfigError:
            if self._controllers is None or self._controllers[1] != protocol:
                raise
            return self.at_controllers  # a controller's configuration need not say more
