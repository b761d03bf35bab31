"""What a broker's configuration asks of the stores of its listeners with TLS, which the server has."""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.config.broker_config import BrokerConfig


class Stores(Protocol):
    """The key stores and trust stores in use."""

    def check(self, changed: BrokerConfig) -> None:
        """ConfigError when the stores that a changed configuration names cannot be used in place of these."""

    def reread(self) -> None:
        """Use the files that have changed under their names."""
