"""The kinds of clients that a plan may have, by name. CONTRIBUTING.md says how to add one."""

from __future__ import annotations

from kwire.sim.clients.consumer import Consumer
from kwire.sim.clients.liar import Liar
from kwire.sim.clients.lookups import Lookups
from kwire.sim.clients.member import Member
from kwire.sim.clients.producer import Producer
from kwire.sim.clients.sessions import SessionConsumer
from kwire.sim.clients.transactional import TransactionalProducer
from kwire.sim.clients.transformer import Transformer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.sim.clients.base import Client

KINDS: dict[str, Callable[..., Client]] = {
    "producer": Producer,
    "consumer": Consumer,
    "session_consumer": SessionConsumer,
    "lookups": Lookups,
    "liar": Liar,
    "member": Member,
    "transactional": TransactionalProducer,
    "transformer": Transformer,
}
"""Makes a client from its Setting and the options of its `ClientPlan`."""
