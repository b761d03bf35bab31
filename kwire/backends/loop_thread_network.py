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

    def cut(self, a: Nodes, b: Nodes) -> AbstractContextManager[None]:
        """Cut the links between `a` and `b`, in both directions: from now on, or as a context until its
        end."""
        return self._applied(self._cluster._inner.network.cut(a, b))

    def delay(self, a: Nodes, b: Nodes, milliseconds: float) -> AbstractContextManager[None]:
        """Delay each request and each response between `a` and `b`; a context, too."""
        return self._applied(self._cluster._inner.network.delay(a, b, milliseconds))

    def heal(self, a: Nodes | None = None, b: Nodes | None = None) -> None:
        """Remove cuts and delays: all, all of `a` or of `b`, or those between `a` and `b`."""
        self._cluster._run(self._cluster._inner.network.heal(a, b))

    def cuts(self) -> list[tuple[int, int]]:
        """The cuts in force: pairs of node ids, the smaller first."""
        return self._cluster._inner.network.cuts()

    def delays(self) -> list[tuple[int, int, int]]:
        """The delays in force: pairs of node ids, the smaller first, and milliseconds."""
        return self._cluster._inner.network.delays()

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
