"""kwire: a Kafka-wire-compatible test broker with real logs, groups and replication."""

__version__ = "0.1.0"
__all__ = ["Cluster", "__version__"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.cluster import Cluster


def __getattr__(name: str) -> object:
    """`kwire.Cluster` is loaded when somebody wants it (PEP 562): the import of kwire costs nothing."""
    if name == "Cluster":
        from kwire.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
