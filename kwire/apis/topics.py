"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37): what clients ask of topics.

The controller decides and answers (`replication/controller/topics.py`); any broker takes such a request and hands it
on, as a KRaft broker forwards it. CreateTopics 0-7: v1 validate_only and messages, v4 defaults by -1, v5 the resulting
configuration, v7 topic ids. DeleteTopics 0-6: v5 messages, v6 by topic id. CreatePartitions 0-3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.apis.forwarding import ask_controller

if TYPE_CHECKING:
    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.topics import (
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
    )


def handle_create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> None:
    """CreateTopics v0-7."""
    ask_controller(ctx, request)


def handle_delete_topics(ctx: RequestContext, request: DeleteTopicsRequest) -> None:
    """DeleteTopics v0-6."""
    ask_controller(ctx, request)


def handle_create_partitions(ctx: RequestContext, request: CreatePartitionsRequest) -> None:
    """CreatePartitions v0-3."""
    ask_controller(ctx, request)
