"""ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46), UnregisterBroker (64).

The controller decides and answers: `replication/controller/partitions.py`, `replication/controller/reassignment.py`,
`replication/controller/brokers.py`. ElectLeaders 0-2: v1 unclean elections (KIP-460). AlterPartitionReassignments 0-1
and ListPartitionReassignments 0: KIP-455, v1 protects the replication factor. UnregisterBroker 0: KIP-631.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.apis.forwarding import ask_controller

if TYPE_CHECKING:
    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.nodes import UnregisterBrokerRequest
    from kwire.protocol.schemas.topics import (
        AlterPartitionReassignmentsRequest,
        ElectLeadersRequest,
        ListPartitionReassignmentsRequest,
    )


def handle_elect_leaders(ctx: RequestContext, request: ElectLeadersRequest) -> None:
    """ElectLeaders v0-2."""
    ask_controller(ctx, request)


def handle_alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> None:
    """AlterPartitionReassignments v0-1."""
    ask_controller(ctx, request)


def handle_list_partition_reassignments(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> None:
    """ListPartitionReassignments v0."""
    ask_controller(ctx, request)


def handle_unregister_broker(ctx: RequestContext, request: UnregisterBrokerRequest) -> None:
    """UnregisterBroker v0."""
    ask_controller(ctx, request)
