"""`network` of `kwire.Cluster`: cuts and delays for code without a loop; `network.py` does the work."""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from kwire.backends.network import Cut, Nodes
    from kwire.cluster import Cluster


class Network:
    """Cuts and delays between nodes, which are given as one id or several, controllers included.

    Clients are unaffected."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def cut(self, a: Nodes, b: Nodes, *, one_way: bool = False) -> AbstractContextManager[None]:
        """Cut the links between `a` and `b`, in both directions: from now on, or as a context until its end.
        `one_way`: `a` reaches `b` no more, but `b` still reaches `a`, and gets its answers."""
        return self._applied(self._cluster._inner.network.cut(a, b, one_way=one_way))

    def delay(
        self, a: Nodes, b: Nodes, milliseconds: float, *, one_way: bool = False
    ) -> AbstractContextManager[None]:
        """Delay each request and each response between `a` and `b`; a context, too. `one_way`: only what `a` asks of
        `b`, and the answers to that."""
        network = self._cluster._inner.network
        return self._applied(network.delay(a, b, milliseconds, one_way=one_way))

    def heal(self, a: Nodes | None = None, b: Nodes | None = None) -> None:
        """Remove cuts and delays: all, all of `a` or of `b`, or those between `a` and `b`."""
        self._cluster._run(self._cluster._inner.network.heal(a, b))

    def cuts(self, *, one_way: bool = False) -> list[tuple[int, int]]:
        """The cuts in force: pairs of node ids, the smaller first; `one_way`: those in one direction only, who does
        not reach whom."""
        return self._cluster._inner.network.cuts(one_way=one_way)

    def delays(self, *, one_way: bool = False) -> list[tuple[int, int, int]]:
        """The delays in force: pairs of node ids, the smaller first, and milliseconds; `one_way`: those in one
        direction only, or with other milliseconds in the other: who asks whom."""
        return self._cluster._inner.network.delays(one_way=one_way)

    def __repr__(self) -> str:
        return repr(self._cluster._inner.network)

    def _applied(self, cut: Cut) -> AbstractContextManager[None]:
        self._cluster._run(cut.__aenter__())
        return self._until_end(cut)

    @contextmanager
    def _until_end(self, cut: Cut) -> Iterator[None]:
        try:
            yield
        finally:
            self._cluster._run(cut.__aexit__(None, None, None))
