"""WriteTxnMarkers (27): the ends of transactions, from their coordinator or from an administrator.

WriteTxnMarkers: v1 flexible · v2 transaction version (KIP-890). `kafka-transactions.sh abort` sends it
to end a transaction whose coordinator has forgotten it (KIP-664). As in Kafka without an authorizer,
any client may.
"""

from __future__ import annotations

from kwire.coordinator.transactional_offsets import TransactionalOffsets
from kwire.transactions.marker_writer import MarkerWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.context import RequestContext, Services
    from kwire.protocol.schemas.transactions import WriteTxnMarkersRequest
    from kwire.transactions.markers import MarkerSender

KAFKA_39_VERSION = 1  # of WriteTxnMarkers, in a cluster with brokers of Kafka


def marker_writer(services: Services) -> MarkerWriter:
    """The writer of markers into the partitions that this broker leads."""
    return MarkerWriter(
        services.replica_manager,
        TransactionalOffsets(services.group_coordinator),
        services.clock,
        services.config.request_timeout_ms,
    )


def marker_sender(services: Services) -> MarkerSender:
    """The sender of the markers that this broker's transaction coordinator decides on."""
    from kwire.transactions.markers import NEWEST_VERSION, MarkerSender

    member = services.member
    is_foreign = member is not None and member.link.is_foreign
    return MarkerSender(
        services.node_id,
        services.metadata,
        services.clock,
        services.timers,
        None if member is None else member.peers,
        marker_writer(services).write,
        timeout_ms=services.config.request_timeout_ms,
        version=KAFKA_39_VERSION if is_foreign else NEWEST_VERSION,
    )


def handle_write_txn_markers(ctx: RequestContext, request: WriteTxnMarkersRequest) -> None:
    """Append the markers; the response has an error per producer id and partition."""
    marker_writer(ctx.services).write(request, ctx.reply)
