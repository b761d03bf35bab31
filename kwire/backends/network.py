"""The network between the nodes of a cluster, for tests: cuts and delays. Clients are not concerned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire import errors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import TracebackType

    from kwire.aio import Cluster

    Nodes = int | Iterable[int]


_DAY_MS = 86_400_000


class Cut:
    """What `Network.cut` and `delay` return: awaited it takes effect; as an async context also until its end."""

    def __init__(self, network: Network, pairs: list[tuple[int, int]], command: str) -> None:
        """`command`: with {} for the other node."""
        self._network = network
        self._pairs = pairs
        self._command = command

    def __await__(self) -> Generator[object, None, None]:
        return self._network.apply(self._pairs, self._command).__await__()

    async def __aenter__(self) -> None:
        await self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._network.undo(self._pairs)


class Network:
    """Nodes are given as ids, one or several; the controller, too, has one (`Cluster.controller_id`)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._commands: dict[tuple[int, int], str] = {}  # (who sends, to whom): what holds now

    def cut(self, a: Nodes, b: Nodes) -> Cut:
        """Nobody of `a` reaches anybody of `b`, nor the other way round."""
        return Cut(self, self._pairs(a, b), "cut {}")

    def delay(self, a: Nodes, b: Nodes, milliseconds: float) -> Cut:
        """Requests between `a` and `b` take this much longer each way, and their answers, too."""
        if (
            isinstance(milliseconds, bool)
            or not isinstance(milliseconds, int | float)
            or not 0 <= milliseconds < _DAY_MS
        ):
            raise errors.ConfigurationError(
                f"milliseconds: expected a number from 0 to a day's, not {milliseconds!r}"
            )
        return Cut(self, self._pairs(a, b), f"delay {{}} {round(milliseconds)}")

    async def heal(self, a: Nodes | None = None, b: Nodes | None = None) -> None:
        """Undoes cuts and delays: all, all of `a`, or those between `a` and `b`."""
        if a is None:
            pairs = list(self._commands)
        elif b is None:
            nodes = self._known(a)
            pairs = [pair for pair in self._commands if nodes & set(pair)]
        else:
            pairs = self._pairs(a, b)
        await self.undo(pairs)

    def commands_of(self, node_id: int) -> list[str]:
        """What holds for what a node sends: it must hear it when it starts again."""
        return [command for (sender, _), command in self._commands.items() if sender == node_id]

    async def apply(self, pairs: list[tuple[int, int]], command: str) -> None:
        """Lets a command hold for what the first of each pair sends to the second."""
        for sender, other in pairs:
            if (sender, other) in self._commands:
                await self._tell(sender, f"heal {other}")
            self._commands[sender, other] = command.format(other)
            await self._tell(sender, command.format(other))

    async def undo(self, pairs: list[tuple[int, int]]) -> None:
        """Takes back what holds for these pairs."""
        for sender, other in pairs:
            if self._commands.pop((sender, other), None) is not None:
                await self._tell(sender, f"heal {other}")

    async def _tell(self, node_id: int, command: str) -> None:
        await self._cluster.command_network(node_id, command)

    def _known(self, nodes: Nodes) -> set[int]:
        """Ids. ConfigurationError for what are none, ClusterStateError for those that nobody has."""
        given = [nodes] if isinstance(nodes, int) else nodes
        if not isinstance(given, set | frozenset | list | tuple) or not all(
            isinstance(each, int) for each in given
        ):
            raise errors.ConfigurationError(f"expected ids of nodes, not {nodes!r}")
        found = set(given)
        for node_id in found:
            self._cluster.node(node_id)  # or it says that there is none
        return found

    def _pairs(self, a: Nodes, b: Nodes) -> list[tuple[int, int]]:
        first, second = self._known(a), self._known(b)
        both = first & second
        if both or not first or not second:
            raise errors.ConfigurationError(
                f"expected two different sets of nodes, not {sorted(first)} and {sorted(second)}"
            )
        pairs = [(x, y) for x in sorted(first) for y in sorted(second)]
        return pairs + [(y, x) for x, y in pairs]
