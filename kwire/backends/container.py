"""Handle of one container of a cluster of `containers.py`: start, stop and query its node."""

from __future__ import annotations

from functools import lru_cache

from kwire import errors
from kwire.control import TOKEN
from kwire.control.client import call
from kwire.control.errors import ControlError
from kwire.control.token import USER, made_up
from kwire.launch.spec import CONTROL_PORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.backends.containers import Containers
    from kwire.client.connection import Address
    from kwire.server.link_rules import LinkRule

ENDED = ("exited", "dead")
_STOP_SECONDS = 15
_ASK_SECONDS = 10.0


@lru_cache(maxsize=1)
def _token() -> str:
    return made_up()


def control_variables() -> dict[str, str]:
    """The variables by which a container serves its control API to this process."""
    return {"KWIRE_CONTROL_PORT": str(CONTROL_PORT), TOKEN: _token()}


class ContainerHandle:
    """The container of one broker, or of one controller."""

    def __init__(
        self, owner: Containers, node_id: int, advertised: str, control: str, kind: str = "broker"
    ) -> None:
        """`control`: host and port of the container's control API."""
        self._owner = owner
        self.node_id = node_id
        self.advertised = advertised
        self.kind = kind
        self._control = f"http://{USER}:{_token()}@{control}"
        self._rules: list[LinkRule] = []
        self.paused = False
        self.may_halt = self.has_halted = False
        self.running = False
        self.container: Any = None
        self.inside: Address | None = None
        """Of the listener for brokers and for kwire itself, if clients have another one."""

    @property
    def address(self) -> Address:
        """Host and port for kwire itself to connect to."""
        if self.inside is not None:
            return self.inside
        host, _, port = self.advertised.rpartition(":")
        return host, int(port)

    @property
    def answers(self) -> bool:
        """Whether the node can answer requests: it runs and is not paused."""
        return self.running and not self.paused

    @property
    def rack(self) -> str | None:
        """The broker's rack, `broker.rack`; None without one."""
        if self.kind != "broker":
            return None
        spec = self._owner.spec
        return {**spec.node.values, **spec.overrides.get(self.node_id, {})}.get("broker.rack")

    @property
    def log_dir(self) -> str:
        raise errors.NotSupportedError(f"broker {self.node_id}: its logs are in its container")

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request to the node's control API. BrokerNotAvailableError, RequestError."""

        def work() -> Any:
            return call(self._control, method, path, body, _ASK_SECONDS)

        try:
            return await self._owner.call(work)
        except ControlError as error:
            text = f"{self.kind} {self.node_id}: {error}"
            if error.status:
                raise errors.RequestError(text, error.kafka_error) from None
            raise errors.BrokerNotAvailableError(text) from None

    def set_start_rules(self, rules: list[LinkRule]) -> None:
        """Set the link rules that apply when this node starts the next time."""
        self._rules = rules

    def set_start_clock(self, offset_ms: int) -> None:
        """Do nothing: a container that starts learns it afterwards."""

    async def set_link_rules(self, rules: list[LinkRule]) -> None:
        """Replace all link rules of this node, the sender."""
        self._rules = rules
        rules = [rule.with_to(self._owner.id_inside(rule.to)) for rule in rules]
        await self.ask("PUT", "/v1/network", {"rules": [rule.to_json() for rule in rules]})

    async def refresh_running(self) -> None:
        """Update `running` if the container was ended from outside."""
        if self.running:
            await self._owner.call(self.container.reload)
            if self.container.status in ENDED:
                self.running = self.paused = False
                self.has_halted = self.may_halt

    async def start(self) -> None:
        """Start the container again; return when a broker is registered, a controller started."""
        await self._owner.call(self.container.start)
        self.running = True
        if self._owner.has_network:
            await self._owner.wait_for_control(self)
            await self.set_link_rules(self._rules)  # the rules saved in it may be outdated
        if self.kind == "broker":
            await self._owner.wait_for_members({self.node_id})

    async def stop(self) -> None:
        """Stop the container: SIGTERM, then SIGKILL after 15 s."""
        if self.running:
            await self._owner.call(lambda: self.container.stop(timeout=_STOP_SECONDS))
            self.running = False

    async def kill(self) -> None:
        """Kill the container with SIGKILL."""
        if self.running:
            await self._owner.call(self.container.kill)
            self.running = self.paused = False

    async def pause(self) -> None:
        await self._owner.call(self.container.pause)
        self.paused = True

    async def resume(self) -> None:
        await self._owner.call(self.container.unpause)
        self.paused = False
