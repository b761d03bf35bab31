"""kwire: a Kafka-wire-compatible test broker with real logs, groups and replication."""

__version__ = "0.1.0"
__all__ = [
    "Client",
    "Cluster",
    "ClusterFactory",
    "Event",
    "Group",
    "GroupOffset",
    "Member",
    "Partition",
    "Record",
    "Replica",
    "Request",
    "Transaction",
    "TransactionPartition",
    "__version__",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.backends.views import Partition, Replica
    from kwire.client.views import (
        Client,
        Event,
        Group,
        GroupOffset,
        Member,
        Record,
        Request,
        Transaction,
        TransactionPartition,
    )
    from kwire.cluster import Cluster
    from kwire.pytest_clusters import ClusterFactory

_MODULES = {
    "Client": "kwire.client.views",
    "Cluster": "kwire.cluster",
    "ClusterFactory": "kwire.pytest_clusters",
    "Event": "kwire.client.views",
    "Group": "kwire.client.views",
    "GroupOffset": "kwire.client.views",
    "Member": "kwire.client.views",
    "Partition": "kwire.backends.views",
    "Record": "kwire.client.views",
    "Replica": "kwire.backends.views",
    "Request": "kwire.client.views",
    "Transaction": "kwire.client.views",
    "TransactionPartition": "kwire.client.views",
}


def __getattr__(name: str) -> object:
    """Load a name at its first use (PEP 562): the import of kwire itself costs nothing."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
