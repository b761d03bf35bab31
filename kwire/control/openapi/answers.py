"""What each handler of the control API answers: the name of its schema (`schemas.py`), or another media type."""

from __future__ import annotations

from kwire.control import clients_api as of_clients
from kwire.control import cluster_api as of_cluster
from kwire.control import contents_api as of_contents
from kwire.control import faults_api as of_faults
from kwire.control import node_api as of_nodes
from kwire.control import node_clients as of_nodes_clients
from kwire.control import node_files as of_nodes_files
from kwire.control import routes
from kwire.control import snapshots_api as of_snapshots
from kwire.control.clock import api as of_clock
from kwire.control.disks import api as of_disks
from kwire.control.live import events as of_events
from kwire.control.live import node_view as of_node_views
from kwire.control.live import page as of_page
from kwire.control.metrics import api as of_metrics
from kwire.control.metrics import counts as of_metrics_counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OF_CLUSTER: dict[Callable[..., Any], str] = {
    routes.list_requests_of_cluster: "Index",
    routes.document_of_cluster: "Document",
    of_cluster.health: "Health",
    of_cluster.describe: "Cluster",
    of_cluster.change_broker: "Node",
    of_cluster.change_controller: "Node",
    of_cluster.status: "NodeStatus",
    of_cluster.partition: "Partition",
    of_cluster.elect: "Partition",
    of_cluster.compact: "Done",
    of_cluster.apply_retention: "Done",
    of_cluster.network: "Network",
    of_cluster.cut: "Done",
    of_cluster.delay: "Done",
    of_cluster.heal: "Network",
    of_cluster.reset: "Done",
    of_cluster.failures: "Failures",
    of_cluster.report: "Report",
    of_events.events: "Events",
    of_page.live: "Live",
    of_contents.topics: "Topics",
    of_contents.topic: "Topic",
    of_contents.create_topic: "Topic",
    of_contents.delete_topic: "Done",
    of_contents.partitions: "Partitions",
    of_contents.records: "Records",
    of_contents.produce: "Record",
    of_contents.groups: "Groups",
    of_contents.group: "Group",
    of_contents.transactions: "Transactions",
    of_contents.transaction: "Transaction",
    of_contents.fence: "Transaction",
    of_contents.clients: "Clients",
    of_contents.requests: "Requests",
    of_contents.forget: "Done",
    of_faults.add: "Fault",
    of_faults.listed: "Faults",
    of_faults.one: "Fault",
    of_faults.remove: "Fault",
    of_faults.clear: "Faults",
    of_disks.add: "DiskFault",
    of_disks.listed: "DiskFaults",
    of_disks.remove: "DiskFault",
    of_disks.heal: "DiskFaults",
    of_disks.heal_all: "DiskFaults",
    of_snapshots.save: "Snapshot",
    of_snapshots.listed: "Snapshots",
    of_snapshots.one: "Snapshot",
    of_snapshots.restore: "Snapshot",
    of_snapshots.remove: "Snapshot",
    of_clock.show: "Clock",
    of_clock.advance: "Clock",
    of_clock.freeze: "Clock",
    of_clock.resume: "Clock",
}

OF_NODES: dict[Callable[..., Any], str] = {
    routes.list_requests_of_nodes: "Index",
    routes.document_of_nodes: "Document",
    of_nodes.health: "Health",
    of_nodes.describe: "NodesHere",
    of_nodes.status: "NodeStatuses",
    of_nodes.failures: "Failures",
    of_nodes.fail: "Done",
    of_nodes.events: "EventsHere",
    of_node_views.changes: "Changes",
    of_nodes.topics: "Topics",
    of_nodes.partition: "PartitionAtController",
    of_nodes.elect: "PartitionAtController",
    of_nodes.replica: "ReplicaHere",
    of_nodes.compact: "Compaction",
    of_nodes.compaction: "Compaction",
    of_nodes.apply_retention: "Segments",
    of_nodes.network: "Links",
    of_nodes.set_network: "Done",
    of_nodes.cut: "Done",
    of_nodes.delay: "Done",
    of_nodes.heal: "Links",
    of_nodes.live_brokers: "LiveBrokers",
    of_nodes.configured_brokers: "ConfiguredBrokers",
    of_nodes.fence_brokers: "Done",
    of_nodes_clients.clients: "Clients",
    of_nodes_clients.requests: "Requests",
    of_nodes_clients.forget: "Done",
    of_metrics_counts.page: "MetricsPage",
    of_nodes_files.hold: "Held",
    of_nodes_files.release: "Done",
    of_clients.leftovers: "Leftovers",
    of_clients.set_clients_aside: "Done",
    of_faults.add_at_nodes: "FaultId",
    of_faults.put_at_nodes: "Done",
    of_faults.listed_at_nodes: "FaultsHere",
    of_faults.one_at_nodes: "FaultsHere",
    of_faults.remove_at_nodes: "FaultsHere",
    of_faults.clear_at_nodes: "FaultsHere",
    of_disks.set_at_nodes: "Done",
    of_disks.show_at_nodes: "DisksHere",
    of_clock.show_nodes: "Clock",
    of_clock.advance_nodes: "Clock",
    of_clock.change_nodes: "ClockPart",
}

ANSWERS = {**OF_CLUSTER, **OF_NODES}
TEXTS: dict[Callable[..., Any], str] = {
    of_metrics.of_cluster: "text/plain",
    of_metrics.of_nodes: "text/plain",
}
"""Handlers whose answer is no JSON, and its media type."""
